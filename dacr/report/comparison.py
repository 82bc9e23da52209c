"""A comparison of two experiments: a page, and in the terminal the same tables and a plot."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from rich.panel import Panel
from rich.text import Text

from dacr.evaluation.formats import NOTHING, UNITS
from dacr.experiments.comparison import Change, Comparison, Points, Side
from dacr.report.charts import Line, line_chart, percent_range, short, ticks
from dacr.report.html import Card, Field, Figure, PageSection, Sheet, render_page
from dacr.report.terminal import console_of, table_of

KICKER = "dacr · two experiments side by side"
"""What stands above the heading of every page, and tells that it is one."""
MIXTURE_CAPTIONS = {
    "components": "Components per class, after the reduction.",
    "purity": "Purity of the components on test images.",
}
SIDE_STYLES = ("cyan", "yellow")
MARKS = ("●", "○", "◉")
"""A session of A, of B, and of both in one place."""
PATHS = ("─", "┄")
LEVELS, MARGIN = 12, 8
NARROW = 60
AXIS = "  session"


def _described(side: Side) -> str:
    p = side.params
    what = f"{p['method']} on {p['benchmark']}, split {p['split'].upper()}, seed {p['seed']}"
    return f"{side.name}: {what}"


def params_sheet(comparison: Comparison) -> Sheet:
    rows = [[NOTHING if text is None else text for text in row] for row in comparison.params]
    return Sheet("Parameters that differ", ["parameter", "A", "B"], rows, "numbers left")


def changes_sheet(
    label: str, first: str, changes: Sequence[Change], verdicts: bool = True
) -> Sheet:
    """Without ``verdicts``, where there is little room, the colour alone tells."""
    columns = [first, "A", "B", "B − A"] + [""] * verdicts
    rows = []
    for change in changes:
        attributes = {"class": change.verdict} if change.verdict in ("better", "worse") else {}
        difference = Field(change.difference, {"data-difference": change.name, **attributes})
        name = f"{change.name.replace('_', ' ')} {change.wanted}".rstrip()
        verdict = Field(change.verdict, attributes)
        row: list[str | Field] = [name, change.a, change.b, difference, verdict]
        rows.append(row[: len(columns)])
    return Sheet(label, columns, rows)


# -- the page ---------------------------------------------------------------------------------


def render_comparison(comparison: Comparison) -> str:
    """The page: self-contained, without any script."""
    c = comparison
    domains = changes_sheet("Accuracy by domain after the last session, %", "domain", c.domains)
    params = Figure(sheet=params_sheet(c)) if c.params else Figure("The parameters are the same.")
    legend = (
        "↑ higher is better, ↓ lower is better. Accuracies in percent, forgetting in points "
        "(negative is forgetting), purities between 0 and 1."
    )
    accuracy = [accuracy_curves(c), Figure(sheet=domains) if c.domains else None]
    metrics = [Figure(legend, sheet=changes_sheet("All metrics", "metric", c.rows))]
    return render_page(
        "comparison.html.j2",
        [
            PageSection("accuracy", "Accuracy by session", accuracy),
            PageSection("domains", "Accuracy of each domain by session", domain_curves(c)),
            PageSection("mixtures", "Components and their purity by session", mixture_curves(c)),
            PageSection("parameters", "Parameters", [params], css="single"),
            PageSection("metrics", "Metrics", metrics, css="single"),
        ],
        a=c.a,
        b=c.b,
        lead=[_described(c.a), _described(c.b)],
        kicker=KICKER,
        incomparable=c.incomparable,
        warnings=c.warnings,
        cards=[_change_card(change) for change in c.headlines()],
    )


def _change_card(change: Change) -> Card:
    verdict = Markup('<b class="{1}">{0} {1}</b>').format(change.difference, change.verdict)
    return Card(
        change.name.replace("_", " ").capitalize(),
        change.b,
        [f"A has {change.a}", *([verdict] if change.difference else [])],
        UNITS.get(change.name, ""),
    )


def accuracy_curves(comparison: Comparison) -> Figure:
    both = _accuracies(comparison)
    caption = "Accuracy on the test images of everything seen so far, after each session."
    points = [list(enumerate(own, start=1)) for own in both]
    return _curves(comparison, points, caption, "accuracy, %", percent_range(min(map(min, both))))


def mixture_curves(comparison: Comparison) -> list[Figure]:
    """The curves of the mixtures, where both experiments have them and one has a mixture."""
    sides = comparison.a.curves, comparison.b.curves
    if all(count == 1 for curves in sides for _, count in curves["components"]):
        return []
    both = {name: [curves[name] for curves in sides] for name in MIXTURE_CAPTIONS}
    return [
        _curves(comparison, points, MIXTURE_CAPTIONS[name], name)
        for name, points in both.items()
        if all(points)
    ]


def domain_curves(comparison: Comparison) -> list[Figure]:
    """The accuracy of each domain that both have, from the session on that brings it."""
    a, b = comparison.a.domains, comparison.b.domains
    return [
        _curves(comparison, [a[name], b[name]], f"Accuracy of {name}.", "accuracy, %", (0.0, 100.0))
        for name in a
        if name in b and not comparison.incomparable
    ]


def _curves(
    comparison: Comparison,
    both: Sequence[Points],
    caption: str,
    y_name: str,
    y_range: tuple[float, float] | None = None,
) -> Figure:
    names = comparison.a.name, comparison.b.name
    lines = [Line(name, own, i) for i, (name, own) in enumerate(zip(names, both, strict=True))]
    return line_chart(lines, caption, y_name, y_range)


def _accuracies(comparison: Comparison) -> list[list[float]]:
    return [side.metrics["accuracy_by_session"] for side in (comparison.a, comparison.b)]


# -- the terminal -----------------------------------------------------------------------------


def show(comparison: Comparison) -> None:
    console = console_of()
    for reason in comparison.incomparable:
        alarm = Text(f"NOT COMPARABLE: {reason}. No differences are given.", "bold red")
        console.print(Panel.fit(alarm, border_style="red"))
    for warning in comparison.warnings:
        console.print(Text(f"Warning: {warning}.", "yellow"))
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        console.print(Text(f"{letter}  {_described(side)}"))
    console.print()
    verdicts = console.width >= NARROW
    title = "Accuracy by domain after the last session, %"
    if not comparison.params:
        console.print("The parameters are the same.\n")
    for sheet in (
        params_sheet(comparison),
        changes_sheet("Metrics", "metric", comparison.rows, verdicts),
        changes_sheet(title, "domain", comparison.domains, verdicts),
    ):
        if sheet.rows:
            console.print(table_of(sheet))
    console.print(text_curves(comparison, console.width))


def text_curves(comparison: Comparison, width: int) -> Text:
    """Accuracy by session: a mark per session, a thin line between them."""
    series = _accuracies(comparison)
    sessions = max(map(len, series))
    scale = ticks(*percent_range(min(map(min, series))))
    step = max(1, min(10, (width - MARGIN - len(AXIS) - 1) // max(1, sessions - 1)))
    canvas = _draw(series, step, (sessions - 1) * step + 1, scale[0], scale[-1])
    picture = Text("Accuracy by session, %\n", "italic")
    labels = {_level(tick, scale[0], scale[-1]): short(tick) for tick in scale}
    for level in reversed(range(LEVELS + 1)):
        picture.append(f"{labels.get(level, ''):>6} │")
        picture.append_tokens(canvas[level]).append("\n")
    picture.append(f"{'':>6} └{_axis(sessions, step)}{AXIS}\n").append(" " * MARGIN)
    for mark, style, side in zip(MARKS, SIDE_STYLES, (comparison.a, comparison.b), strict=False):
        picture.append(f"{mark} ", style).append(f"{side.name}   ")
    return picture.append(f"{MARKS[2]} both\n")


def _axis(sessions: int, step: int) -> str:
    """The numbers of the sessions, as many of them as do not run together."""
    every = -(-(len(str(sessions)) + 1) // step)
    return "".join(str(t).ljust(every * step) for t in range(1, sessions + 1, every)).rstrip()


def _level(value: float, low: float, high: float) -> int:
    return round(LEVELS * (value - low) / (high - low))


def _draw(
    series: Sequence[Sequence[float]], step: int, width: int, low: float, high: float
) -> list[list[tuple[str, str]]]:
    """Rows of (character, style) from the lowest level up: first the paths, then the marks."""
    canvas = [[(" ", "")] * width for _ in range(LEVELS + 1)]
    for own, path, style in zip(series, PATHS, SIDE_STYLES, strict=True):
        for column in range((len(own) - 1) * step):
            left, part = divmod(column, step)
            value = own[left] + (own[left + 1] - own[left]) * part / step
            canvas[_level(value, low, high)][column] = (path, style)
    for own, mark, style in zip(series, MARKS, SIDE_STYLES, strict=False):
        for session, value in enumerate(own):
            row, column = canvas[_level(value, low, high)], session * step
            taken = row[column][0] == MARKS[0]
            row[column] = (MARKS[2], "bold") if taken else (mark, f"bold {style}")
    return canvas
