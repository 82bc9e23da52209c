"""Schedules in the words of ``conf/split``, without a benchmark or a ``params.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from dacr.config import Link, Schedule
from dacr.data import splits


def section(rule: str, sessions: int, **settings: Any) -> Schedule:
    """The section ``schedule`` of the parameters, as it may be written by hand: not checked."""
    keys = [f"{t:02d}" for t in range(sessions + 1)]
    chain = {key: Link(index=int(key), prev=prev) for prev, key in pairwise(keys)}
    chosen = {"seed": 1993, "domain_order": "listed", **settings}
    return Schedule.model_construct(split=rule, rule=rule, sessions=chain, last=keys[-1], **chosen)


def make_schedule(
    rule: str,
    classes: int,
    domains: int,
    *,
    sessions: int,
    class_names: Sequence[str] = (),
    domain_names: Sequence[str] = (),
    **settings: Any,
) -> pd.DataFrame:
    return splits.make_schedule(
        section(rule, sessions, **settings),
        class_names or [str(i) for i in range(classes)],
        domain_names or [str(i) for i in range(domains)],
    )


def write_split(schedule: pd.DataFrame, index: pd.DataFrame, folder: Path) -> None:
    """The outs of ``schedule`` and of every ``split@t``."""
    splits.write_schedule(schedule, index, folder)
    for t in range(1, int(schedule["session"].max()) + 1):
        splits.write_session(folder, f"{t:02d}", index)
