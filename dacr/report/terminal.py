"""Tables in a terminal, the same that pages show."""

from __future__ import annotations

import os

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dacr.evaluation.formats import NOTHING
from dacr.report.html import Field, Sheet

PIPED = 200  # columns, where nobody has said how many
STYLES = {"better": "green", "worse": "red"}


def console_of() -> Console:
    """As wide as the terminal; into a pipe or a file as wide as lines are, since nothing wraps."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED
    return console


def table_of(sheet: Sheet) -> Table:
    """Text that is too wide is folded and never cut; numbers are to the right."""
    table = Table(
        title=Text(sheet.label, "italic") if sheet.label else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for i, name in enumerate(sheet.columns):
        numbers = i > 0 and "left" not in sheet.css
        table.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    table.columns[0].min_width = 10
    for row in sheet.rows:
        table.add_row(*map(_rich_text, row))
    return table


def _rich_text(cell: str | Field | None) -> Text:
    if isinstance(cell, Field):
        return Text(cell.text, STYLES.get(cell.attributes.get("class", ""), ""))
    return Text(NOTHING if cell is None else cell)
