"""The command ``dacr`` itself, and ``dacr experiments``."""

from __future__ import annotations

import pytest
from rich.console import Console

from dacr.__main__ import COMMANDS, parse
from dacr.cli.experiments import sheet_of
from dacr.report.terminal import table_of

PLACE = {"benchmark": "idigits_mini", "split": "nd", "seed": 1993.0, "typ": "baseline"}
AVERAGE, FINAL = "average_incremental_accuracy", "final_accuracy"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(name in told for name in COMMANDS)


def test_experiments_have_the_columns_that_matter() -> None:
    ours = {"method": "der_dacr", "reduction.delta": 0.5, AVERAGE: 95.0, FINAL: 92.0}
    rows = [
        {"rev": "workspace", **PLACE, **ours},
        {"rev": "main", **PLACE, **ours},
        {
            "rev": "1",
            "Experiment": "wide",
            **PLACE,
            **ours,
            "reduction.delta": 0.75,
            AVERAGE: 96.0,
            "runs/code/learn.json": "0",
        },
        {"rev": "2", "Experiment": "failed", **PLACE, "method": "der", AVERAGE: None},
    ]
    sheet = sheet_of(rows)
    assert [row[0] for row in sheet.rows] == ["main", "wide"]  # neither twice nor without numbers
    assert sheet.rows[1] == [
        "wide", "idigits_mini nd", "der_dacr", "1993", "96.00", "92.00", "–",
        "reduction.delta=0.75",
    ]  # fmt: skip
    assert [row[0] for row in sheet_of(rows, AVERAGE).rows] == ["wide", "main"]
    console = Console(width=80, record=True)
    console.print(table_of(sheet))
    assert "1993" in console.export_text()  # and not a number per line
