"""A table's numbers: ours over the seeds, the paper's beside them, and the gain of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, stdev

from dacr.experiments.plan import ALWAYS, composed, counts, experiment_of
from dacr.experiments.published import other_settings
from dacr.experiments.records import Record, Store, read_results, results_path, write_results
from dacr.experiments.tables import Paper, Row, Table

Cells = dict[tuple[str, str], list[Record]]
"""(row, split) → its experiments, one per seed"""


@dataclass(frozen=True)
class Number:
    """A metric in one cell of the table."""

    mean: float | None
    deviation: float | None
    """Over seeds, with n − 1; None with fewer than two."""
    seeds: int
    gain: float | None
    """Over the row's host, on the seeds that both have."""
    gain_deviation: float | None
    gain_seeds: int
    paper: float | None
    paper_deviation: float | None
    paper_gain: float | None
    difference: float | None
    """Ours minus the paper's; None where the paper's number is of another experiment."""


@dataclass(frozen=True)
class Results:
    """All that is known of a table on a benchmark."""

    paper: Paper
    table: Table
    benchmark: str
    rows: dict[str, Row]
    reference: str | None
    found: Cells = field(repr=False)
    older: frozenset[str] = frozenset()
    """The experiments that were measured with other code or settings than the committed ones."""
    plain: frozenset[str] = frozenset()
    """The rows that are a method as the benchmark's own configuration has it."""

    @cached_property
    def records(self) -> Cells:
        """What is shown: methods with all their seeds, settings of one on those that all have."""
        settings = self.table.grid is not None or isinstance(self.table.rows, dict)
        return on_shared_seeds(self.found) if settings else self.found

    @property
    def reference_name(self) -> str | None:
        return None if self.reference is None else self.paper.benchmark_name(self.reference)

    @cached_property
    def other_settings(self) -> list[str]:
        """What the benchmark's configuration has that the paper does not, for a host and ours."""
        if self.reference is None:
            return []
        methods = {self.paper.has_ours(row.method): row.method for row in self.rows.values()}
        found = [
            words
            for method in methods.values()
            for words in other_settings(
                self.paper, composed(self.benchmark, self.table.splits[0], method), self.reference
            )
        ]
        return list(dict.fromkeys(found))

    @property
    def comparable(self) -> bool:
        """Whether the paper's numbers are of the same experiment, so that a difference means it."""
        return self.reference == self.benchmark and not self.other_settings

    @property
    def has_gains(self) -> bool:
        return any(row.host for row in self.rows.values())

    @property
    def all_records(self) -> list[Record]:
        unique = {r.name: r for own in self.records.values() for r in own}
        return list(unique.values())

    @property
    def measured(self) -> list[tuple[str, str, Record]]:
        """All that was found: (row's key, row's label, record) in the table's order."""
        return [
            (key, self.rows[key].label, record)
            for (key, _), own in self.found.items()
            for record in own
        ]

    def values(self, row: str, split: str, metric: str) -> dict[int, float]:
        """seed → value"""
        own = self.records.get((row, split), [])
        return {r.seed: r.metrics[metric] for r in own if metric in r.metrics}

    def number(self, row: str, split: str, metric: str) -> Number:
        own = list(self.values(row, split, metric).values())
        mean = fmean(own) if own else None
        theirs = self._paper(row, split, metric)
        gains = self._gains(row, split, metric)
        return Number(
            mean=mean,
            deviation=deviation(own),
            seeds=len(own),
            gain=fmean(gains) if gains else None,
            gain_deviation=deviation(gains),
            gain_seeds=len(gains),
            paper=theirs,
            paper_deviation=self.table.deviation(metric, self.reference or "", split, row),
            paper_gain=self._paper_gain(row, split, metric),
            difference=minus(mean, theirs) if self.comparable else None,
        )

    def _paper(self, row: str, split: str, metric: str) -> float | None:
        if self.reference is None:
            return None
        return self.table.number(metric, self.reference, split, row)

    def _gains(self, row: str, split: str, metric: str) -> list[float]:
        host = self.rows[row].host
        if host is None:
            return []
        own, hosts = self.values(row, split, metric), self.values(host, split, metric)
        return [own[seed] - hosts[seed] for seed in own.keys() & hosts.keys()]

    def _paper_gain(self, row: str, split: str, metric: str) -> float | None:
        host = self.rows[row].host
        hosts = self._paper(host, split, metric) if host else None
        return minus(self._paper(row, split, metric), hosts)


def on_shared_seeds(found: Cells) -> Cells:
    """The seeds that all measured rows of a split have; all seeds where none is shared.

    Settings differ by less than seeds do: three seeds beside one would show the seeds.
    """
    shared = {
        split: set[int].intersection(
            *({r.seed for r in own} for (_, of), own in found.items() if of == split and own)
        )
        for split in {split for (_, split), own in found.items() if own}
    }
    return {
        (row, split): [r for r in own if r.seed in shared[split] or not shared[split]]
        for (row, split), own in found.items()
    }


def minus(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def deviation(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def results_of(paper: Paper, table: Table, benchmark: str, store: Store) -> Results:
    """Everything that was measured for the table, whichever command asked for it."""
    rows = paper.rows(table, benchmark)
    found: Cells = {}
    older: set[str] = set()
    plain: set[str] = set()
    common = ALWAYS.keys() | table.benchmark_overrides.get(benchmark, {}).keys()
    for split in table.splits:
        for key, row in rows.items():
            experiment = experiment_of(table, row, benchmark, split, seed=0)
            own = store.of_stem(experiment.stem, table.details, experiment.code)
            found[key, split] = [r for r in own if counts(r, table, experiment)]
            older |= {r.name for r in found[key, split] if r.code != experiment.code}
            plain |= {key} if dict(experiment.overrides).keys() <= common else set()
    reference = paper.reference(table, benchmark)
    return Results(
        paper, table, benchmark, rows, reference, found, frozenset(older), frozenset(plain)
    )


def commit_results(results: Results) -> None:
    """Write what was found, and keep what the files have beyond it.

    A row that left the table, or that other code measured, is not shown; it was measured all the
    same.
    """
    table, benchmark = results.table.name, results.benchmark
    path = results_path(table, benchmark, "json")
    shown = {record.name for _, _, record in results.measured}
    before = read_results(path) if path.exists() else []
    others = [("", "", record) for record in before if record.name not in shown]
    write_results(table, benchmark, [*results.measured, *others], results.table.details)
