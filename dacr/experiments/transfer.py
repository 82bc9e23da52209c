"""The field's metrics of a finished run, with those that need another run or more predictions."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from dacr.data.session_table import read_schedule
from dacr.errors import UserError
from dacr.evaluation import continual
from dacr.evaluation.continual import Rows, rows_of
from dacr.evaluation.metrics import rounded, with_hits
from dacr.experiments.reading import (
    Files,
    Workspace,
    differing,
    open_experiment,
    read_params,
)
from dacr.experiments.results import JOINT, MATRIX

MEASURES = "reports/measures.json"


def measures_of(files: Files) -> dict[str, Any]:
    """``measures.json``, or the same from the predictions of a run that is older than it."""
    content = files.read(MEASURES)
    if content is None:
        return _measured(files)
    try:
        measures = dict(json.loads(content))
        _ = rows_of(measures[MATRIX])
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{MEASURES} of {files.name} is damaged; run `dvc repro -f measure`"
        ) from None
    return measures


def _measured(files: Files) -> dict[str, Any]:
    predictions, schedule = results_of_run(files)
    return continual.compute_measures(predictions, schedule)


def results_of_run(files: Files) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The predictions of all sessions, and the schedule."""
    last = read_params(files)["schedule"].get("last", "")
    paths = f"runs/{last}/results/predictions.parquet", "data/split/schedule.csv"
    contents = [files.read(path) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        if content is None:
            raise UserError(f"{files.name} has no {path}: run `dvc repro` or `dvc pull`")
    try:
        predictions, schedule = (io.BytesIO(content or b"") for content in contents)
        return pd.read_parquet(predictions), pd.read_csv(schedule)
    except (ValueError, OSError):
        raise UserError(f"the predictions of {files.name} are damaged; run `dvc repro`") from None


# -- against joint training -------------------------------------------------------------------


def joint_rows(name: str, beside: Files) -> Rows:
    """R of a joint run: an experiment's name, its measures.json, or the record of a sweep."""
    if not name.endswith(".json"):
        files = open_experiment(name)
        _refuse_other_runs(files, beside)
        return rows_of(measures_of(files)[MATRIX])
    try:
        content = json.loads(Path(name).read_text(encoding="utf-8"))
        if content.get("method", JOINT) != JOINT:
            raise UserError(f"{name} is a record of {content['method']}, and of no joint training")
        return rows_of(content.get("details", content)[MATRIX])
    except FileNotFoundError:
        raise UserError(f"--joint {name}: there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"--joint {name} has no {MATRIX}: name a measures.json") from None


def _refuse_other_runs(joint: Files, beside: Files) -> None:
    theirs, ours = read_params(joint), read_params(beside)
    if theirs["method"] != JOINT:
        raise UserError(
            f"--joint {joint.name} was trained with method={theirs['method']}, and not with "
            f"method={JOINT}; run `dvc exp run -S method={JOINT}`"
        )
    for section in ("benchmark", "split", "schedule"):
        both = ({section: own[section]} for own in (theirs, ours))
        if differing(*both):
            raise UserError(
                f"--joint {joint.name} has another {section} than {beside.name}: their sessions "
                "cannot be compared"
            )


def with_joint(measures: dict[str, Any], joint: Rows) -> dict[str, Any]:
    try:
        value = continual.intransigence(rows_of(measures[MATRIX]), joint)
    except ValueError as error:
        raise UserError(f"--joint: {error}") from None
    return measures | {"intransigence": rounded(value)}


# -- forward ----------------------------------------------------------------------------------


def with_forward(measures: dict[str, Any], files: Files) -> dict[str, Any]:
    """The whole matrix, and what is computed from its upper triangle."""
    if not isinstance(files, Workspace):
        raise UserError(
            f"--forward needs the models of all sessions in the workspace; run `dvc exp apply "
            f"{files.name}` and `dvc checkout`, then name workspace"
        )
    from dacr.config import load_params
    from dacr.sessions.future import future_predictions  # needs torch

    schedule = read_schedule(files.root / "data/split/schedule.csv")
    seen, _ = results_of_run(files)
    ahead = future_predictions(load_params(files.root / "params.yaml"), schedule, files.root)
    scored = with_hits(pd.concat([seen, ahead], ignore_index=True))
    rows = continual.accuracy_matrix(scored, schedule, future=True)
    chance = continual.chance_levels(scored, schedule)
    return measures | {
        "forward_transfer": rounded(continual.forward_transfer(rows, chance)),
        "forward_accuracy": rounded(continual.upper_triangle(rows)),
        MATRIX: [[None if math.isnan(value) else rounded(value) for value in row] for row in rows],
    }
