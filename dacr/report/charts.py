"""Small charts as inline SVG.

Colours are CSS classes and ``currentColor``, so that a chart follows the page into dark mode; every
mark carries its numbers in a ``<title>``. A line can be told from the others without its colour, by
its dashes and the shape of its marks; so can a group of dots, by their shape, full or hollow. All
text is escaped: names come from user data. Matplotlib has none of this: its SVG has fixed colours,
no tooltips, and bytes that change with its version.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pandas as pd
from markupsafe import Markup

from dacr.evaluation.formats import NOTHING
from dacr.report.html import Figure, sheet_of

WIDTH, HEIGHT = 480, 260
LEFT, TOP, BOTTOM = 50, 14, 42
END_VALUES, NO_END_VALUES = 72, 16  # room at the right
MOST_MARKS = 24  # of a line: more would touch each other and hide its dashes
PALETTE = 15
GROUPS = 12  # of dots that shape and filling can tell apart
SHAPES = (  # of marks, from their centre; each as heavy to the eye as the circle
    "m-3.9 0a3.9 3.9 0 1 0 7.8 0a3.9 3.9 0 1 0-7.8 0z",  # circle
    "m-3.5-3.5h7v7h-7z",  # square
    "m0-5.2l4.7 7.9h-9.4z",  # triangle
    "m0-5.6l4.2 5.6l-4.2 5.6l-4.2-5.6z",  # diamond
    "m0 5.2l4.7-7.9h-9.4z",  # triangle, on its tip
    "m0-2l2.6-2.6l2 2l-2.6 2.6l2.6 2.6l-2 2l-2.6-2.6l-2.6 2.6l-2-2l2.6-2.6l-2.6-2.6l2-2z",  # cross
)
KEY_WIDTH, KEY_HEIGHT = 37, 14  # four dashes, the mark between the inner two
NAMES, COLUMN = 168.0, 58.0  # beside horizontal bars: room for names, and for a column of values
WRAP, LEADING = 24, 13.0  # of the names: characters per line, and from line to line


@dataclass(frozen=True)
class Line:
    """A series of (x, y), drawn in the palette's colour number ``colour``."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    intervals: Sequence[tuple[float, float] | None] = ()
    """From where to where each point may be, as whiskers."""

    @property
    def reach(self) -> list[float]:
        """All heights that the line has to have room for."""
        return [y for _, y in self.points] + [end for own in self.intervals if own for end in own]


@dataclass(frozen=True)
class Bar:
    """A horizontal bar with its standard deviation, and the paper's value as a mark on it."""

    name: str
    value: float | None
    colour: int | None
    """None stays in the background."""
    deviation: float | None = None
    paper: float | None = None


# -- primitives -------------------------------------------------------------------------------


def element(tag: str, *inside: str, **attributes: object) -> Markup:
    """``class_`` is written class; a float has one decimal; None leaves an attribute out."""
    words = [
        Markup(' {}="{}"').format(
            name.rstrip("_").replace("_", "-"), f"{v:.1f}" if isinstance(v, float) else v
        )
        for name, v in attributes.items()
        if v is not None
    ]
    content = Markup("").join(inside)
    return Markup("<{0}{1}>{2}</{0}>").format(tag, Markup("").join(words), content)


def drawing(
    label: str, body: Iterable[Markup], height: float = HEIGHT, width: float = WIDTH
) -> Markup:
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *body, class_="chart", viewBox=box, role="img", aria_label=label)


def paint(colour: int | None) -> str | None:
    """The style that gives an element the palette's colour, which its CSS uses as currentColor."""
    return None if colour is None else f"color:var(--c{colour % PALETTE})"


def text_at(x: float, y: float, text: str, css: str, colour: int | None = None) -> Markup:
    return element("text", text, x=float(x), y=float(y), class_=css, style=paint(colour))


