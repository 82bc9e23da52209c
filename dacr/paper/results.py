"""A table's numbers: ours over the seeds, the paper's beside them, and the gain of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dacr.paper.plan import experiment_of
from dacr.paper.records import Record, Store, write_results
from dacr.paper.spec import Paper, Row, Table


@dataclass(frozen=True)
class Number:
    """A metric in one cell of the table."""

    mean: float | None
    deviation: float | None
    """Over seeds, with n − 1; None with fewer than two."""
    seeds: int
    gain: float | None
    """Over the row's host, on the seeds that both have."""
    paper: float | None
    paper_deviation: float | None
    paper_gain: float | None
    difference: float | None
    """Ours minus the paper's; None where the paper's number is of another benchmark."""


@dataclass(frozen=True)
class Results:
    """All that is known of a table on a benchmark."""

    paper: Paper
    table: Table
    benchmark: str
    rows: dict[str, Row]
    reference: str | None
    records: dict[tuple[str, str], list[Record]] = field(repr=False)
    """(row, split) → its experiments, one a seed"""

    @property
    def all_records(self) -> list[Record]:
        unique = {r.name: r for own in self.records.values() for r in own}
        return list(unique.values())

    @property
    def measured(self) -> list[tuple[str, str, Record]]:
        """(row's key, row's label, record) in the table's order."""
        return [
            (key, self.rows[key].label, record)
            for (key, _), own in self.records.items()
            for record in own
        ]

    def values(self, row: str, split: str, metric: str) -> dict[int, float]:
        """seed → value"""
        own = self.records.get((row, split), [])
        return {r.seed: r.metrics[metric] for r in own if metric in r.metrics}

    def number(self, row: str, split: str, metric: str) -> Number:
        own = list(self.values(row, split, metric).values())
        mean = sum(own) / len(own) if own else None
        theirs = self._paper(row, split, metric)
        same = self.reference == self.benchmark
        return Number(
            mean=mean,
            deviation=deviation(own),
            seeds=len(own),
            gain=self._gain(row, split, metric),
            paper=theirs,
            paper_deviation=self.table.deviation(metric, self.reference or "", split, row),
            paper_gain=self._paper_gain(row, split, metric),
            difference=minus(mean, theirs) if same else None,
        )

    def _paper(self, row: str, split: str, metric: str) -> float | None:
        if self.reference is None:
            return None
        return self.table.number(metric, self.reference, split, row)

    def _gain(self, row: str, split: str, metric: str) -> float | None:
        host = self.rows[row].host
        if host is None:
            return None
        own, hosts = self.values(row, split, metric), self.values(host, split, metric)
        gains = [own[seed] - hosts[seed] for seed in own.keys() & hosts.keys()]
        return sum(gains) / len(gains) if gains else None

    def _paper_gain(self, row: str, split: str, metric: str) -> float | None:
        host = self.rows[row].host
        hosts = self._paper(host, split, metric) if host else None
        return minus(self._paper(row, split, metric), hosts)


def minus(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def deviation(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def results_of(paper: Paper, table: Table, benchmark: str, store: Store) -> Results:
    """Everything that was measured for the table, whichever command asked for it."""
    rows = paper.rows(table, benchmark)
    records = {
        (key, split): store.of_stem(
            experiment_of(table, row, benchmark, split, seed=0).stem, table.details
        )
        for split in table.splits
        for key, row in rows.items()
    }
    reference = paper.reference(table, benchmark)
    return Results(paper, table, benchmark, rows, reference, records)


def commit_results(results: Results) -> None:
    write_results(results.table.name, results.benchmark, results.measured, results.table.details)
