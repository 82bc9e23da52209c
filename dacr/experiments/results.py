"""A table's numbers: ours over the seeds, the paper's beside them, and the gain of each.

The gain of a row is over the better of its hosts, split by split: the host as published, and the
same host with everything of ours that is not the paper's method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from dacr.evaluation.budget import NAMES
from dacr.evaluation.continual import intransigence, rows_of
from dacr.experiments.gains import Gain, RankTest, deviation, gain_over, rank_test
from dacr.experiments.images import TodaysImages
from dacr.experiments.plan import ALWAYS, composed, counts, experiment_of, hydra_texts
from dacr.experiments.published import other_settings
from dacr.experiments.records import Record, Store, read_results, results_path, write_results
from dacr.experiments.tables import Axis, Paper, Row, Size, Table, sized_key

INTRANSIGENCE, MATRIX, JOINT = "intransigence", "accuracy_matrix", "joint"
Cells = dict[tuple[str, str], list[Record]]
"""(row, split) → its experiments, one per seed"""


@dataclass(frozen=True)
class Number:
    """A metric in one cell of the table."""

    mean: float | None
    deviation: float | None
    """Over seeds, with n − 1; None with fewer than two."""
    seeds: int
    gain: Gain | None
    """Over the better of the row's hosts, on the seeds that both have."""
    published_gain: Gain | None
    """Over the first of several hosts, the one as published: what the paper compares with."""
    paper: float | None
    paper_deviation: float | None
    paper_gain: float | None
    headroom: Gain | None
    """Of joint training over the row, on the seeds that both have; of accuracies alone."""
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
    counted: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    """(row, split) → its budget, counted without its records, which may be older than budgets."""
    elsewhere: frozenset[str] = frozenset()
    """The experiments that were measured on other images, and are left out."""

    @cached_property
    def records(self) -> Cells:
        """What is shown: methods with all their seeds, settings of one on those that all have."""
        table = self.table
        settings = bool(table.splits) and (table.grid is not None or isinstance(table.rows, dict))
        return on_shared_seeds(self.found, self.rows) if settings else self.found

    @property
    def reference_name(self) -> str | None:
        return None if self.reference is None else self.paper.benchmark_name(self.reference)

    @cached_property
    def other_settings(self) -> list[str]:
        """What the benchmark's configuration has that the paper does not, for a host and ours."""
        if self.reference is None:
            return []
        methods = {
            self.paper.has_ours(row.method): row.method
            for row in self.rows.values()
            if not self.paper.is_fair(row.method)
        }
        common = hydra_texts(self.table.common_overrides(self.benchmark))
        found = [
            words
            for method in methods.values()
            for words in other_settings(
                self.paper,
                composed(self.benchmark, self.table.splits[0], method, *common),
                self.reference,
            )
        ]
        return list(dict.fromkeys(found))

    @property
    def comparable(self) -> bool:
        """Whether the paper's numbers are of the same experiment, so that a difference means it."""
        return self.reference == self.benchmark and not self.other_settings

    @property
    def has_gains(self) -> bool:
        return any(row.hosts for row in self.rows.values())

    @property
    def has_fair_hosts(self) -> bool:
        """Whether some row has several hosts, so that one has to say over which its gain is."""
        return any(len(row.hosts) > 1 for row in self.rows.values())

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
        if metric == INTRANSIGENCE:
            return intransigences(own, self.joint(split))
        return {r.seed: r.metrics[metric] for r in own if metric in r.metrics}

    def joint(self, split: str) -> list[Record]:
        """The experiments that train on everything seen so far, where the table has them."""
        rows = [key for key, row in self.rows.items() if row.method == JOINT]
        return [record for key in rows[:1] for record in self.records.get((key, split), [])]

    def budget(self, row: str, split: str) -> dict[str, float]:
        """What the row's experiments cost, the mean of its seeds; nothing where nobody counted."""
        own = self.records.get((row, split), [])
        known = [r.metrics for r in own if NAMES.keys() <= r.metrics.keys()]
        if not known:
            return dict(self.counted.get((row, split), {}))
        return {name: fmean(metrics[name] for metrics in known) for name in NAMES}

    def number(self, row: str, split: str, metric: str) -> Number:
        own = list(self.values(row, split, metric).values())
        mean = fmean(own) if own else None
        theirs = self._paper(row, split, metric)
        hosts = self.rows[row].hosts
        return Number(
            mean=mean,
            deviation=deviation(own),
            seeds=len(own),
            gain=self._gain(row, split, metric, *hosts),
            published_gain=self._gain(row, split, metric, hosts[0]) if len(hosts) > 1 else None,
            paper=theirs,
            paper_deviation=self.table.deviation(metric, self.reference or "", split, row),
            paper_gain=self._paper_gain(row, split, metric),
            headroom=self._headroom(row, split, metric),
            difference=minus(mean, theirs) if self.comparable else None,
        )

    def _paper(self, row: str, split: str, metric: str) -> float | None:
        if self.reference is None:
            return None
        return self.table.number(metric, self.reference, split, row)

    def _gain(self, row: str, split: str, metric: str, *hosts: str) -> Gain | None:
        found = {host: self.values(host, split, metric) for host in hosts}
        return gain_over(self.values(row, split, metric), found)

    @cached_property
    def upper_bound(self) -> str | None:
        """The key of the row that is joint training and nothing else."""
        bound = self.paper.upper_bound
        rows = (key for key, row in self.rows.items() if row.overrides == {"method": bound})
        return next(rows, None)

    def has_headroom(self, split: str, metric: str) -> bool:
        return any(self._headroom(row, split, metric) for row in self.rows)

    def _headroom(self, row: str, split: str, metric: str) -> Gain | None:
        bound = self.upper_bound
        if bound is None or row == bound or "accuracy" not in metric:
            return None
        return self._gain(bound, split, metric, row)

    def _paper_gain(self, row: str, split: str, metric: str) -> float | None:
        hosts = self.rows[row].hosts
        published = self._paper(hosts[0], split, metric) if hosts else None
        return minus(self._paper(row, split, metric), published)

    def gains(self, split: str, metric: str) -> dict[str, Gain]:
        """Of every row that has one."""
        found = {key: self.number(key, split, metric).gain for key in self.rows}
        return {key: gain for key, gain in found.items() if gain}

    def rank_tests(self, metric: str) -> dict[str, RankTest]:
        """By label: of the rows whose gains over all splits, sizes and seeds are enough for one."""
        table = self.table
        found: dict[str, list[float]] = {}
        # Along several parameters the benchmark's own size of each is the same experiment.
        several = len(table.along) == 1 or (len(table.splits) > 1 and not table.along)
        for split in table.splits if several else []:
            for key, gain in self.gains(split, metric).items():
                found.setdefault(self.label(key), []).extend(gain.by_seed.values())
        tests = {label: rank_test(differences) for label, differences in found.items()}
        return {label: test for label, test in tests.items() if test}

    def label(self, row: str) -> str:
        """Of a row, at whatever size of a parameter."""
        own = self.rows[row]
        return own.place.label if own.place else own.label

    def trend(self, row: str, axis: Axis, split: str, metric: str) -> Trend | None:
        """How a row's gain at the last measured size of a parameter differs from the first."""
        gains = {
            size: gain
            for size in axis.of(self.benchmark)
            if (gain := self.number(sized_key(row, axis, size), split, metric).gain)
        }
        if len(gains) < 2:
            return None
        (first, *_, last), (before, *_, after) = [*gains], [*gains.values()]
        change = gain_over(after.by_seed, {"": before.by_seed})
        return Trend(first, last, change) if change else None


