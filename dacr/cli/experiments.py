"""The experiments of this repository, in columns that fit a terminal.

`dvc exp show` has every parameter and metric; this is what one compares first. Sorted by what you
ask for, best first.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from dacr.errors import UserError
from dacr.evaluation.formats import NOTHING, decimals
from dacr.experiments.repository import require_project
from dacr.report.html import Sheet
from dacr.report.terminal import console_of, table_of

CHOICES = ("benchmark", "split", "method", "seed")
COLUMNS = ("experiment", "on", "method", "seed")
METRICS = {
    "average_incremental_accuracy": "average",
    "final_accuracy": "final",
    "components_per_class": "K",
}
FOUND = ("Experiment", "rev", "typ", "Created", "parent", "State", "Executor")
FOLLOWING = ("schedule.", "data.", "facts.", "options.")
"""Parameters that follow from the choices: they differ wherever those do."""

Row = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commits", type=int, default=1, metavar="N", help="look N commits back")
    parser.add_argument("--sort", choices=METRICS.values(), help="the best first")


def run(arguments: argparse.Namespace) -> None:
    require_project()
    if arguments.commits < 1:
        raise UserError(f"--commits {arguments.commits}: at least one")
    from dvc.api import exp_show

    metric = {name: key for key, name in METRICS.items()}.get(arguments.sort)
    sheet = sheet_of(exp_show(num=arguments.commits), metric)
    if not sheet.rows:
        raise UserError("there is no experiment yet; `dvc exp run -S seed=1994` makes one")
    console_of().print(table_of(sheet))


def sheet_of(rows: Sequence[Row], metric: str | None = None) -> Sheet:
    """A line per experiment, and per commit that has numbers."""
    shown = [row for row in rows if row.get("rev") != "workspace" and _has_numbers(row)]
    if metric:
        shown.sort(key=lambda row: -(row.get(metric) or 0))
    baseline = next((row for row in rows if not row.get("Experiment")), {})
    lines = [
        [
            str(row.get("Experiment") or row["rev"]),
            f"{_text(row.get('benchmark'))} {_text(row.get('split'))}",
            *(_text(row.get(name)) for name in ("method", "seed")),
            *(_number(name, row.get(name)) for name in METRICS),
            ", ".join(_other(row, baseline)) or NOTHING,
        ]
        for row in shown
    ]
    return Sheet("", [*COLUMNS, *METRICS.values(), "with"], lines, "left")


def _has_numbers(row: Row) -> bool:
    return any(row.get(name) is not None for name in METRICS)


def _other(row: Row, baseline: Row) -> list[str]:
    """What else was set otherwise than in the working copy."""
    left_out = {*CHOICES, *METRICS, *FOUND}
    return [
        f"{name}={_text(value)}"
        for name, value in row.items()
        if name not in left_out
        and name in baseline
        and value != baseline[name]
        and not name.startswith(FOLLOWING)
        and not _is_no_parameter(name)
    ]


def _is_no_parameter(name: str) -> bool:
    """DVC has metrics, files and parameters in one list; parameters but one are in sections."""
    return "/" in name or ("." not in name and name != "reading")


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # pandas has made a float of it, where another row has none
    return NOTHING if value is None else str(value)


def _number(metric: str, value: float | None) -> str:
    return NOTHING if value is None else f"{value:.{decimals(metric)}f}"
