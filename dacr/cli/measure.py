"""The field's metrics of a finished run: the matrix of accuracies, transfer and forgetting.

Entry (i, j) of the matrix is the accuracy after session i on the pairs that session j brings.
With --joint it tells the intransigence, too, and with --forward the forward transfer.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout

from dacr.evaluation.continual import rows_of
from dacr.evaluation.formats import format_metric
from dacr.experiments.reading import WORKSPACE, open_experiment
from dacr.experiments.results import MATRIX
from dacr.experiments.transfer import joint_rows, measures_of, with_forward, with_joint
from dacr.report.html import Sheet
from dacr.report.terminal import console_of, table_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="RUN",
        nargs="?",
        default=WORKSPACE,
        help="an experiment, a git revision, or workspace (default)",
    )
    parser.add_argument(
        "--joint",
        metavar="RUN",
        help="a run of method=joint on the same sessions: its name, or its measures.json",
    )
    parser.add_argument(
        "--forward",
        action="store_true",
        help="predict on the pairs of later sessions, too: as long again as all other predictions",
    )
    parser.add_argument("--json", action="store_true", help="all numbers as JSON")


def run(arguments: argparse.Namespace) -> None:
    files = open_experiment(arguments.name)
    joint = joint_rows(arguments.joint, files) if arguments.joint else None
    measures = measures_of(files)
    if joint:
        measures = with_joint(measures, joint)
    if arguments.forward:
        with redirect_stdout(sys.stderr):  # its progress is no part of the numbers
            measures = with_forward(measures, files)
    if arguments.json:
        print(json.dumps(measures, indent=1, sort_keys=True))
        return
    console = console_of()
    console.print(table_of(matrix_sheet(measures)))
    rows = [
        [name.replace("_", " "), format_metric(name, value)]
        for name, value in measures.items()
        if name != MATRIX
    ]
    console.print(table_of(Sheet("Measures", ["metric", "value"], rows)))


def matrix_sheet(measures: dict[str, list[list[float | None]]]) -> Sheet:
    rows = rows_of(measures[MATRIX])
    sessions = [str(number) for number in range(1, len(rows) + 1)]
    cells = [
        [after, *(format_metric(MATRIX, own) for own in row), *[""] * (len(rows) - len(row))]
        for after, row in zip(sessions, rows, strict=True)
    ]
    return Sheet("Accuracy after session i on session j, %", ["after", *sessions], cells)
