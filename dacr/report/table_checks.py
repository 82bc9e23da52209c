"""Tables whose rows should have a known value: measured beside expected, and how far off."""

from __future__ import annotations

from collections.abc import Callable

from dacr.evaluation.formats import NOTHING, decimals
from dacr.experiments.records import Record
from dacr.experiments.results import Results
from dacr.experiments.tables import Row
from dacr.report.html import Card, Field, Sheet
from dacr.report.table_figures import budget_cells, has_budgets, signed, with_deviation, words

OK = "ok"


def verdict(mean: float | None, row: Row) -> Field:
    """``ok``, ``off by`` so much, or nothing yet."""
    if row.expected is None or mean is None:
        return Field("to be measured" if row.expected else NOTHING)
    off, digits = mean - row.expected.value, decimals(row.expected.metric)
    if abs(off) <= row.expected.within:
        return Field(OK, {"class": "better"})
    return Field(f"off by {signed(off, digits)}", {"class": "worse"})


def expectation(row: Row) -> str:
    if row.expected is None:
        return NOTHING
    digits = decimals(row.expected.metric)
    return f"{row.expected.value:.{digits}f} ± {row.expected.within:g}"


def check_sheet(results: Results, seeds_of: Callable[[list[Record]], str | Field]) -> Sheet:
    """The rows in the order in which they are checked."""
    columns = ["", "benchmark", "split", "what", "expected", "measured", "seeds", "", "from"]
    counted = has_budgets(results)
    rows: list[list[str | Field]] = []
    for number, (key, row) in enumerate(results.rows.items(), start=1):
        split = row.split or ""
        metric = row.expected.metric if row.expected else results.table.metrics[0]
        own = results.number(key, split, metric)
        benchmark = results.paper.benchmark_name(row.benchmark or results.benchmark)
        costs = budget_cells(results.budget(key, split)) if counted else {}
        rows.append(
            [
                f"{number}. {row.label}",
                benchmark,
                split.upper(),
                words(metric),
                expectation(row),
                with_deviation(own.mean, own.deviation, decimals(metric)),
                seeds_of(results.records[key, split]) if own.seeds else NOTHING,
                verdict(own.mean, row),
                row.expected.source if row.expected else NOTHING,
                *costs.values(),
            ]
        )
    columns += [*budget_cells({})] if counted else []
    return Sheet("Measured beside expected", columns, rows, "numbers full words")


def check_cards(results: Results) -> list[Card]:
    """How many rows are as expected, and which is the first that is not."""
    off, measured = [], 0
    for number, (key, row) in enumerate(results.rows.items(), start=1):
        own = _measured(results, key, row)
        measured += own is not None
        if own is not None and verdict(own, row).text != OK:
            off.append(f"{number}. {row.label}, {verdict(own, row).text}")
    told = [f"{len(results.rows) - measured} to be measured"] * (measured < len(results.rows))
    told += [f"the first that is off: {off[0]}"] if off else []
    return [Card("rows are as expected", f"{measured - len(off)} of {len(results.rows)}", told)]


def _measured(results: Results, key: str, row: Row) -> float | None:
    metric = row.expected.metric if row.expected else results.table.metrics[0]
    return results.number(key, row.split or "", metric).mean