def look(colour: int) -> tuple[str, str]:
    """The shape of a line's marks and how it is drawn: both together only this colour has.

    The shapes of the odd colours begin half-way, so that a chart's first six lines have six shapes.
    The last colours are dotted.
    """
    pair, odd = divmod(colour % PALETTE, 2)
    if colour % PALETTE >= GROUPS:
        return SHAPES[(2 * (colour % PALETTE - GROUPS) + 3) % len(SHAPES)], "dotted"
    return SHAPES[(pair + odd * len(SHAPES) // 2) % len(SHAPES)], "dashed" if odd else ""


def _path(css: str, colour: int | None, d: str, title: str = "") -> Markup:
    inside = [element("title", title)] if title else []
    return element("path", *inside, class_=css, style=paint(colour), d=d)


def _stroke(colour: int, d: str) -> Markup:
    return _path(f"line {look(colour)[1]}".strip(), colour, d)


def _mark(colour: int, x: float, y: float, title: str = "") -> Markup:
    return _path("point", colour, f"M{x:.1f} {y:.1f}{look(colour)[0]}", title)


def _dots(colour: int, places: Iterable[tuple[float, float]], title: str = "") -> Markup:
    shape, drawn = look(colour)
    d = "".join(f"M{x:.0f} {y:.0f}{shape}" for x, y in places)
    return _path("dots hollow" if drawn == "dashed" else "dots", colour, d, title)


def _bar(corners: tuple[float, float, float, float], colour: int | None, title: str = "") -> Markup:
    x, y, width, height = corners
    css = "quiet" if colour is None else "mark"
    inside = element("title", title)
    return element(
        "rect", inside, class_=css, style=paint(colour), x=x, y=y, width=width, height=height
    )


def key(colour: int) -> Markup:
    """A line in a legend: a piece of it with a mark, as the chart draws them."""
    middle = KEY_HEIGHT / 2
    line = _stroke(colour, f"M0 {middle:g}h{KEY_WIDTH}")
    return _sample("key", KEY_WIDTH, line + _mark(colour, KEY_WIDTH / 2, middle))


def swatch(colour: int) -> Markup:
    """An area in a legend."""
    return element("span", class_="swatch", style=paint(colour))


def dot(colour: int) -> Markup:
    """A group of dots in a legend."""
    middle = KEY_HEIGHT / 2
    return _sample("swatch dot", KEY_HEIGHT, _dots(colour, [(middle, middle)]))


def _sample(css: str, width: int, mark: Markup) -> Markup:
    return element("svg", mark, class_=css, width=width, height=KEY_HEIGHT, aria_hidden="true")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers, evenly spaced, from at or below ``low`` to at or above ``high``."""
    span = high - low if high - low > 1e-6 * max(1.0, abs(low)) else 1.0
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((power * factor for factor in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def percent_range(lowest: float) -> tuple[float, float]:
    """Percentages up to 100; from 0, unless that would press the curves against the top."""
    return (max(0.0, lowest - 10.0) if lowest > 50.0 else 0.0, 100.0)


def short(value: float) -> str:
    """A number with as few characters as a chart needs."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3g}"


# -- lines and upright bars -------------------------------------------------------------------


@dataclass(frozen=True)
class _Axes:
    """Where data lands on the drawing: x in [x_low, x_high], y over the range of its ticks."""

    x_low: float
    x_high: float
    y_ticks: list[float]
    right: float

    def x(self, value: float) -> float:
        width = WIDTH - LEFT - self.right
        return LEFT + width * (value - self.x_low) / ((self.x_high - self.x_low) or 1.0)

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    def draw(self, x_name: str, y_name: str, x_labels: Mapping[float, str]) -> list[Markup]:
        edge, floor = WIDTH - self.right, HEIGHT - BOTTOM
        turn = f"translate(11 {(TOP + floor) / 2}) rotate(-90)"
        heights = [(self.y(tick), short(tick)) for tick in self.y_ticks]
        return [
            *(element("line", class_="grid", x1=LEFT, x2=edge, y1=y, y2=y) for y, _ in heights),
            *(text_at(LEFT - 6, y + 4, text, "tick end") for y, text in heights),
            *(text_at(self.x(x), floor + 17, text, "tick mid") for x, text in x_labels.items()),
            text_at((LEFT + edge) / 2, HEIGHT - 6, x_name, "axis mid"),
            element("text", y_name, transform=turn, class_="axis mid"),
        ]


def line_chart(
    lines: Sequence[Line],
    caption: str,
    y_name: str,
    y_range: tuple[float, float] | None = None,
    *,
    x_name: str = "session",
    x_ticks: Iterable[float] | None = None,
    x_labels: Mapping[float, str] | None = None,
    dividers: Iterable[float] = (),
    end_values: bool = True,
) -> Figure:
    """Lines over a common x axis; ``dividers`` are dotted verticals, as between sessions.

    With ``x_labels`` the places on the axis have names."""
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for y in line.reach]
    right = END_VALUES if end_values else NO_END_VALUES
    axes = _Axes(xs[0], xs[-1], ticks(*(y_range or (min(0.0, *ys), max(ys)))), right)
    named = x_labels or {x: short(x) for x in (xs if x_ticks is None else x_ticks)}
    body = axes.draw(x_name, y_name, named)
    for x in map(axes.x, dividers):
        body.append(element("line", class_="divider", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM))
    for line in lines:
        body += _line(line, axes, x_name, x_labels or {})
    if end_values:
        body += _end_values(lines, axes)
    return Figure(
        caption, drawing(caption, body), [(key(line.colour), line.name) for line in lines]
    )


def _line(line: Line, axes: _Axes, x_name: str, x_labels: Mapping[float, str]) -> list[Markup]:
    """A line and its marks; of many points some are marked, on each line others."""
    path = "M" + "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in line.points)
    step = math.ceil(len(line.points) / MOST_MARKS)
    whiskers = [
        _path(
            "whisker own",
            line.colour,
            f"M{axes.x(x):.1f} {axes.y(own[0]):.1f}V{axes.y(own[1]):.1f}",
        )
        for (x, _), own in zip(line.points, line.intervals, strict=False)
        if own
    ]
    marks = [
        _mark(
            line.colour,
            axes.x(x),
            axes.y(y),
            f"{line.name}, {x_name} {x_labels.get(x) or short(x)}: {y:.4g}",
        )
        for x, y in line.points[line.colour % step :: step]
    ]
    return [_stroke(line.colour, path), *whiskers, *marks]


def _end_values(lines: Sequence[Line], axes: _Axes) -> Iterable[Markup]:
    """Each line's last value, with its mark: pushed apart, it may not be beside its line's end."""
    edge = WIDTH - axes.right
    values = [line.points[-1][1] for line in lines]
    for line, value, y in zip(lines, values, _apart([*map(axes.y, values)]), strict=True):
        yield _mark(line.colour, edge + 15, y, f"{line.name}: {value:.4g}")
        yield text_at(edge + 24, y + 4, short(round(value, 3)), "value", line.colour)


def _apart(positions: Sequence[float], gap: float = 14.0) -> list[float]:
    """The positions, pushed apart until neighbours are ``gap`` away, and not below the axis."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = list(positions)
    for above, below in pairwise(order):
        placed[below] = max(placed[below], placed[above] + gap)
    lowest = float(HEIGHT - BOTTOM)
    for i in reversed(order):
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - gap
    return placed


def lines_by_session(
    table: pd.DataFrame,
    names: Mapping[str, str],
    caption: str,
    y_name: str,
    y_range: tuple[float, float],
) -> Figure:
    """The columns ``names`` of a table with one row per session, as lines."""
    lines = [
        Line(name, list(zip(table["session"], table[column].astype(float), strict=True)), colour)
        for colour, (column, name) in enumerate(names.items())
    ]
    return replace(line_chart(lines, caption, y_name, y_range), numbers=sheet_of(table))


def bars_by_session(
    table: pd.DataFrame, names: Mapping[str, str], caption: str, y_name: str, *, stacked: bool
) -> Figure:
    """The columns ``names`` of a table with one row per session: bars side by side or stacked."""
    rows = table[list(names)].astype(float).to_numpy().tolist()
    top = max(sum(row) if stacked else max(row) for row in rows)
    axes = _Axes(0.0, len(rows), ticks(0.0, top), NO_END_VALUES)
    sessions = [str(session) for session in table["session"]]
    body = axes.draw("session", y_name, {i + 0.5: text for i, text in enumerate(sessions)})
    wide = 0.72 / (1 if stacked else len(names))
    for i, (session, row) in enumerate(zip(sessions, rows, strict=True)):
        base = 0.0
        for slot, (name, value) in enumerate(zip(names.values(), row, strict=True)):
            left = i + 0.14 + (0.0 if stacked else slot * wide)
            x, y = axes.x(left), axes.y(base + value)
            corners = x, y, axes.x(left + wide) - x, axes.y(base) - y
            body.append(_bar(corners, slot, f"session {session}, {name}: {value:.4g}"))
            base += value if stacked else 0.0
    legend = [(swatch(colour), name) for colour, name in enumerate(names.values())]
    return Figure(caption, drawing(caption, body), legend, numbers=sheet_of(table))


# -- horizontal bars --------------------------------------------------------------------------


def bar_chart(
    bars: Sequence[Bar],
    caption: str,
    digits: int,
    values_are: str = "measured",
    bound: float | None = None,
) -> Figure:
    """Horizontal bars from zero; values below zero grow to the left. The values stand in columns
    at the right, so that none is read as that of a mark that happens to be near. A dotted line
    shows how far the bars could reach, the ``bound``."""
    labels = [textwrap.wrap(bar.name, WRAP, max_lines=2, placeholder=" …") for bar in bars]
    step, head = 26.0 if max(map(len, labels)) == 1 else 34.0, 18.0
    columns = [values_are] + ["◇ paper"] * any(bar.paper is not None for bar in bars)
    places = [WIDTH - COLUMN * i for i in reversed(range(len(columns)))]
    reach = [(bar.value, bar.deviation or 0.0) for bar in bars] + [(bar.paper, 0.0) for bar in bars]
    ends = [end for v, around in reach if v is not None for end in (v - around, v + around)]
    axis = ticks(min(0.0, *ends), max(0.0, *ends))
    scale = (WIDTH - NAMES - COLUMN * len(columns) - 8) / (axis[-1] - axis[0])
    height = head + step * len(bars)

    def x(value: float) -> float:
        return NAMES + scale * (value - axis[0])

    body = [element("line", class_="grid", x1=x(t), x2=x(t), y1=head, y2=height) for t in axis]
    body += [text_at(x(t), height + 16, short(t), "tick mid") for t in axis]
    body += [text_at(at, 11, name, "tick end") for at, name in zip(places, columns, strict=True)]
    for i, (bar, words) in enumerate(zip(bars, labels, strict=True)):
        middle = head + (i + 0.5) * step
        values = [(bar.value, "value end"), (bar.paper, "tick end")]
        for at, (value, css) in zip(places, values, strict=False):
            text = NOTHING if value is None else f"{value:.{digits}f}"
            body.append(text_at(at, middle + 4, text, css))
        first = middle + 4 - LEADING / 2 * (len(words) - 1)
        body += [
            text_at(NAMES - 8, first + LEADING * j, word, "tick end")
            for j, word in enumerate(words)
        ]
        if bar.value is not None:
            left, right = sorted((x(0.0), x(bar.value)))
            corners = left, middle - 8, right - left, 16.0
            body.append(_bar(corners, bar.colour, f"{bar.name}: {bar.value:.2f}"))
        if bar.value is not None and bar.deviation:
            low, high = x(bar.value - bar.deviation), x(bar.value + bar.deviation)
            body.append(_path("whisker", None, f"M{low:.1f} {middle:.1f}H{high:.1f}"))
        if bar.paper is not None:
            diamond = f"M{x(bar.paper):.1f} {middle - 6:.1f}l6 6l-6 6l-6 -6z"
            body.append(_path("diamond", None, diamond, f"{bar.name}, the paper: {bar.paper:.2f}"))
    if bound is not None:
        body.append(element("line", class_="divider", x1=x(bound), x2=x(bound), y1=head, y2=height))
    return Figure(caption, drawing(caption, body, height + 26.0))


# -- dots -------------------------------------------------------------------------------------


def scatter(
    points: pd.DataFrame, column: str, names: Sequence[str], label: str, size: float = WIDTH
) -> Markup:
    """The places ``x``, ``y`` in the plane without axes; the groups by ``column`` have the colours
    and shapes of ``names`` in turn."""
    low, high = points[["x", "y"]].min(), points[["x", "y"]].max()
    scale = (size - 32) / ((high - low).max() or 1.0)
    placed = (points[["x", "y"]] - (low + high) / 2) * scale + size / 2
    body = [
        _dots(colour, own.itertuples(index=False), name)
        for colour, name in enumerate(names)
        if len(own := placed[points[column] == name])
    ]
    return drawing(label, body, size, size)


def scatter_legend(names: Sequence[str]) -> list[tuple[Markup, str]]:
    """None where groups share colours: it would not tell them apart."""
    return [(dot(i), name) for i, name in enumerate(names)] if len(names) <= GROUPS else []


def scatters_by_session(
    points: pd.DataFrame, sessions: Iterable[int], column: str, names: Sequence[str], title: str
) -> Figure:
    """A small chart per session."""
    small = []
    for session in sessions:
        own, caption = points[points["session"] == session], f"Session {session}"
        chart = scatter(own, column, names, caption, 240)
        small.append((chart, caption if len(own) else f"{caption}: not seen yet"))
    return Figure(title=title, legend=scatter_legend(names), small=small)
