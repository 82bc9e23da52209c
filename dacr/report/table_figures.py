"""The tables and charts of the paper's tables: a method has the same colour in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from dacr.evaluation.formats import NOTHING, decimals, scaled
from dacr.experiments.gains import Gain
from dacr.experiments.records import Record
from dacr.experiments.results import Results
from dacr.experiments.tables import size_text
from dacr.report.charts import (
    Bar,
    Line,
    bar_chart,
    line_chart,
    percent_range,
    scatters_by_session,
)
from dacr.report.html import Field, Figure, Sheet, percent_map

# A host and its 'w/ ours' have colours that are near each other: UCIR's are blues, GeoDL's greens,
# DER's pink, orange, red. Hosts have odd colours, which lines draw dashed; fair hosts are dotted.
METHOD_COLOURS = {
    "finetune": 1, "joint": 6, "replay": 5, "icarl": 4, "eeil": 3, "meta_dr": 10,
    "ucir": 9, "ucir_fair": 12, "ucir_dacr": 0, "geodl": 7, "geodl_fair": 13, "geodl_dacr": 2,
    "der": 11, "der_fair": 14, "der_dacr": 8,
}  # fmt: skip
OTHER_ROWS = (10, 2, 0, 6, 7, 4, 3, 9, 5, 1, 11, 8)
MEASURED, PAPER = 8, 5
SINGLE = (0, 1, 3, 5, 7)  # the classes that the paper's figures show alone
CURVES = {
    "accuracy_by_session": "accuracy, %",
    "components_by_session": "components per class",
    "purity_by_session": "purity",
}


def words(metric: str) -> str:
    return metric.replace("_", " ")


# -- numbers ----------------------------------------------------------------------------------


def with_deviation(mean: float | None, deviation: float | None, digits: int, sign: str = "") -> str:
    if mean is None:
        return NOTHING
    about = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{mean:{sign}.{digits}f}{about}"


def signed(value: float | None, digits: int, deviation: float | None = None) -> str:
    return with_deviation(value, deviation, digits, sign="+")


def signed_gain(gain: Gain | None, digits: int) -> str:
    return NOTHING if gain is None else signed(gain.mean, digits, gain.deviation)


def interval(gain: Gain | None, digits: int) -> str:
    """Of the gain's mean; n.s. where 0 is inside."""
    if gain is None or gain.interval is None:
        return NOTHING
    low, high = (f"{end:+.{digits}f}" for end in gain.interval)
    return f"{low} … {high}" + ("" if gain.significant else " n.s.")


def metric_sheet(
    results: Results, split: str, metric: str, seeds_of: Callable[[list[Record]], str | Field]
) -> Sheet:
    """A metric of every row on a split; ``seeds_of`` gives the text about a row's experiments."""
    digits, gains = decimals(metric), results.has_gains
    bounded = results.has_headroom(split, metric)
    rows: list[list[str | Field]] = []
    for key, row in results.rows.items():
        own = results.number(key, split, metric)
        told: dict[str, str | Field] = {"": row.label}
        told["measured"] = with_deviation(own.mean, own.deviation, digits)
        told["seeds"] = seeds_of(results.records[key, split]) if own.seeds else NOTHING
        if bounded:
            told["headroom"] = signed_gain(own.headroom, digits)
        if gains:
            told["gain"] = signed_gain(own.gain, digits)
            told["95 % interval"] = interval(own.gain, digits)
        if results.has_fair_hosts:
            told["over"] = results.rows[own.gain.over].label if own.gain else NOTHING
            told["over published"] = signed_gain(own.published_gain, digits)
        if results.reference:
            theirs = with_deviation(own.paper, own.paper_deviation, digits)
            told[f"paper, {results.reference_name}"] = theirs
        if results.reference and gains:
            told["paper's gain"] = signed(own.paper_gain, digits)
        if results.comparable:
            told["difference"] = signed(own.difference, digits)
        if "accuracy" in metric and has_budgets(results):
            told |= budget_cells(results.budget(key, split))
        rows.append([*told.values()])
    return Sheet(f"{split.upper()}, {words(metric)}", [*told], rows)


def has_budgets(results: Results) -> bool:
    """Whether some row was counted; records of older versions were not."""
    return any(results.budget(key, split) for key, split in results.records)


