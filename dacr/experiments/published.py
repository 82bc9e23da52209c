"""The paper's numbers beside a run's, and whether the two can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dacr.experiments.reading import lookup
from dacr.experiments.tables import Paper, Row, Table

PUBLISHED = "published set"  # the kind of an origin that is the data set as its authors gave it
AVERAGE = "average_incremental_accuracy"


@dataclass(frozen=True)
class PaperNumbers:
    """What the paper says about this run's benchmark and split."""

    method: str
    """The method in the paper's words."""
    reason: str | None
    """Why the numbers cannot be compared; None when they can."""
    values: dict[str, float]
    """The paper's value of each metric that it reports for this benchmark, split and method."""
    table: list[tuple[str, float]]
    """Table 1's column of this benchmark and split: (the paper's word for a method, average)."""


def compare(paper: Paper, params: dict[str, Any], benchmark: dict[str, Any]) -> PaperNumbers:
    """The paper beside the experiment of ``params`` on ``benchmark`` (``benchmark.json``)."""
    reported = {metric: _value(paper, metric, params) for metric in paper.report}
    table = _column(paper, params)
    return PaperNumbers(
        method=paper.label(params["method"]),
        reason=_reason(paper, params, benchmark, bool(table)),
        values={metric: value for metric, value in reported.items() if value is not None},
        table=table,
    )


def _tables(paper: Paper, metric: str) -> list[Table]:
    return [paper.tables[name] for name in paper.report[metric]]


def _column(paper: Paper, params: dict[str, Any]) -> list[tuple[str, float]]:
    """The first table that has averages of this benchmark and split, row by row."""
    name, split = params["benchmark"], params["split"]
    for table in _tables(paper, AVERAGE):
        if column := table.column(AVERAGE, name, split):
            rows = paper.rows(table, name)
            return [(rows[key].label, value) for key, value in column.items()]
    return []


def _value(paper: Paper, metric: str, params: dict[str, Any]) -> float | None:
    """The paper's value of the row that this run is; of several, the most particular one."""
    name, split = params["benchmark"], params["split"]
    for table in _tables(paper, metric):
        column = table.column(metric, name, split)
        rows = paper.rows(table, name)
        own = [key for key in column if _is(rows[key], params)]
        if own:
            return column[max(own, key=lambda key: len(rows[key].overrides))]
    return None


def _is(row: Row, params: dict[str, Any]) -> bool:
    return all(lookup(params, name) == value for name, value in row.overrides.items())


def _reason(
    paper: Paper, params: dict[str, Any], benchmark: dict[str, Any], in_paper: bool
) -> str | None:
    name = params["benchmark"]
    if name not in paper.settings:
        embedded = "embedded data, " if name.endswith("_mini") else ""
        return "; ".join([f"{embedded}not in the paper", *_other_kinds(benchmark)])
    if not in_paper:
        return "this split is not in the paper"
    if paper.is_bound(params["method"]):
        return "a bound, which the paper does not have"
    different = _other_data(benchmark) + other_settings(paper, params, name)
    return "; ".join(different) or None


def _other_kinds(benchmark: dict[str, Any]) -> list[str]:
    """Which sources are something else than the data sets that their authors published."""
    sources: dict[str, list[str]] = {}
    for source, origin in sorted(benchmark["origins"].items()):
        if origin["kind"] != PUBLISHED:
            sources.setdefault(origin["kind"], []).append(source)
    return [f"{', '.join(names)}: {kind}" for kind, names in sources.items()]


def _other_data(benchmark: dict[str, Any]) -> list[str]:
    """In what the images differ from those that the paper used."""
    expected = benchmark["paper"] or {}
    return _other_kinds(benchmark) + [
        f"{benchmark['counts'][part]} {part} images (paper {expected[part]})"
        for part in ("train", "test")
        if expected.get(part) not in (None, benchmark["counts"][part])
    ]


def other_settings(paper: Paper, params: dict[str, Any], benchmark: str) -> list[str]:
    """The parameters that differ from what the paper says for one of its benchmarks."""
    if paper.has_ours(params["method"]):
        own = paper.settings_of_ours
    else:  # a method has its own options, and not each has all
        options = {f"options.{name}" for name in params["options"]}
        own = {key: value for key, value in paper.settings_of_hosts.items() if key in options}
    wanted = paper.settings[benchmark] | own
    found = {key: lookup(params, key) for key in wanted}
    return [
        f"{key} {_word(found[key])} (paper {_word(wanted[key])})"
        for key in wanted
        if found[key] != wanted[key]
    ]


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower()
