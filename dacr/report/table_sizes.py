"""Tables whose rows are run at several sizes of a parameter: sheets, and curves with intervals."""

from __future__ import annotations

from collections.abc import Callable

from dacr.evaluation.formats import NOTHING, decimals
from dacr.experiments.gains import Gain
from dacr.experiments.records import Record
from dacr.experiments.results import Results
from dacr.experiments.tables import Axis, Size, size_text, sized_key
from dacr.report.charts import Line, line_chart
from dacr.report.html import Field, Figure, Sheet
from dacr.report.table_figures import (
    COSTS,
    bars,
    budget_cells,
    colour_of,
    has_budgets,
    interval,
    signed,
    with_deviation,
    words,
)

MOST_LINES = 6
"""More settings than these are read as bars, size by size."""

Cell = Callable[[str, str, str], str | Field]
"""(row at a size, split, metric) → what stands in the sheet"""


def base_rows(results: Results) -> list[str]:
    """The rows, whatever their sizes."""
    places = [row.place for row in results.rows.values() if row.place]
    return list(dict.fromkeys(place.row for place in places))


def size_sheets(results: Results, metric: str, cell: Cell, what: str) -> list[Sheet]:
    """Settings down. Splits across, a sheet for each size; with one split sizes across."""
    splits, found = results.table.splits, []
    for axis in results.table.along:
        sizes = axis.of(results.benchmark)
        if len(splits) == 1:
            places = [(axis.words(size), size, splits[0]) for size in sizes]
            found.append(
                _sheet(results, f"{splits[0].upper()}, {what}", metric, cell, axis, places)
            )
            continue
        for size in sizes:
            places = [(split.upper(), size, split) for split in splits]
            label = f"{axis.words(size)}, {what}"
            found.append(_sheet(results, label, metric, cell, axis, places))
    return found


def _sheet(
    results: Results,
    label: str,
    metric: str,
    cell: Cell,
    axis: Axis,
    places: list[tuple[str, Size, str]],
) -> Sheet:
    rows: list[list[str | Field]] = []
    for row in base_rows(results):
        keys = [(sized_key(row, axis, size), split) for _, size, split in places]
        rows.append([results.label(keys[0][0]), *(cell(key, s, metric) for key, s in keys)])
    return Sheet(label, ["", *(heading for heading, _, _ in places)], rows)


def value_cells(results: Results, about: Callable[[str, list[Record]], str | Field]) -> Cell:
    """Mean and deviation; ``about`` adds what is to be told of the experiments."""

    def cell(key: str, split: str, metric: str) -> str | Field:
        own = results.number(key, split, metric)
        text = with_deviation(own.mean, own.deviation, decimals(metric))
        return about(text, results.records[key, split]) if own.seeds else NOTHING

    return cell


def gain_cells(results: Results) -> Cell:
    """A gain with its interval, and over which host it is where there are several."""

    def cell(key: str, split: str, metric: str) -> str:
        gain, digits = results.number(key, split, metric).gain, decimals(metric)
        if gain is None:
            return NOTHING
        text = signed(gain.mean, digits)
        if gain.interval:
            text += f" ({interval(gain, digits)})"
        several = len(results.rows[key].hosts) > 1
        return f"{text} over {results.label(gain.over)}" if several else text

    return cell


def cost_cells(results: Results) -> Cell:
    """What a row costs at a size, for the accuracies above."""

    def cell(key: str, split: str, metric: str) -> str:
        budget = results.budget(key, split)
        costs = budget_cells(budget)
        return ", ".join(costs[name] for name in COSTS) if budget else NOTHING

    return cell


def sheets(
    results: Results, about: Callable[[str, list[Record]], str | Field] = lambda text, _: text
) -> list[Sheet]:
    """Every metric, and the gains of those that claims are about."""
    found = []
    for metric in results.table.metrics:
        found += size_sheets(results, metric, value_cells(results, about), words(metric))
        if metric in results.table.claims and results.has_gains:
            title = f"gain in {words(metric)}"
            found += size_sheets(results, metric, gain_cells(results), title)
            found += rank_sheets(results, metric, title)
    if has_budgets(results):
        found += size_sheets(results, "", cost_cells(results), " and ".join(COSTS))
    return found


