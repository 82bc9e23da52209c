"""The charts of the paper's tables: a method has the same colour and place in all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dacr.experiments.results import Results
from dacr.report.charts import (
    WIDTH,
    Line,
    drawing,
    label_at,
    line_chart,
    number,
    paint,
    scatter,
    ticks,
)
from dacr.report.figures import Cell, Figure, Grid, dot_legend, grid_of, line_legend
from dacr.report.headline import decimals

# A host and its 'w/ ours' have colours that are near each other: UCIR's are two blues, GeoDL's two
# greens, DER's a pink and a red. Hosts have odd colours, which lines draw dashed.
COLOURS = {
    "replay": 5, "icarl": 4, "eeil": 3, "meta_dr": 10,
    "ucir": 9, "ucir_dacr": 0, "geodl": 7, "geodl_dacr": 2, "der": 11, "der_dacr": 8,
}  # fmt: skip
OTHER_ROWS = (10, 2, 0, 6, 7, 4, 3, 9, 5, 1, 11, 8)
MEASURED, PAPER = 8, 5
SINGLE = (0, 1, 3, 5, 7)  # the classes that the paper's figures show alone
LABEL, LINE = 24, 13.0  # of a bar's label: characters a line, and from line to line
COLUMN = 58.0  # of values beside bars


def colour_of(results: Results, row: str) -> int:
    """A method's own colour where the row is nothing but the method; of the others one each."""
    plain = {
        key: COLOURS[own.method]
        for key, own in results.rows.items()
        if own.method in COLOURS and len(own.overrides) == 1
    }
    if row in plain:
        return plain[row]
    left = [colour for colour in OTHER_ROWS if colour not in plain.values()]
    others = [key for key in results.rows if key not in plain]
    return left[others.index(row) % len(left)]


def curve(results: Results, row: str, split: str, detail: str) -> list[float] | None:
    """A list by session, averaged over the seeds; None if they had different sessions."""
    own = [record.details[detail] for record in results.records[row, split]]
    return mean([value["after"] if isinstance(value, dict) else value for value in own])


def mean(lists: Sequence[Sequence[float]]) -> list[float] | None:
    """Place by place; None where the lists are of different lengths, or there are none."""
    if len({len(own) for own in lists}) != 1:
        return None
    return [sum(at) / len(at) for at in zip(*lists, strict=True)]


def by_session(
    results: Results, split: str, detail: str, y_name: str, percent: bool
) -> Figure | None:
    """A curve a row, over the sessions of a split."""
    lines = [
        Line(row.label, list(enumerate(map(float, values), start=1)), colour_of(results, key))
        for key, row in results.rows.items()
        if (values := curve(results, key, split, detail))
    ]
    if not lines:
        return None
    heights = [y for line in lines for _, y in line.points]
    low = max(0.0, min(heights) - 5.0) if percent else 0.0
    sessions = range(1, max(len(line.points) for line in lines) + 1)
    caption = f"{split.upper()}: {y_name}, after each session; the mean of the seeds."
    chart = line_chart(
        lines,
        label=caption,
        x_name="session",
        y_name=y_name,
        y_range=(low, 100.0 if percent else max(heights)),
        x_labels=[(t, str(t)) for t in sessions],
    )
    return Figure(chart, caption, line_legend(lines))


# -- bars -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MarkedBar:
    """Ours as a bar with its spread, the paper's as a mark on it."""

    name: str
    value: float | None
    spread: float | None
    paper: float | None
    colour: int

    def ends(self) -> list[float]:
        """How far what is drawn for it reaches."""
        reach = self.spread or 0.0
        own = [] if self.value is None else [self.value - reach, self.value + reach]
        return own if self.paper is None else [*own, self.paper]


def bars(results: Results, split: str, metric: str) -> Figure | None:
    rows = []
    for key, row in results.rows.items():
        own = results.number(key, split, metric)
        if own.mean is not None or own.paper is not None:
            colour = colour_of(results, key)
            rows.append(MarkedBar(row.label, own.mean, own.deviation, own.paper, colour))
    if not any(row.value is not None for row in rows):
        return None
    caption = f"{split.upper()}: {metric.replace('_', ' ')}."
    if any(row.spread for row in rows):
        caption += " The whiskers are one standard deviation over the seeds."
    if any(row.paper is not None for row in rows):
        of = results.paper.benchmark_name(results.reference or "")
        caption += f" The diamonds are the paper's, of {of}."
    return Figure(marked_bars(rows, label=caption, digits=decimals(metric)), caption, [])


