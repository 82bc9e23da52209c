"""What Hydra needs beyond YAML to compose an experiment.

``${sessions:…}`` makes the chain of sessions that ``dvc.yaml`` iterates over, from a number of
sessions or from a list with one entry per session; ``${product:…,…}`` multiplies two of these.
Methods that are a single Python file, without a configuration of their own, become choices of the
group ``method``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

ROOT = Path(__file__).resolve().parents[3]


def _count(sessions: int | Sequence[object]) -> int:
    return sessions if isinstance(sessions, int) else len(sessions)


def chain(sessions: int | Sequence[object]) -> DictConfig:
    """'01': {index: 1, prev: '00'}, '02': {index: 2, prev: '01'}, …"""
    return OmegaConf.create(
        {f"{t:02d}": {"index": t, "prev": f"{t - 1:02d}"} for t in range(1, _count(sessions) + 1)}
    )


def last(sessions: int | Sequence[object]) -> str:
    return f"{_count(sessions):02d}"


def product(left: int | Sequence[object], right: int | Sequence[object]) -> int:
    return _count(left) * _count(right)


def offer_single_file_methods() -> None:
    """A file ``dacr/methods/mine.py`` alone is enough for ``-S method=mine``."""
    for file in (ROOT / "dacr" / "methods").glob("[a-z]*.py"):
        if not (ROOT / "conf/method" / f"{file.stem}.yaml").exists():
            from hydra.core.config_store import ConfigStore  # the library has no Hydra

            node = {"method": file.stem}
            ConfigStore.instance().store(file.stem, node, group="method", package="_global_")


OmegaConf.register_new_resolver("sessions", chain, replace=True)
OmegaConf.register_new_resolver("last_session", last, replace=True)
OmegaConf.register_new_resolver("product", product, replace=True)
offer_single_file_methods()
