"""Pairs that come in parts: which of their training images each session brings.

A schedule of such a stream has a column ``share``. The images of a pair are dealt out to its
sessions in the order of their content's hash, which is random, the same everywhere, and does not
change when other images are added to the benchmark. No image comes twice, none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dacr.data.session_table import read_schedule
from dacr.data.streams import Pair
from dacr.errors import UserError

SHARE = "share"


def read_with_shares(path: Path) -> pd.DataFrame:
    """The table that stage ``schedule`` wrote, with its column ``share`` if it has one."""
    schedule = read_schedule(path)
    raw = pd.read_csv(path)
    if SHARE not in raw.columns:
        return schedule
    shares = pd.to_numeric(raw[SHARE], errors="coerce")
    if not ((shares > 0) & (shares <= 1)).all():
        raise UserError(f"{path} is damaged (a share is none); run `dvc repro -f schedule`")
    return schedule.assign(share=shares)


def first_appearances(schedule: pd.DataFrame) -> pd.DataFrame:
    """The rows of a schedule that bring a pair for the first time."""
    return schedule.sort_values("session").drop_duplicates(["class", "domain"])


def apportion(images: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """``images`` in proportion to ``shares``, by largest remainders; no part is empty."""
    exact = images * shares / shares.sum()
    parts: NDArray[np.int64] = np.maximum(min(1, images), np.floor(exact)).astype(np.int64)
    while parts.sum() < images:
        parts[np.argmax(exact - parts)] += 1
    while parts.sum() > images:
        parts[np.argmax(np.where(parts > 1, parts - exact, -np.inf))] -= 1
    return parts


def images_by_session(
    schedule: pd.DataFrame, images: Mapping[Pair, int]
) -> dict[int, dict[Pair, int]]:
    """session → pair → how many of the pair's ``images`` it brings."""
    found: dict[int, dict[Pair, int]] = {int(t): {} for t in schedule["session"].unique()}
    for pair, number in images.items():
        of_pair = (schedule["class"] == pair[0]) & (schedule["domain"] == pair[1])
        own = schedule[of_pair].sort_values("session")
        shares = own[SHARE].to_numpy(np.float64) if SHARE in own else np.ones(len(own))
        parts = apportion(number, shares) if len(own) else np.empty(0)
        for t, part in zip(own["session"], parts, strict=True):
            found[int(t)][pair] = int(part)
    return found


def deal(schedule: pd.DataFrame, train: pd.DataFrame) -> pd.Series[int]:
    """The session that brings each of the training images ``train``, by their row."""
    ordered = train.sort_values(["pixels", "id"])
    images = ordered.groupby(["label", "domain"]).groups
    dealt = pd.Series(0, index=ordered.index)
    for pair, own in schedule.sort_values("session").groupby(["class", "domain"]):
        if pair in images:
            parts = apportion(len(images[pair]), own[SHARE].to_numpy(np.float64))
            dealt.loc[images[pair]] = np.repeat(own["session"].to_numpy(), parts)
    return dealt
