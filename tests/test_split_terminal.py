"""The picture of a schedule in a terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Console

from dacr.report.split_terminal import blocks, class_order, marks_by_cell, split_picture

COLUMNS = ["session", "class", "domain", "new_class"]
SCHEDULE = pd.DataFrame(
    [(1, 2, 0, 1), (1, 0, 1, 1), (2, 1, 0, 1), (2, 1, 1, 1), (2, 2, 1, 0), (3, 0, 0, 0)],
    columns=COLUMNS,
)


def drawn(width: int = 80, colours: bool = False) -> str:
    console = Console(width=width, force_terminal=colours, color_system="256" if colours else None)
    with console.capture() as capture:
        console.print(split_picture(SCHEDULE, ["cat", "dog", "owl"], ["photo", "sketch"], width))
    return capture.get()


def test_a_cell_names_the_domains_of_a_class_in_a_session() -> None:
    rows = {line.split()[0]: line for line in drawn().splitlines() if line.strip()}
    starts = [rows["class"].index(session) for session in "123"]
    cells = {
        name: [rows[name][start : start + 2].strip() for start in starts]
        for name in ("cat", "dog", "owl", "pairs")
    }
    assert cells["cat"] == ["2", "", "1"]
    assert cells["dog"] == ["", "12", ""]
    assert cells["owl"] == ["1", "2", ""]
    assert cells["pairs"] == ["2", "3", "1"]
    assert rows["new"].split() == ["new", "classes", "2", "1", "0"]
    assert "1 photo   2 sketch" in drawn()


def test_classes_come_in_the_order_of_their_sessions() -> None:
    assert class_order(SCHEDULE) == [0, 2, 1]


def test_domains_have_colours_of_their_own() -> None:
    assert "\x1b[" in drawn(colours=True)
    assert "\x1b[" not in drawn()


def test_small_parts_of_a_pair_are_dim() -> None:
    shares = SCHEDULE.assign(share=[1.0, 1.0, 0.1, 0.9, 1.0, 1.0])
    cell = marks_by_cell(shares)[1, 2]
    assert [(cell.plain[span.start], "dim" in str(span.style)) for span in cell.spans] == [
        ("1", True),
        ("2", False),
    ]
    assert not any(
        "dim" in str(span.style) for own in marks_by_cell(SCHEDULE).values() for span in own.spans
    )


def test_what_is_too_wide_goes_on_below() -> None:
    assert blocks(SCHEDULE, 100) == [[1, 2, 3]]
    assert blocks(SCHEDULE, 7) == [[1, 2], [3]]
    assert blocks(SCHEDULE, 1) == [[1], [2], [3]]  # as narrow as can be
    narrow = drawn(width=19)
    assert narrow.count("class ") == 2
    assert max(map(len, narrow.splitlines())) <= 19