COSTS = ("parameters", "training")
"""The columns of ``budget_cells`` where there is no room for all."""


def budget_cells(budget: Mapping[str, float]) -> dict[str, str]:
    """What an accuracy cost, in the columns beside it."""
    return {
        "parameters": scaled(budget.get("parameters")),
        "exemplars": scaled(budget.get("exemplar_bytes"), "B"),
        "trained on": scaled(budget.get("images_trained")),
        "training": scaled(budget.get("training_flops"), "FLOP"),
    }


def detail_sheets(results: Results, split: str, detail: str) -> list[Sheet]:
    """What a page draws, in numbers: a curve per row, or a map of classes and domains per row."""
    if detail == "accuracy_by_arrival":
        return arrival_maps(results, split)
    curves = {key: own for key in results.rows if (own := curve(results, key, split, detail))}
    if not curves:
        return []
    sessions = range(1, 1 + max(map(len, curves.values())))
    digits = decimals(detail)
    rows = [
        [results.rows[key].label, *(f"{value:.{digits}f}" for value in own)]
        for key, own in curves.items()
    ]
    return [Sheet(f"{split.upper()}, {words(detail)}", ["", *map(str, sessions)], rows)]


# -- charts -----------------------------------------------------------------------------------


def colour_of(results: Results, row: str) -> int:
    """A method's own colour where the row is nothing but the method; of the others one each."""
    series = {series_of(results, key): own for key, own in results.rows.items()}
    plain = {
        key: METHOD_COLOURS[own.method]
        for key, own in series.items()
        if own.method in METHOD_COLOURS and len(own.overrides) == 1 + (own.place is not None)
    }
    name = series_of(results, row)
    if name in plain:
        return plain[name]
    left = [colour for colour in OTHER_ROWS if colour not in plain.values()]
    others = [key for key in series if key not in plain]
    return left[others.index(name) % len(left)]


def series_of(results: Results, row: str) -> str:
    """What a row is called at whatever size of a parameter."""
    place = results.rows[row].place
    return place.row if place else row


def curve(results: Results, row: str, split: str, detail: str) -> list[float] | None:
    """A list by session, averaged over the seeds; None if they had different sessions."""
    own = [record.details[detail] for record in results.records[row, split]]
    return mean([value["after"] if isinstance(value, dict) else value for value in own])


def mean(lists: Sequence[Sequence[float]]) -> list[float] | None:
    """Place by place; None where the lists are of different lengths, or there are none."""
    if len({len(own) for own in lists}) != 1:
        return None
    return [sum(at) / len(at) for at in zip(*lists, strict=True)]


def figures(results: Results, split: str) -> list[Figure | None]:
    """The charts of a split that the table's metrics and details call for."""
    table = results.table
    drawn: list[Figure | None] = []
    if table.grid:
        drawn += [own for metric in table.metrics for own in over_values(results, split, metric)]
    elif not {"embedding", "accuracy_by_arrival"} & set(table.details):
        drawn += [bars(results, results.rows, split, metric) for metric in table.claims]
    left_out = {"accuracy_by_session"} if table.grid else set()
    shown = [name for name in CURVES if name in table.details and name not in left_out]
    return [*drawn, *(curves(results, split, detail) for detail in shown)]


def curves(results: Results, split: str, detail: str) -> Figure | None:
    """A curve per row, over the sessions of a split."""
    lines = [
        Line(row.label, list(enumerate(map(float, values), start=1)), colour_of(results, key))
        for key, row in results.rows.items()
        if (values := curve(results, key, split, detail))
    ]
    if not lines:
        return None
    lowest = min(y for line in lines for _, y in line.points)
    y_name = CURVES[detail]
    y_range = percent_range(lowest) if "%" in y_name else None
    caption = f"{split.upper()}: {y_name}, after each session; the mean of the seeds."
    return line_chart(lines, caption, y_name, y_range)


