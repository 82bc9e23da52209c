"""Stage ``measure``: the field's metrics as ``measures.json``, and the tables behind them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dacr.config import load_params
from dacr.data.session_table import read_schedule
from dacr.evaluation.budget import read_numbers
from dacr.evaluation.continual import GROUPS, Rows, compute_measures, new_and_old, reliability
from dacr.evaluation.files import checked, read_predictions
from dacr.evaluation.metrics import with_hits
from dacr.evaluation.plots import write_tables
from dacr.runtime.json_files import write_json

SCHEDULE = Path("data/split/schedule.csv")
MEASURES, TABLES = "measures.json", "measures"
STAGE = "measure"
COLUMNS = {
    "accuracy_matrix": ["after", "on", "accuracy"],
    "new_and_old": ["session", *GROUPS],
    "reliability": ["bin", "images", "confidence", "accuracy"],
}


def measure(reports: Path) -> None:
    """From the predictions of all sessions to ``measures.json`` and ``measures/*.csv``."""
    results = Path("runs") / load_params().schedule.last / "results"
    schedule = read_schedule(SCHEDULE)
    predictions = read_predictions(results / "predictions.parquet")
    measures = compute_measures(predictions, schedule)
    write_tables(measure_tables(predictions, schedule, measures), reports / TABLES)
    write_json(reports / MEASURES, measures, indent=2)


def measure_tables(
    predictions: pd.DataFrame, schedule: pd.DataFrame, measures: dict[str, Any]
) -> dict[str, pd.DataFrame]:
    """Every table of ``reports/measures/`` by its file's name."""
    scored = with_hits(predictions)
    last = scored[scored["session"] == scored["session"].max()]
    nothing = pd.DataFrame(columns=COLUMNS["reliability"])
    return {
        "accuracy_matrix": long_matrix(measures["accuracy_matrix"]),
        "new_and_old": new_and_old(scored, schedule).reset_index(),
        "reliability": reliability(last) if "confidence" in last else nothing,
    }


def long_matrix(rows: Rows) -> pd.DataFrame:
    """R with a row per entry, the form that ``dvc plots`` draws."""
    entries = [
        (after, on, accuracy)
        for after, row in enumerate(rows, start=1)
        for on, accuracy in enumerate(row, start=1)
    ]
    return pd.DataFrame(entries, columns=COLUMNS["accuracy_matrix"])


def read_measures(reports: Path) -> dict[str, Any]:
    return read_numbers(reports / MEASURES, STAGE, "accuracy_matrix")


def read_measure_tables(reports: Path) -> dict[str, pd.DataFrame]:
    """What stage ``measure`` wrote; a gap in ``new_and_old`` is a group without images."""
    return {
        name: checked(reports / TABLES / f"{name}.csv", STAGE, partial(_read_table, columns))
        for name, columns in COLUMNS.items()
    }


def _read_table(columns: list[str], path: Path) -> pd.DataFrame:
    return pd.read_csv(path, usecols=columns, dtype="float64")[columns]
