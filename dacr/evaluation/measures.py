"""Stage ``measure``: the field's metrics as ``measures.json``, and the tables behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from dacr.config import load_params
from dacr.data.session_table import read_schedule
from dacr.evaluation.continual import Rows, compute_measures, new_and_old, reliability
from dacr.evaluation.files import checked, read_predictions
from dacr.evaluation.metrics import with_hits
from dacr.evaluation.plots import write_tables
from dacr.runtime.json_files import read_json, write_json

SCHEDULE = Path("data/split/schedule.csv")
MEASURES, TABLES = "measures.json", "measures"
STAGE = "measure"


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
    columns = ["bin", "images", "confidence", "accuracy"]
    bins = reliability(last) if "confidence" in last else pd.DataFrame(columns=columns)
    return {
        "accuracy_matrix": long_matrix(measures["accuracy_matrix"]),
        "new_and_old": new_and_old(scored, schedule).reset_index(),
        "reliability": bins,
    }


def long_matrix(rows: Rows) -> pd.DataFrame:
    """R with a row per entry, the form that ``dvc plots`` draws."""
    entries = [
        (after, on, accuracy)
        for after, row in enumerate(rows, start=1)
        for on, accuracy in enumerate(row, start=1)
    ]
    return pd.DataFrame(entries, columns=["after", "on", "accuracy"])


def read_measures(reports: Path) -> dict[str, Any]:
    content = read_json(reports / MEASURES, f"run `dvc repro {STAGE}`")
    return dict(content)


def read_measure_tables(reports: Path) -> dict[str, pd.DataFrame]:
    """What stage ``measure`` wrote; a gap in ``new_and_old`` is a group without images."""
    files = sorted((reports / TABLES).glob("*.csv"))
    return {file.stem: checked(file, STAGE, pd.read_csv) for file in files}