def intransigences(own: Sequence[Record], joint: Sequence[Record]) -> dict[int, float]:
    """seed → how much worse than joint training sessions are learned, on the seeds of both.

    Records of older versions have no matrix of accuracies, and no value here.
    """
    matrices = [
        {r.seed: rows_of(r.details[MATRIX]) for r in records if MATRIX in r.details}
        for records in (own, joint)
    ]
    ours, theirs = matrices
    return {
        seed: intransigence(rows, theirs[seed])
        for seed, rows in ours.items()
        if seed in theirs and len(rows) == len(theirs[seed])
    }


@dataclass(frozen=True)
class Trend:
    """By how much a gain changes from one size of a parameter to another, seed by seed."""

    first: Size
    last: Size
    change: Gain


def on_shared_seeds(found: Cells, rows: dict[str, Row]) -> Cells:
    """The seeds that all measured rows of a split have; all seeds where none is shared.

    Settings differ by less than seeds do: three seeds beside one would show the seeds. Of rows at
    several values of a parameter those at one value are compared.
    """
    groups: dict[tuple[object, ...], list[set[int]]] = {}
    for (key, split), own in found.items():
        if own:
            groups.setdefault(_group(rows[key], split), []).append({r.seed for r in own})
    shared = {group: set[int].intersection(*seeds) for group, seeds in groups.items()}

    def kept(key: str, split: str, seed: int) -> bool:
        own = shared[_group(rows[key], split)]
        return seed in own or not own

    return {
        (key, split): [r for r in own if kept(key, split, r.seed)]
        for (key, split), own in found.items()
    }


def _group(row: Row, split: str) -> tuple[object, ...]:
    return (split, row.place and row.place.parameter, row.place and row.place.size)


def minus(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def results_of(paper: Paper, table: Table, benchmark: str, store: Store) -> Results:
    """Everything that was measured for the table, whichever command asked for it."""
    rows = paper.rows(table, benchmark)
    found: Cells = {}
    older: set[str] = set()
    plain: set[str] = set()
    elsewhere: set[str] = set()
    today = TodaysImages(store.every())
    common = ALWAYS.keys() | table.common_overrides(benchmark).keys()
    for split, key, row in paper.rows_by_split(table, benchmark):
        experiment = experiment_of(table, row, benchmark, split, seed=0)
        stem, code = experiment.stem, experiment.code
        own = store.of_stem(stem, table.details, code, today.include)
        found[key, split] = [r for r in own if counts(r, table, experiment)]
        elsewhere |= {r.name for r in store.of_stem(stem, table.details, code)}
        elsewhere -= {r.name for r in own}
        older |= {r.name for r in found[key, split] if r.code != experiment.code}
        plain |= {key} if dict(experiment.overrides).keys() <= common else set()
    reference = paper.reference(table, benchmark)
    return Results(
        paper,
        table,
        benchmark,
        rows,
        reference,
        found,
        frozenset(older),
        frozenset(plain),
        elsewhere=frozenset(elsewhere),
    )


def with_counted_budgets(results: Results, store: Store) -> Results:
    """The same with the budgets of rows whose records have none, counted as a plan counts them."""
    from dacr.experiments.budget import counted  # needs torch
    from dacr.experiments.plan import parameters_of
    from dacr.experiments.work import images_of

    records = list(store.records())
    found: dict[tuple[str, str], Mapping[str, float]] = {}
    for split, key, row in results.paper.rows_by_split(results.table, results.benchmark):
        if results.records.get((key, split)) and not results.budget(key, split):
            experiment = experiment_of(results.table, row, results.benchmark, split, seed=0)
            params = parameters_of(experiment)
            own = counted(params, images_of(params.data, records))
            found[key, split] = {name: own[name] for name in NAMES}
    return replace(results, counted=found)


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
