"""Small charts as inline SVG.

Colours are CSS classes and ``currentColor``, so that a chart follows the page into dark mode; every
mark carries its numbers in a ``<title>``. A line can be told from the others without its colour, by
its dashes and the shape of its marks; so can a group of dots, by their shape, full or hollow. All
text passes through ``Markup.format``, which escapes it: names come from user data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

WIDTH, HEIGHT = 480, 260
LEFT, TOP, BOTTOM = 50, 14, 42
END_VALUES, NO_END_VALUES = 72, 16  # room at the right
MOST_MARKS = 24  # of a line: more would touch each other and hide its dashes
COLOURS = 12
SHAPES = (  # of marks, from their centre; each as heavy to the eye as the circle
    "m-3.9 0a3.9 3.9 0 1 0 7.8 0a3.9 3.9 0 1 0-7.8 0z",  # circle
    "m-3.5-3.5h7v7h-7z",  # square
    "m0-5.2l4.7 7.9h-9.4z",  # triangle
    "m0-5.6l4.2 5.6l-4.2 5.6l-4.2-5.6z",  # diamond
    "m0 5.2l4.7-7.9h-9.4z",  # triangle, on its tip
    "m0-2l2.6-2.6l2 2l-2.6 2.6l2.6 2.6l-2 2l-2.6-2.6l-2.6 2.6l-2-2l2.6-2.6l-2.6-2.6l2-2z",  # cross
)
KEY_WIDTH, KEY_HEIGHT = 37, 14  # four dashes, the mark between the inner two


@dataclass(frozen=True)
class Line:
    """A series of (x, y), drawn in the palette's colour number ``colour``."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int


@dataclass(frozen=True)
class Bar:
    """One bar, or one layer of a stack."""

    name: str
    value: float
    colour: int


def paint(colour: int) -> str:
    """The style that gives an element the palette's colour, which its CSS uses as currentColor."""
    return f"color:var(--c{colour % COLOURS})"


