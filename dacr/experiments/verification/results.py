"""Are the recorded results those of the recorded models?

Every checksum of a run can be right and its predictions still be edited. Some of each session are
made again from its state: one batch, in the composition that the stage had, so that the bits are
the same where they can be. The history is held against what the sessions left.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dacr.config import Params
from dacr.data.session_table import read_session
from dacr.experiments.verification.findings import Report
from dacr.runtime.json_files import read_json
from dacr.runtime.portable import PORTABLE
from dacr.sessions.places import run_folder, session_path

SHOWN = ["id", "label", "domain"]
SAID = ["predicted", "component"]
TOLERATED = 0.01
"""The share of images that another kind of processor may see in another way …"""
NEAR = 0.02
"""… and how far the mean confidence may be off there."""


def check_results(report: Report, params: Params, seed: int) -> None:
    """A batch of each session's predictions, chosen by ``seed``, made again."""
    with report.guard("results"):
        faults = other_history(params)
        images = 0
        for key in params.schedule.sessions:
            recorded = _recorded(params, key)
            wrong = other_images(recorded, key)
            again = None if wrong else _predict(params, key, seed)
            if again is not None:
                images += len(again)
                wrong = unlike(recorded, again, exact=_exact(params))
            faults += wrong
        told = f"{images} predictions made again from the states are the same (seed {seed})"
        report.add("results", faults, told)


def other_history(params: Params) -> list[str]:
    """What the history says of losses and memories, and the sessions do not."""
    from dacr.sessions.history import HISTORY, REMEDY, memory_history

    last = params.schedule.last
    path = run_folder(last).results / HISTORY
    own: dict[str, list[Any]] = {"losses": [], "memory": []}
    for key, link in params.schedule.sessions.items():
        own["losses"] += read_json(run_folder(key).learned / "losses.json", REMEDY)
        memory = pd.read_csv(run_folder(key).state / "memory.csv")
        own["memory"] += memory_history(link.index, memory)["memory"]
    recorded = read_json(path, REMEDY)
    return [
        f"{path} has other {name} than the sessions; run `dvc repro -f consolidate@{last}`"
        for name, rows in own.items()
        if recorded.get(name, []) != rows
    ]


def _recorded(params: Params, key: str) -> pd.DataFrame:
    """What the results of the last session, which is what is scored, say of session ``key``."""
    results = run_folder(params.schedule.last).results
    rows = pd.read_parquet(results / "predictions.parquet")
    own = rows[rows["session"] == params.schedule.sessions[key].index]
    return own.reset_index(drop=True)


def other_images(recorded: pd.DataFrame, key: str) -> list[str]:
    """Whether the predictions are on other images than those that the session is tested with."""
    table = read_session(session_path(key))
    test = table[table["part"] == "test"].sort_values("id", ignore_index=True)
    if recorded[SHOWN].equals(test[SHOWN].astype(recorded[SHOWN].dtypes)):
        return []
    return [
        f"the predictions of session {int(key)} are not on the images of {session_path(key)}; "
        f"run `dvc repro -f consolidate@{key}`"
    ]


def _predict(params: Params, key: str, seed: int) -> pd.DataFrame:
    """What the model of session ``key`` says of one batch of its test images."""
    from dacr.sessions.consolidate import BATCH, predict
    from dacr.sessions.learn import open_stage
    from dacr.sessions.state import load_model

    opened = open_stage(params, key)
    load_model(opened.method, run_folder(key).state)
    test = opened.table[opened.table["part"] == "test"].sort_values("id", ignore_index=True)
    batches = -(-len(test) // BATCH)
    chosen = int(np.random.default_rng([seed, int(key)]).integers(batches))
    batch = test.iloc[chosen * BATCH : (chosen + 1) * BATCH]
    return predict(replace(opened, table=batch)).predictions


def unlike(recorded: pd.DataFrame, again: pd.DataFrame, exact: bool) -> list[str]:
    """Whether the recorded predictions of these images are others."""
    own = recorded.set_index("id").loc[again["id"]].reset_index()
    differ = int((own[SAID].to_numpy() != again[SAID].to_numpy()).any(1).sum())
    gap = (own["confidence"] - again["confidence"]).abs()
    if exact:
        differ = max(differ, int((gap != 0).sum()))
        wrong = differ > 0
    else:
        wrong = differ > TOLERATED * len(again) or not gap.mean() <= NEAR
    if not wrong:
        return []
    session = int(again["session"].iloc[0])
    return [
        f"{differ} of {len(again)} predictions of session {session} are not those of the model in "
        f"{run_folder(f'{session:02d}').state}; run `dvc repro -f consolidate@{session:02d}`"
    ]


def _exact(params: Params) -> bool:
    """Whether this machine must have the same bits as the one that made the run."""
    from dacr.runtime.device import pick_device

    fixed = all(os.environ.get(name) == value for name, value in PORTABLE.items())
    return params.train.portable and fixed and pick_device().type == "cpu"
