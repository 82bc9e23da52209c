"""Fewer training images per pair, or a validation part in place of the test part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import cast

import pandas as pd

from dacr.config import Data
from dacr.data.sources.base import Part, Sample
from dacr.names import one_form
from dacr.rng import derive_seed

Limit = Callable[[str], int | None]
"""The most training images of each pair with this domain; None: all."""


def limit_of(data: Data) -> Limit | None:
    """What ``data.per_pair`` says."""
    most = data.per_pair
    if most is None:
        return None
    if isinstance(most, int):
        return lambda domain: most
    return {one_form(domain): own for domain, own in most.items()}.get


def restrict(
    index: pd.DataFrame, limit: Limit | None, validation: float, seed: int
) -> pd.Series[str]:
    """The part of each row afterwards: train, test, or empty for an image that is left out.

    The training images of each (class, domain) pair are ranked by a hash of their source id, so
    that the choice depends on the seed but not on the order of the rows. With ``validation`` the
    first fraction of them becomes the test part and the real test images are left out, so that
    tuning never sees these. ``limit`` says by domain how many of the following ones are trained
    on: which images validate does not depend on it.
    """
    part = index["part"].copy()
    train = index[part == "train"]
    names = zip(train["domain"], train["source_id"], strict=True)
    hashes = [derive_seed(seed, "restrict", domain, source_id) for domain, source_id in names]
    pairs = (
        train.assign(hash=hashes).sort_values("hash", kind="stable").groupby(["label", "domain"])
    )
    rank, size = pairs.cumcount(), pairs["part"].transform("size")
    held_out = 0 * size
    if validation > 0:
        held_out = (size * validation).round().clip(lower=1).clip(upper=size - 1)
        part.loc[part == "test"] = ""
        part.loc[rank.index[rank < held_out]] = "test"
    if limit is not None:
        domains = train["domain"].loc[rank.index]
        most = domains.map(lambda domain: inf if (n := limit(domain)) is None else n)
        part.loc[rank.index[rank >= held_out + most]] = ""
    return part


def restricted(
    read: Callable[[], Iterator[Sample]], limit: Limit | None, validation: float, seed: int
) -> tuple[Iterator[Sample], int | None]:
    """The samples that ``restrict`` leaves, and how many where it leaves some out.

    It takes a first reading, of the labels alone.
    """
    if limit is None and not validation:
        return read(), None
    labels = [(sample.label, sample.domain, sample.part, sample.source_id) for sample in read()]
    index = pd.DataFrame(labels, columns=["label", "domain", "part", "source_id"])
    parts = restrict(index, limit, validation, seed)
    kept = (
        replace(sample, part=cast(Part, part))
        for sample, part in zip(read(), parts, strict=True)
        if part
    )
    return kept, int((parts != "").sum())
