"""Compose ``params.yaml`` from ``conf/``, as ``dvc exp run`` does but without running anything."""

from __future__ import annotations

import sys
from pathlib import Path

from dacr.errors import UserError
from dacr.runtime.stage import run_stage

PARAMS = Path("params.yaml")


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
        raise UserError(f"cannot compose {' '.join(overrides)}: {reason}") from None


def main() -> None:
    from dacr.config import load_params
    from dacr.data.fetching import check_options
    from dacr.methods import method_class
    from dacr.methods.base import read_options

    # Checked before it takes the place of the old one: a wrong override loses nothing.
    draft = PARAMS.with_suffix(".draft.yaml")
    try:
        compose(sys.argv[1:], draft)
        params = load_params(draft)
        check_options(params.data)
        read_options(method_class(params.method), params)
        draft.replace(PARAMS)
    finally:
        draft.unlink(missing_ok=True)
    experiment = f"{params.method} on {params.benchmark}, split {params.split}"
    print(f"params.yaml: {experiment}, {len(params.schedule.sessions)} sessions")


if __name__ == "__main__":
    run_stage(main)