def bars(
    results: Results, keys: Iterable[str], split: str, metric: str, where: str = ""
) -> Figure | None:
    """A bar per row; ``where`` says what all of them have in common."""
    numbers = {key: results.number(key, split, metric) for key in keys}
    rows = [
        Bar(results.label(key), own.mean, colour_of(results, key), own.deviation, own.paper)
        for key, own in numbers.items()
        if own.mean is not None or own.paper is not None
    ]
    if all(row.value is None for row in rows):
        return None
    caption = f"{split.upper()}{where}: {words(metric)}."
    if any(row.deviation for row in rows):
        caption += " The whiskers are one standard deviation over the seeds."
    if any(row.paper is not None for row in rows):
        caption += f" The diamonds are the paper's, of {results.reference_name}."
    joint = results.upper_bound if results.has_headroom(split, metric) else None
    bound = results.number(joint, split, metric).mean if joint else None
    if bound is not None:
        caption += " The dotted line is joint training: the space up to it is the headroom."
    return bar_chart(rows, caption, decimals(metric), bound=bound)


def over_values(results: Results, split: str, metric: str) -> list[Figure]:
    """The metric over the values of the table's parameter, ours and the paper's: one chart if they
    share values."""
    grid = results.table.grid
    if grid is None:
        return []
    own = [
        (float(value or 0), found)
        for value in grid.of(results.benchmark)
        if (found := results.number(size_text(value), split, metric).mean) is not None
    ]
    theirs = [
        (float(key), value)
        for key, value in results.table.column(metric, results.reference or "", split).items()
        if key not in results.table.rows
    ]
    lines = [
        Line("measured", own, MEASURED),
        Line(f"paper, {results.reference_name}", theirs, PAPER),
    ]
    shared = {x for x, _ in own} & {x for x, _ in theirs}
    charts = [lines] if shared else [[line] for line in lines if line.points]
    return [_over_values(chart, grid.symbol, metric, split) for chart in charts]


def _over_values(lines: Sequence[Line], symbol: str, metric: str, split: str) -> Figure:
    heights = [y for line in lines for _, y in line.points]
    room = max(1.0, 0.15 * (max(heights) - min(heights)))
    whose = " and ".join(line.name for line in lines)
    caption = f"{split.upper()}: {words(metric)} over {symbol} ({whose})."
    y_range = max(0.0, min(heights) - room), max(heights) + room
    return line_chart(lines, caption, words(metric), y_range, x_name=symbol)


# -- maps and features ------------------------------------------------------------------------


def arrival_maps(results: Results, split: str) -> list[Sheet]:
    """Final accuracy of each class's domains, from the first it met to the last; a map per row."""
    maps = []
    for key, row in results.rows.items():
        own = [record.details["accuracy_by_arrival"] for record in results.records[key, split]]
        common = [c for c in own[0] if all(c in seed for seed in own)] if own else []
        means = {c: at for c in common if (at := mean([seed[c] for seed in own]))}
        if means:
            maps.append(arrival_map(means, f"{row.label}, measured, %"))
    published = results.table.arrival.get(results.reference or "", {}).get(split, {})
    for key, classes in published.items():
        whose = f"{results.rows[key].label}, the paper, {results.reference_name}, %"
        maps.append(arrival_map(classes, whose))
    return maps


def arrival_map(classes: dict[str, list[float]], label: str) -> Sheet:
    values = pd.DataFrame({name: pd.Series(own) for name, own in classes.items()}).T
    values.loc["mean"] = values.mean()
    columns = [str(i + 1) for i in range(values.shape[1])]
    columns[0] += " oldest"
    columns[-1] += " newest"
    return percent_map(label, "class", values.set_axis(columns, axis=1))


def embeddings(results: Results, split: str) -> list[Figure]:
    """Session by session: all images by class, by domain, and some classes alone by domain."""
    records = [r for row in results.rows for r in results.records[row, split]][:1]
    if not records:
        return []
    points = pd.DataFrame(records[0].details["embedding"])
    classes, domains = (records[0].data[key] for key in ("classes", "domains"))
    sessions = sorted(points["session"].unique())
    figures = [
        scatters_by_session(points, sessions, column, names, f"All classes, by {column}")
        for column, names in (("class", classes), ("domain", domains))
    ]
    for only in [classes[i] for i in SINGLE if i < len(classes)]:
        own, title = points[points["class"] == only], f"Class {only} alone, by domain"
        figures.append(scatters_by_session(own, sessions, "domain", domains, title))
    return figures
