"""What scenarios there are and what their sessions bring; nothing is downloaded for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dacr.config import Data
from dacr.data.splits import make_schedule
from dacr.errors import UserError
from dacr.scenarios.composition import Composed, benchmarks, compose, splits
from dacr.scenarios.places import conf_folder, schedules_folder


@dataclass(frozen=True)
class Choice:
    """A scenario by its names, with what a user changes of it; None: as ``conf/`` says."""

    benchmark: str
    split: str
    seed: int | None = None
    """Of the order of classes and domains, and of what ``per_pair`` and ``validation`` choose."""
    per_pair: int | None = None
    validation: float | None = None

    def composed(self) -> Composed:
        """All sections, checked."""
        data = {"per_pair": self.per_pair, "validation": self.validation}
        return compose(
            self.benchmark,
            self.split,
            {"data": _given(data), "schedule": _given({"seed": self.seed})},
        )

    def schedule(self, composed: Composed, classes: Sequence[str] = ()) -> pd.DataFrame:
        """Which class-domain pairs each session brings: the committed table where there is one.

        Without names of classes, their numbers do. A rule that these numbers of classes and domains
        cannot satisfy is one line.
        """
        committed = schedules_folder() / f"{self.benchmark}_{self.split}.csv"
        if self.seed is None and committed.is_file():
            return pd.read_csv(committed)
        try:
            names = classes or placeholders(composed.data)
            return make_schedule(composed.schedule, names, composed.data.domains)
        except UserError as error:
            raise UserError(f"{self.benchmark} has no split {self.split}: {error}") from None


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def placeholders(data: Data) -> list[str]:
    """The names of the classes, as far as they are known before the data come."""
    return data.class_names or [f"class {number}" for number in range(data.classes)]


@dataclass(frozen=True)
class Offer:
    """A benchmark with the number of sessions of every split that it has."""

    composed: Composed
    sessions: dict[str, int]


def offers() -> Iterator[Offer]:
    """All benchmarks, in alphabetical order."""
    for benchmark in benchmarks():
        sessions = {}
        for split in splits():
            choice = Choice(benchmark, split)
            composed = choice.composed()
            try:
                sessions[split] = int(choice.schedule(composed)["session"].max())
            except UserError:  # a rule for other numbers of domains
                continue
        yield Offer(composed, sessions)


def use_carried_sources() -> None:
    """Let the sources find their addresses and checksums where this installation has them."""
    from dacr.data.sources import upstream

    upstream.TABLE = conf_folder() / "sources.yaml"


def download_size(data: Data) -> int | None:
    """The bytes that the sources of a benchmark take on their way; None where one has no address.

    Files without a published size do not count.
    """
    from dacr.data.sources.upstream import published_sources

    use_carried_sources()
    files: dict[str, int] = {}
    for name in data.sources:
        if published := published_sources().get(name):
            if not published.releases:
                return None
            files |= {file.name: file.size or 0 for file in published.releases[0].files}
    return sum(files.values())