def marked_bars(rows: Sequence[MarkedBar], *, label: str, digits: int) -> Markup:
    """Horizontal bars from zero; values below zero grow to the left. The values stand in columns
    at the right, so that none is read as that of a mark that happens to be near."""
    labels = [_lines(row.name) for row in rows]
    step, names, head, foot = 26.0 if max(map(len, labels)) == 1 else 34.0, 168.0, 18.0, 26.0
    columns = ["measured"] + ["◇ paper"] * any(row.paper is not None for row in rows)
    places = [WIDTH - COLUMN * i for i in reversed(range(len(columns)))]
    ends = [end for row in rows for end in row.ends()]
    axis = ticks(min(0.0, *ends), max(0.0, *ends))
    scale = (WIDTH - names - COLUMN * len(columns) - 8) / (axis[-1] - axis[0])

    def x(value: float) -> float:
        return names + scale * (value - axis[0])

    height = head + step * len(rows)
    grid = Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2:.1f}"/>')
    body = [grid.format(x(t), head, height) for t in axis]
    body += [label_at(x(t), height + 16, number(t), "tick mid") for t in axis]
    body += [label_at(at, 11, name, "tick end") for at, name in zip(places, columns, strict=True)]
    for i, (row, lines) in enumerate(zip(rows, labels, strict=True)):
        middle = head + (i + 0.5) * step
        values = [(row.value, "value end"), (row.paper, "tick end")][: len(places)]
        for at, (value, css) in zip(places, values, strict=True):
            text = "–" if value is None else f"{value:.{digits}f}"
            body.append(label_at(at, middle + 4, text, css))
        first = middle + 4 - LINE / 2 * (len(lines) - 1)
        body += [
            label_at(names - 8, first + LINE * j, line, "tick end") for j, line in enumerate(lines)
        ]
        body += _bar(row, middle - 11, x)
    return drawing(label, body, height + foot)


def _lines(name: str) -> list[str]:
    """A label beside a bar, on two lines at most."""
    return textwrap.wrap(name, LABEL, max_lines=2, placeholder=" …")


def _bar(row: MarkedBar, y: float, x: Callable[[float], float]) -> Iterable[Markup]:
    if row.value is not None:
        left, right = sorted((x(0.0), x(row.value)))
        what = f"{row.name}: {row.value:.2f}"
        rectangle = Markup(
            '<rect class="mark" style="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="16">'
            "<title>{}</title></rect>"
        )
        yield rectangle.format(paint(row.colour), left, y + 3, right - left, what)
        if row.spread:
            whisker = Markup('<path class="whisker" d="M{:.1f} {:.1f}H{:.1f}"/>')
            yield whisker.format(x(row.value - row.spread), y + 11, x(row.value + row.spread))
    if row.paper is not None:
        diamond = Markup(
            '<path class="diamond" d="M{0:.1f} {1:.1f}l6 6l-6 6l-6 -6z"><title>{2}</title></path>'
        )
        yield diamond.format(x(row.paper), y + 5, f"{row.name}, the paper: {row.paper:.2f}")


# -- a parameter along the x axis -------------------------------------------------------------


def over_grid(results: Results, split: str, metric: str) -> list[Figure]:
    """The metric over the grid's values, ours and the paper's: one chart if they share values."""
    grid = results.table.grid
    if grid is None:
        return []
    own = [
        (float(value), mean)
        for value in grid.of(results.benchmark)
        if (mean := results.number(f"{value:g}", split, metric).mean) is not None
    ]
    theirs = [
        (float(key), value)
        for key, value in results.table.column(metric, results.reference or "", split).items()
        if key not in results.table.rows
    ]
    ours = Line("measured", own, MEASURED)
    paper = Line(f"paper, {results.paper.benchmark_name(results.reference or '')}", theirs, PAPER)
    if own and theirs and {x for x, _ in own} & {x for x, _ in theirs}:
        return [_grid_chart([ours, paper], grid.symbol, metric, split)]
    return [
        _grid_chart([line], grid.symbol, metric, split) for line in (ours, paper) if line.points
    ]


