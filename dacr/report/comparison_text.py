"""A comparison in the terminal: tables, and the two curves drawn with characters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dacr.experiments.comparison import Comparison, Row
from dacr.report.charts import number, ticks
from dacr.report.result_sections import percent_range

STYLES = {"better": "green", "worse": "red"}
COLOURS = ("cyan", "yellow")
MARKS = ("●", "○", "◉")
"""A session of A, of B, and of both in one place."""
PATHS = ("─", "┄")
HEIGHT, MARGIN = 12, 8
NARROW = 60
AXIS = "  session"


def show(comparison: Comparison) -> None:
    # In a pipe there is no width to keep to.
    console = Console(width=None if sys.stdout.isatty() else 120)
    for reason in comparison.incomparable:
        alarm = Text(f"NOT COMPARABLE: {reason}. No differences are given.", "bold red")
        console.print(Panel(alarm, border_style="red"))
    for warning in comparison.warnings:
        console.print(Text(f"Mind: {warning}.", "yellow"))
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        params = side.params
        what = f"{params['method']} on {params['benchmark']}, split {params['split']}"
        console.print(Text(f"{letter}  {side.name}: {what}, seed {params['seed']}"))
    console.print()
    console.print(params_table(comparison))
    console.print(rows_table("Metrics", "metric", comparison.rows, console.width))
    if comparison.domains:
        title = "Accuracy by domain after the last session, %"
        console.print(rows_table(title, "domain", comparison.domains, console.width))
    console.print(text_curves(comparison, console.width))


def params_table(comparison: Comparison) -> Table | Text:
    if not comparison.params:
        return Text("The parameters are the same.\n")
    table = Table(title="Parameters that differ", title_justify="left")
    for column in ("parameter", "A", "B"):
        table.add_column(column, overflow="fold")
    for name, a, b in comparison.params:
        table.add_row(*(Text("–" if text is None else text) for text in (name, a, b)))
    return table


def rows_table(title: str, first: str, rows: Sequence[Row], width: int) -> Table:
    """Numbers are never cut; where there is little room, their colour alone is the verdict."""
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold", min_width=10)
    for column in ("A", "B", "B − A"):
        table.add_column(column, justify="right", no_wrap=True)
    if width >= NARROW:
        table.add_column("")
    for row in rows:
        style = STYLES.get(row.verdict, "")
        cells = [
            Text(f"{row.name.replace('_', ' ')} {row.wanted}".rstrip()),
            Text(row.a),
            Text(row.b),
            Text(row.difference, style),
            Text(row.verdict, style),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def text_curves(comparison: Comparison, width: int) -> Text:
    """Accuracy by session: a mark a session, a thin line between them."""
    series = [side.metrics["accuracy_by_session"] for side in (comparison.a, comparison.b)]
    sessions = max(map(len, series))
    scale = ticks(*percent_range(min(min(own) for own in series)))
    step = max(1, min(10, (width - MARGIN - len(AXIS) - 1) // max(1, sessions - 1)))
    grid = _draw(series, step, (sessions - 1) * step + 1, scale[0], scale[-1])
    picture = Text("Accuracy by session, %\n", "italic")
    labels = {_level(tick, scale[0], scale[-1]): number(tick) for tick in scale}
    for level in reversed(range(HEIGHT + 1)):
        picture.append(f"{labels.get(level, ''):>6} │")
        for mark, style in grid[level]:
            picture.append(mark, style)
        picture.append("\n")
    picture.append(f"{'':>6} └{_axis(sessions, step)}{AXIS}\n")
    picture.append(" " * MARGIN)
    for mark, colour, side in zip(MARKS, COLOURS, (comparison.a, comparison.b), strict=False):
        picture.append(f"{mark} ", colour)
        picture.append(f"{side.name}   ")
    picture.append(f"{MARKS[2]} both\n")
    return picture


def _axis(sessions: int, step: int) -> str:
    """The numbers of the sessions, as many of them as do not run together."""
    every = -(-(len(str(sessions)) + 1) // step)
    return "".join(str(t).ljust(every * step) for t in range(1, sessions + 1, every)).rstrip()


def _level(value: float, low: float, high: float) -> int:
    return round(HEIGHT * (value - low) / (high - low))


def _draw(
    series: Sequence[Sequence[float]], step: int, width: int, low: float, high: float
) -> list[list[tuple[str, str]]]:
    """Rows of (character, style) from the lowest level up: first the paths, then the marks."""
    grid = [[(" ", "")] * width for _ in range(HEIGHT + 1)]
    for own, path, colour in zip(series, PATHS, COLOURS, strict=True):
        for column in range((len(own) - 1) * step):
            left, part = divmod(column, step)
            value = own[left] + (own[left + 1] - own[left]) * part / step
            grid[_level(value, low, high)][column] = (path, colour)
    for own, mark, colour in zip(series, MARKS, COLOURS, strict=False):
        for session, value in enumerate(own):
            row, column = grid[_level(value, low, high)], session * step
            taken = row[column][0] == MARKS[0]
            row[column] = (MARKS[2], "bold") if taken else (mark, f"bold {colour}")
    return grid
