"""The parts that the report's sections are made of: figures and heat maps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from dacr.report.charts import Line, dot, key, line_chart, swatch


@dataclass(frozen=True)
class Cell:
    """One field of a grid: its text, its colour's strength (0 to 1) and what it says on hover."""

    text: str
    heat: float
    title: str
    marked: bool = False


@dataclass(frozen=True)
class Grid:
    """A heat map that is a table, so that it can be read without seeing colours."""

    label: str
    corner: str
    columns: list[str]
    rows: list[tuple[str, list[Cell | None]]]


@dataclass(frozen=True)
class Figure:
    """A chart with its legend and the numbers behind it."""

    chart: Markup
    caption: str
    legend: list[tuple[Markup, str]]
    """[(what stands for it in the chart, name)]"""
    table: pd.DataFrame | None = None


def legend_of(names: Iterable[str]) -> list[tuple[Markup, str]]:
    """Of areas, which have the palette's colours in turn."""
    return [(swatch(colour), name) for colour, name in enumerate(names)]


def dot_legend(names: Iterable[str]) -> list[tuple[Markup, str]]:
    """Of groups of dots, which have the palette's colours and shapes in turn."""
    return [(dot(colour), name) for colour, name in enumerate(names)]


def line_legend(lines: Iterable[Line]) -> list[tuple[Markup, str]]:
    return [(key(line.colour), line.name) for line in lines]


def grid_of(
    values: dict[tuple[str, str], Cell],
    label: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
) -> Grid:
    body = [(row, [values.get((row, column)) for column in columns]) for row in rows]
    return Grid(label, corner, list(columns), body)


def by_session(
    table: pd.DataFrame,
    names: dict[str, str],
    *,
    y_name: str,
    y_range: tuple[float, float],
    caption: str,
) -> Figure:
    """The columns ``names`` of a table with one row a session, as lines."""
    sessions = [int(t) for t in table["session"]]
    lines = [
        Line(name, list(zip(sessions, table[column].astype(float), strict=True)), colour)
        for colour, (column, name) in enumerate(names.items())
    ]
    chart = line_chart(
        lines,
        label=caption,
        x_name="session",
        y_name=y_name,
        y_range=y_range,
        x_labels=[(t, str(t)) for t in sessions],
    )
    return Figure(chart, caption, line_legend(lines), table)