def rank_sheets(results: Results, metric: str, title: str) -> list[Sheet]:
    """Wilcoxon's signed-rank test of the gains of all splits, sizes and seeds."""
    digits = decimals(metric)
    rows = [
        [
            label,
            signed(own.median, digits),
            str(own.pairs),
            f"{own.p:.2g}{'' if own.significant else ' n.s.'}",
        ]
        for label, own in results.rank_tests(metric).items()
    ]
    columns = ["", "median", "pairs", "p (signed-rank)"]
    return [Sheet(f"All splits and sizes, {title}", columns, rows)] if rows else []


# -- charts -----------------------------------------------------------------------------------


def size_figures(results: Results, split: str) -> list[Figure | None]:
    """Curves over the sizes of each parameter; of many settings bars at each size."""
    rows, table = base_rows(results), results.table
    found: list[Figure | None] = []
    for axis in table.along:
        if len(rows) <= MOST_LINES:
            found += [_values(results, rows, axis, split, metric) for metric in table.claims]
            found += [_gains(results, rows, axis, split, metric) for metric in table.claims]
            continue
        for size in axis.of(results.benchmark):
            keys = [sized_key(row, axis, size) for row in rows]
            where = f", {axis.words(size)}"
            found += [bars(results, keys, split, own, where) for own in table.claims]
    return found


def _values(
    results: Results, rows: list[str], axis: Axis, split: str, metric: str
) -> Figure | None:
    lines = []
    for row in rows:
        keys = [sized_key(row, axis, size) for size in axis.of(results.benchmark)]
        own = [(i, results.number(key, split, metric)) for i, key in enumerate(keys)]
        points = [(float(i), number.mean, number.deviation) for i, number in own]
        around = [None if d is None or y is None else (y - d, y + d) for _, y, d in points]
        line = [(x, y) for x, y, _ in points if y is not None]
        kept = [own for own, (_, y, _) in zip(around, points, strict=True) if y is not None]
        if line:
            lines.append(Line(results.label(keys[0]), line, colour_of(results, keys[0]), kept))
    text = f"{split.upper()}: {words(metric)} over {axis.symbol}"
    return _chart(
        results, lines, axis, words(metric), f"{text}; the whiskers are one standard deviation."
    )


def _gains(results: Results, rows: list[str], axis: Axis, split: str, metric: str) -> Figure | None:
    """The gains of "w/ ours" alone where there are some, with their 95 % intervals."""
    sizes = axis.of(results.benchmark)
    several = [row for row in rows if len(results.rows[sized_key(row, axis, sizes[0])].hosts) > 1]
    lines = []
    for row in several or rows:
        keys = [sized_key(row, axis, size) for size in sizes]
        gains: list[Gain | None] = [results.number(key, split, metric).gain for key in keys]
        points = [(float(i), gain.mean) for i, gain in enumerate(gains) if gain]
        if points:
            reach = [gain.interval for gain in gains if gain]
            lines.append(Line(results.label(keys[0]), points, colour_of(results, keys[0]), reach))
    whose = f"gain of {' and '.join(line.name for line in lines)}"
    text = f"{split.upper()}: {whose} in {words(metric)} over {axis.symbol}"
    return _chart(
        results, lines, axis, "gain, points", f"{text}; the whiskers are 95 % intervals.", 0.0
    )


def _chart(
    results: Results, lines: list[Line], axis: Axis, y_name: str, caption: str, *also: float
) -> Figure | None:
    if not lines:
        return None
    heights = [y for line in lines for y in line.reach] + [*also]
    labels = {float(i): size_text(size) for i, size in enumerate(axis.of(results.benchmark))}
    y_range = min(heights), max(heights)
    return line_chart(lines, caption, y_name, y_range, x_name=axis.symbol, x_labels=labels)
