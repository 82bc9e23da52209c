"""A schedule as a picture of characters: classes × sessions, a digit in colour for each domain.

Classes are in the order in which they come, so that the first entry of a row is where the class is
new. Without colours (in a pipe) the digits say the same. Where a schedule has shares, the digits of
less than half of the training images of a pair are dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

GLYPHS = f"123456789{ascii_lowercase}"
LONGEST = 24
"""Columns for the name of a class."""
SHARE, MINOR = "share", 0.5
"""The column of schedules in which a pair comes in parts, and what is a small part."""
PAIRS, NEW = "pairs", "new classes"
COLOURS = ("bright_blue", "yellow", "green", "magenta", "cyan", "red", "bright_green", "bright_red")


def split_picture(
    schedule: pd.DataFrame, classes: Sequence[str], domains: Sequence[str], width: int = 80
) -> Group:
    """The picture of a schedule (session, class, domain, new_class, …), with its legend.

    More sessions than fit into ``width`` columns go on below.
    """
    label = min(max(map(len, (*classes, NEW))), LONGEST)
    parts: list[RenderableType] = []
    for sessions in blocks(schedule, width - label):
        parts += [_block(schedule, classes, sessions, label), ""]
    shared = "   dim: less than half of its training images" if SHARE in schedule else ""
    return Group(*parts, _legend(domains) + Text(shared, "dim"))


def blocks(schedule: pd.DataFrame, width: int) -> list[list[int]]:
    """The sessions in groups that fit into ``width`` columns, two of which are between sessions."""
    sessions = range(1, int(schedule["session"].max()) + 1)
    in_cell = schedule.groupby(["session", "class"]).size().groupby("session").max()
    found: list[list[int]] = [[]]
    left = width
    for session in sessions:
        needed = max(int(in_cell[session]), len(str(session))) + 2
        if needed > left and found[-1]:
            found.append([])
            left = width
        found[-1].append(session)
        left -= needed
    return found


def _block(
    schedule: pd.DataFrame, classes: Sequence[str], sessions: Sequence[int], label: int
) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    table.add_column("class", overflow="ellipsis", no_wrap=True, width=label)
    for session in sessions:
        table.add_column(str(session), no_wrap=True)
    marks, ordered = marks_by_cell(schedule), class_order(schedule)
    for number in ordered:
        cells = (marks.get((number, session), Text()) for session in sessions)
        table.add_row(Text(classes[number]), *cells, end_section=number == ordered[-1])
    for name, counts in totals(schedule).items():
        shown = (Text(str(counts[session - 1]), "dim") for session in sessions)
        table.add_row(Text(name, "dim"), *shown)
    return table


def class_order(schedule: pd.DataFrame) -> list[int]:
    """The classes in the order in which they come; those of one session by their numbers."""
    first = schedule.groupby("class")["session"].min()
    return sorted(
        (int(number) for number in first.index), key=lambda number: (first[number], number)
    )


def marks_by_cell(schedule: pd.DataFrame) -> dict[tuple[int, int], Text]:
    """Of each (class, session): the domains in which the class comes."""
    rows = schedule.sort_values("domain").reindex(columns=["class", "session", "domain", SHARE])
    cells: dict[tuple[int, int], Text] = {}
    for number, session, domain, share in rows.itertuples(index=False, name=None):
        style = f"dim {_colour(domain)}" if share < MINOR else _colour(domain)
        cells.setdefault((number, session), Text()).append(_glyph(domain), style)
    return cells


def totals(schedule: pd.DataFrame) -> dict[str, list[int]]:
    """Of each session: its pairs, and its new classes."""
    by_session = schedule.groupby("session")
    new = schedule[schedule["new_class"] == 1].groupby("session")["class"].nunique()
    return {
        PAIRS: by_session.size().tolist(),
        NEW: new.reindex(sorted(by_session.groups), fill_value=0).tolist(),
    }


def _legend(domains: Sequence[str]) -> Text:
    named = ((f"{_glyph(number)} {name}", _colour(number)) for number, name in enumerate(domains))
    return Text("   ").join(Text(words, style) for words, style in named)


def _glyph(domain: int) -> str:
    return GLYPHS[domain] if domain < len(GLYPHS) else "+"


def _colour(domain: int) -> str:
    return COLOURS[domain % len(COLOURS)]
