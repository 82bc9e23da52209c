"""Compose ``params.yaml`` from ``conf/``, as ``dvc exp run`` does but without running anything."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten

from dacr.errors import UserError


def compose(overrides: list[str], output: Path) -> None:
    """Write the parameters of the experiment that ``overrides`` describe (``split=nd`` …)."""
    from dvc.utils.hydra import compose_and_dump
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    conf = Path("conf").resolve()
    try:
        compose_and_dump(output, str(conf), None, "config", str(conf / "plugins"), overrides)
    except (HydraException, OmegaConfBaseException) as error:
        reason = str(error).split("Config search path")[0]
        raise UserError(f"cannot compose {_shown(overrides)}: {reason}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number too long
        reason = str(error).split(";")[0]
        raise UserError(f"cannot compose {_shown(overrides)}: {reason}") from None


def _shown(overrides: list[str]) -> str:
    return shorten(" ".join(overrides), 300, placeholder=" …")