def _grid_chart(lines: Sequence[Line], symbol: str, metric: str, split: str) -> Figure:
    heights = [y for line in lines for _, y in line.points]
    room = max(1.0, 0.15 * (max(heights) - min(heights)))
    name = metric.replace("_", " ")
    whose = " and ".join(line.name for line in lines)
    caption = f"{split.upper()}: {name} over {symbol} ({whose})."
    chart = line_chart(
        lines,
        label=caption,
        x_name=symbol,
        y_name=name,
        y_range=(max(0.0, min(heights) - room), max(heights) + room),
        x_labels=[(x, number(x)) for x in sorted({x for line in lines for x, _ in line.points})],
    )
    return Figure(chart, caption, line_legend(lines))


# -- heat maps of old and new domains ---------------------------------------------------------


def arrival_grids(results: Results, split: str) -> list[Grid]:
    """Final accuracy of each class's domains, from the first it met to the last; a map a row."""
    grids = []
    for key, row in results.rows.items():
        own = [record.details["accuracy_by_arrival"] for record in results.records[key, split]]
        common = [c for c in own[0] if all(c in seed for seed in own)] if own else []
        means = {c: at for c in common if (at := mean([seed[c] for seed in own]))}
        if means:
            grids.append(arrival_grid(means, f"{row.label}, measured, %"))
    for key, classes in (
        results.table.arrival.get(results.reference or "", {}).get(split, {}).items()
    ):
        name = results.paper.benchmark_name(results.reference or "")
        grids.append(arrival_grid(classes, f"{results.rows[key].label}, the paper, {name}, %"))
    return grids


def arrival_grid(classes: dict[str, list[float]], label: str) -> Grid:
    most = max(map(len, classes.values()))
    columns = [str(i + 1) for i in range(most)]
    columns[0] += " oldest"
    columns[-1] += " newest"
    means = {
        "mean": [
            sum(column) / len(column)
            for i in range(most)
            if (column := [values[i] for values in classes.values() if len(values) > i])
        ]
    }
    cells = {
        (name, column): Cell(
            f"{value:.0f}", (value / 100.0) ** 2, f"{name}, {column}: {value:.2f} %"
        )
        for name, values in (classes | means).items()
        for column, value in zip(columns, values, strict=False)
    }
    return grid_of(cells, label, "class", [*classes, "mean"], columns)


# -- t-SNE ------------------------------------------------------------------------------------


def embeddings(results: Results, split: str) -> list[tuple[str, list[Figure]]]:
    """Session by session: all images by class, by domain, and some classes alone by domain."""
    records = [r for row in results.rows for r in results.records[row, split]][:1]
    if not records:
        return []
    points = records[0].details["embedding"]
    classes, domains = (records[0].data[key] for key in ("classes", "domains"))
    single = [(classes[i], "domain", domains) for i in SINGLE if i < len(classes)]
    views = [(None, "class", classes), (None, "domain", domains), *single]
    return [
        (
            f"Class {only} alone, by domain" if only else f"All classes, by {column}",
            [_cloud(points, t, only, column, names) for t in sorted(set(points["session"]))],
        )
        for only, column, names in views
    ]


def _cloud(
    points: dict[str, list[object]],
    session: object,
    only: str | None,
    column: str,
    names: list[str],
) -> Figure:
    rows = [dict(zip(points, values, strict=True)) for values in zip(*points.values(), strict=True)]
    rows = [r for r in rows if r["session"] == session and only in (None, r["class"])]
    groups = [
        (name, [(float(str(r["x"])), float(str(r["y"]))) for r in rows if r[column] == name])
        for name in names
    ]
    caption = f"Session {session}"
    if not rows:
        return Figure(drawing(caption, [], 240, 240), f"{caption}: not seen yet", [])
    return Figure(scatter(groups, label=caption, size=240), caption, dot_legend(names))
