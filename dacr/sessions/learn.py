"""Session t, first half: expand the model of session t−1 and train it on D_t ∪ M_t."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dacr.config import Params
from dacr.data.benchmark import Benchmark, check_pixels
from dacr.data.session_table import read_session
from dacr.learning.checkpoint import Checkpoint, fingerprint
from dacr.learning.session import Session, extend_seen, open_session
from dacr.learning.training import Trainer
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.model.flops import training_flops
from dacr.runtime.code import identity
from dacr.runtime.device import make_deterministic, pick_device, require_precision
from dacr.runtime.json_files import write_json
from dacr.runtime.made import parameters_of
from dacr.runtime.progress import TrainingProgress
from dacr.runtime.provenance import record
from dacr.sessions.places import BENCHMARK, run_folder, session_path
from dacr.sessions.state import load_model, read_start, save_model


@dataclass(frozen=True)
class Opened:
    """Session t before it begins: the untrained method, D̃_t, and the tables behind them."""

    method: Method
    session: Session
    benchmark: Benchmark
    table: pd.DataFrame
    """The session's images, to train and to test."""
    available: pd.DataFrame
    """The rows of D̃_t: D_t, then M_t."""
    seen: list[int]
    """The classes seen up to this session, in order of first appearance."""


def open_stage(params: Params, key: str) -> Opened:
    """What ``learn@key`` and ``consolidate@key`` both start from."""
    make_deterministic(params.train)
    link = params.schedule.sessions[key]
    benchmark = Benchmark.open(BENCHMARK)
    start = read_start(run_folder(link.prev).state)
    table = read_session(session_path(key))
    check_pixels(benchmark.images, table, str(session_path(key)))
    train = table[table["part"] == "train"]
    incoming = train["id"].to_numpy(), train["label"].to_numpy()
    return Opened(
        method=make_method(params, pick_device()),
        session=open_session(link.index, benchmark.images, start.seen, incoming, start.exemplars()),
        benchmark=benchmark,
        table=table,
        available=pd.concat([train[["id", "label"]], start.memory[["id", "label"]]]),
        seen=extend_seen(start.seen, incoming[1]),
    )


def learn(params: Params, key: str) -> None:
    """Stage ``learn@key``: from ``runs/<t−1>/state`` and D_t to ``runs/<t>/learned``."""
    opened = open_stage(params, key)
    method, session = opened.method, opened.session
    require_precision(params.train, method.device)
    link = params.schedule.sessions[key]
    load_model(method, run_folder(link.prev).state)
    out = run_folder(key).learned
    with record("learn", key, params) as facts, Checkpoint(work_name(params, key)) as checkpoint:
        method.begin(session)
        progress = TrainingProgress(link.index, len(params.schedule.sessions))
        trainer = Trainer(method, session, checkpoint, progress)
        losses = []
        try:
            for phase in method.phases(session):
                rows = trainer.fit(phase)
                losses += [{"phase": phase.name, "session": link.index, **row} for row in rows]
        finally:
            progress.close()
        save_model(method, out)
        write_json(out / "losses.json", losses)
        facts.update(
            seconds=round(checkpoint.seconds, 3),
            images=progress.done,
            images_per_second=progress.rate,
            flops_estimate=training_flops(
                params.model.backbone,
                params.augmentation.input_size,
                progress.done,
                len(method.features.extractors),
            ),
        )


def work_name(params: Params, key: str) -> str:
    """The name of this training in the scratch folder: a hash of all that it depends on."""
    state = run_folder(params.schedule.sessions[key].prev).state
    parameters = parameters_of("learn", params)
    files = [session_path(key), *(file for file in state.rglob("*") if file.is_file())]
    return fingerprint([key, parameters, identity("learn", params.method, root=CODE)], files)


CODE = Path(__file__).parents[2]
"""The folder that holds the packages dacr and stages."""