def look(colour: int) -> tuple[str, bool]:
    """The shape of a line's marks and whether it is dashed: both together only this colour has.

    The shapes of the odd colours begin half-way, so that a chart's first six lines have six shapes.
    """
    pair, odd = divmod(colour % COLOURS, 2)
    return SHAPES[(pair + odd * len(SHAPES) // 2) % len(SHAPES)], bool(odd)


def _stroke(colour: int, path: str) -> Markup:
    css = "line dashed" if look(colour)[1] else "line"
    return Markup('<path class="{}" style="{}" d="{}"/>').format(css, paint(colour), path)


def _mark(colour: int, x: float, y: float, title: str | None = None) -> Markup:
    says = "" if title is None else Markup("<title>{}</title>").format(title)
    mark = Markup('<path class="point" style="{}" d="M{:.1f} {:.1f}{}">{}</path>')
    return mark.format(paint(colour), x, y, look(colour)[0], says)


def swatch(colour: int) -> Markup:
    """What a legend shows of an area."""
    return Markup('<span class="swatch" style="{}"></span>').format(paint(colour))


def dot(colour: int) -> Markup:
    """What a legend shows of a group of dots."""
    frame = Markup('<svg class="swatch dot" width="{0}" height="{0}" aria-hidden="true">{1}</svg>')
    middle = KEY_HEIGHT / 2
    return frame.format(KEY_HEIGHT, _dots(colour, [(middle, middle)]))


def key(colour: int) -> Markup:
    """What a legend shows of a line: a piece of it with a mark, as the chart draws them."""
    middle = KEY_HEIGHT / 2
    line = _stroke(colour, f"M0 {middle:g}h{KEY_WIDTH}")
    frame = Markup('<svg class="key" width="{}" height="{}" aria-hidden="true">{}</svg>')
    return frame.format(KEY_WIDTH, KEY_HEIGHT, line + _mark(colour, KEY_WIDTH / 2, middle))


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers, evenly spaced, from at or below ``low`` to at or above ``high``."""
    span = high - low if high - low > 1e-6 * max(1.0, abs(low)) else 1.0
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((power * factor for factor in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def number(value: float) -> str:
    """A number as short as it can be said in a chart."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.3g}"


def drawing(
    label: str, body: Iterable[Markup], height: float = HEIGHT, width: float = WIDTH
) -> Markup:
    frame = Markup('<svg class="chart" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}</svg>')
    return frame.format(width, height, label, Markup("").join(body))


def label_at(x: float, y: float, text: str, css: str, colour: int | None = None) -> Markup:
    style = "" if colour is None else Markup(' style="{}"').format(paint(colour))
    place = Markup('<text x="{:.1f}" y="{:.1f}" class="{}"{}>{}</text>')
    return place.format(x, y, css, style, text)


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

    def draw(self, x_name: str, y_name: str, x_labels: Sequence[tuple[float, str]]) -> list[Markup]:
        grid = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')
        upright = Markup(
            '<text transform="translate(11 {}) rotate(-90)" class="axis mid">{}</text>'
        )
        edge = WIDTH - self.right
        return [
            *(grid.format(LEFT, edge, self.y(t), self.y(t)) for t in self.y_ticks),
            *(label_at(LEFT - 6, self.y(t) + 4, number(t), "tick end") for t in self.y_ticks),
            *(label_at(self.x(x), HEIGHT - BOTTOM + 17, text, "tick mid") for x, text in x_labels),
            label_at((LEFT + edge) / 2, HEIGHT - 6, x_name, "axis mid"),
            upright.format((TOP + HEIGHT - BOTTOM) / 2, y_name),
        ]


def _spread(positions: Sequence[float], gap: float = 14.0) -> list[float]:
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


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_name: str,
    y_name: str,
    y_range: tuple[float, float],
    x_labels: Sequence[tuple[float, str]],
    dividers: Sequence[float] = (),
    end_values: bool = True,
) -> Markup:
    """Lines over a common x axis; ``dividers`` are dotted verticals, as between sessions."""
    xs = [x for line in lines for x, _ in line.points]
    right = END_VALUES if end_values else NO_END_VALUES
    axes = _Axes(min(xs), max(xs), ticks(*y_range), right)
    body = axes.draw(x_name, y_name, x_labels)
    for x in dividers:
        vertical = Markup('<line class="divider" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>')
        body.append(vertical.format(axes.x(x), TOP, HEIGHT - BOTTOM))
    for line in lines:
        body += _line(line, axes, x_name)
    if end_values:
        body += _end_values(lines, axes)
    return drawing(label, body)


def _end_values(lines: Sequence[Line], axes: _Axes) -> Iterable[Markup]:
    """Each line's last value, with its mark: pushed apart, it may not be beside its line's end."""
    edge = WIDTH - axes.right
    values = [line.points[-1][1] for line in lines]
    places = _spread([axes.y(value) for value in values])
    for line, value, y in zip(lines, values, places, strict=True):
        yield _mark(line.colour, edge + 15, y, f"{line.name}: {value:.4g}")
        yield label_at(edge + 24, y + 4, number(value), "value", line.colour)


def _line(line: Line, axes: _Axes, x_name: str) -> list[Markup]:
    """A line and its marks; of many points some are marked, on each line others."""
    path = "M" + "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in line.points)
    step = math.ceil(len(line.points) / MOST_MARKS)
    return [_stroke(line.colour, path)] + [
        _mark(line.colour, axes.x(x), axes.y(y), f"{line.name}, {x_name} {number(x)}: {y:.4g}")
        for x, y in line.points[line.colour % step :: step]
    ]


def bar_chart(
    groups: Sequence[tuple[str, Sequence[Bar]]],
    *,
    label: str,
    x_name: str,
    y_name: str,
    stacked: bool,
) -> Markup:
    """Groups of bars along the x axis, side by side or as one stack each."""
    tops = [
        sum(bar.value for bar in bars) if stacked else max(bar.value for bar in bars)
        for _, bars in groups
    ]
    axes = _Axes(0.0, float(len(groups)), ticks(0.0, max(tops)), NO_END_VALUES)
    body = axes.draw(x_name, y_name, [(i + 0.5, name) for i, (name, _) in enumerate(groups)])
    for i, (group, bars) in enumerate(groups):
        base = 0.0
        width = 0.72 if stacked else 0.72 / len(bars)
        for slot, bar in enumerate(bars):
            left = i + 0.14 + (0.0 if stacked else slot * width)
            corners = (left, base + bar.value), (left + width, base)
            what = f"{x_name} {group}, {bar.name}: {bar.value:.4g}"
            body.append(_rectangle(axes, corners, bar.colour, what))
            base += bar.value if stacked else 0.0
    return drawing(label, body)


def _rectangle(
    axes: _Axes, corners: tuple[tuple[float, float], tuple[float, float]], colour: int, what: str
) -> Markup:
    (left, top), (right, bottom) = ((axes.x(x), axes.y(y)) for x, y in corners)
    return Markup(
        '<rect class="mark" style="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
        "<title>{}</title></rect>"
    ).format(paint(colour), left, top, right - left, bottom - top, what)


def ranked_bars(rows: Sequence[tuple[str, float, bool]], *, label: str) -> Markup:
    """Horizontal bars with their names and values; the flagged ones stand out."""
    step, names = 25.0, 130.0
    longest = max(value for _, value, _ in rows) or 1.0
    body = []
    for i, (name, value, flagged) in enumerate(rows):
        y, width = i * step, (WIDTH - names - 56) * value / longest
        css, word = ("mark", "tick end strong") if flagged else ("quiet", "tick end")
        bar = Markup('<rect class="{}" style="{}" x="{}" y="{}" width="{:.1f}" height="17"/>')
        body.append(label_at(names - 8, y + 13.5, name, word))
        body.append(bar.format(css, paint(1), names, y + 1, width))
        body.append(label_at(names + width + 7, y + 13.5, f"{value:.2f}", "value"))
    return drawing(label, body, step * len(rows))


def scatter(
    groups: Sequence[tuple[str, Sequence[tuple[float, float]]]], *, label: str, size: float = WIDTH
) -> Markup:
    """Points in the plane without axes; a group is one path, with a colour and shape of its own."""
    points = [point for _, own in groups for point in own]
    lows, highs = ([f(p[axis] for p in points) for axis in (0, 1)] for f in (min, max))
    scale = (size - 32) / (max(high - low for low, high in zip(lows, highs, strict=True)) or 1.0)
    shift = [size / 2 - scale * (low + high) / 2 for low, high in zip(lows, highs, strict=True)]
    body = [
        _dots(colour, [(x * scale + shift[0], y * scale + shift[1]) for x, y in own], name)
        for colour, (name, own) in enumerate(groups)
        if own
    ]
    return drawing(label, body, size, size)


def _dots(colour: int, places: Sequence[tuple[float, float]], title: str = "") -> Markup:
    shape, odd = look(colour)
    path = Markup('<path class="{}" style="{}" d="{}">{}</path>')
    says = Markup("<title>{}</title>").format(title) if title else ""
    marks = "".join(f"M{x:.0f} {y:.0f}{shape}" for x, y in places)
    return path.format("dots hollow" if odd else "dots", paint(colour), marks, says)
