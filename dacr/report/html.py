"""What pages are made of: sections of figures, where a figure is a chart, a table or both.

A table (``Sheet``) is data, so that a terminal can show the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dacr.evaluation.formats import NOTHING

TEMPLATES = Path(__file__).parent / "templates"

Fact = tuple[str, str, str, str]
"""(what, its name in metrics.json, number, unit)"""


@dataclass(frozen=True)
class Field:
    """A field of a table: its text, and the attributes of its element."""

    text: str | Markup
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sheet:
    """A table; the first column names the rows."""

    label: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Field | None]]
    """None is a combination that does not exist (yet)."""
    css: str = "numbers full"


@dataclass(frozen=True)
class Figure:
    """A box of a page: a chart, a table, or several small charts, and what they tell."""

    caption: str | Markup = ""
    chart: Markup | str = ""
    legend: Sequence[tuple[Markup, str]] = ()
    """[(what stands for it in the chart, name)]"""
    title: str = ""
    sheet: Sheet | None = None
    small: Sequence[tuple[Markup, str]] = ()
    """[(chart, caption)]"""
    facts: Sequence[Fact] = ()
    numbers: Sheet | None = None
    """The numbers that the chart shows."""
    id: str = ""


@dataclass(frozen=True)
class Card:
    """A headline number."""

    title: str
    text: str
    meanings: Sequence[str | Markup]
    unit: str = ""
    metric: str = ""
    paper: str = ""


@dataclass(frozen=True)
class PageSection:
    id: str
    title: str
    content: Sequence[Figure | None]
    """None is a figure that there is no data for."""
    intro: str = ""
    css: str = ""

    @property
    def figures(self) -> list[Figure]:
        return [figure for figure in self.content if figure]


def sheet_of(frame: pd.DataFrame, label: str = "Numbers") -> Sheet:
    return Sheet(
        label,
        [str(column).replace("_", " ") for column in frame.columns],
        [[_text(value) for value in row] for row in frame.itertuples(index=False)],
        "numbers",
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return NOTHING if pd.isna(value) else f"{value:.6g}"
    return str(value)


def heat_map(
    label: str,
    corner: str,
    values: pd.DataFrame,
    cell: Callable[[str, str, float], tuple[str, float, str]],
    marked: Container[tuple[str, str]] = (),
) -> Sheet:
    """A heat map that is a table, so that it can be read without seeing colours.

    ``cell`` gives the text of a (row, column, value), the strength of its colour from 0 to 1, and
    its tooltip; where there is no value, the field is empty.
    """

    def field(row: str, column: str, value: float) -> Field | None:
        if pd.isna(value):
            return None
        text, heat, title = cell(row, column, value)
        css = {"class": "marked"} if (row, column) in marked else {}
        return Field(text, {**css, "style": f"--heat:{heat:.3f}", "title": title})

    columns = [str(column) for column in values.columns]
    rows = [
        [name, *(field(name, *pair) for pair in zip(columns, row, strict=True))]
        for name, row in zip(values.index, values.to_numpy().tolist(), strict=True)
    ]
    return Sheet(label, [corner, *columns], rows, "grid")


def percent_map(label: str, corner: str, values: pd.DataFrame, of: str = ", ") -> Sheet:
    """A heat map of accuracies; ``of`` stands between the names of row and column."""
    # The square sets good accuracies apart from each other, where most of them lie.
    return heat_map(
        label,
        corner,
        values,
        lambda row, column, v: (f"{v:.0f}", (v / 100) ** 2, f"{row}{of}{column}: {v:.2f} %"),
    )


def render_page(template: str, sections: Sequence[PageSection], **content: Any) -> str:
    """A self-contained page; sections without figures are left out."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        sections=[own for own in sections if own.figures],
        **content,
    )
