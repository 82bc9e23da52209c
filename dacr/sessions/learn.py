"""Session t, first half: expand the model of session t−1 and train it on D_t ∪ M_t."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dacr.config import Params
from dacr.data.benchmark import Benchmark
from dacr.data.splits import read_session
from dacr.learning.checkpoint import Checkpoint, fingerprint
from dacr.learning.session import Session, open_session
from dacr.learning.training import Trainer
from dacr.methods import make_method
from dacr.methods.base import Method
from dacr.runtime.device import make_deterministic, pick_device
from dacr.runtime.progress import TrainingProgress
from dacr.runtime.provenance import record
from dacr.sessions.state import load_model, read_start, save_model, write_json

BENCHMARK = Path("data/benchmark")
SPLIT = Path("data/split")
RUNS = Path("runs")
CODE = (
    "dacr/data/augmentation.py",
    "dacr/learning",
    "dacr/sessions",
    "dacr/model",
    "dacr/methods/base.py",
)


def prepare(params: Params, key: str, images: Any) -> tuple[Method, Session, list[int]]:
    """The model of session t−1 and the data of session t; also the classes seen before."""
    make_deterministic(params.train.threads)
    link = params.schedule.sessions[key]
    start = read_start(RUNS / link.prev)
    table = read_session(SPLIT / f"session-{key}.csv")
    train = table[table["part"] == "train"]
    incoming = train["id"].to_numpy(), train["label"].to_numpy()
    session = open_session(link.index, images, start.seen, incoming, start.exemplars())
    return make_method(params, pick_device()), session, start.seen


def learn(params: Params, key: str) -> None:
    """Stage ``learn@key``: from ``runs/<t−1>`` and D_t to ``runs/<t>/learned``."""
    benchmark = Benchmark.open(BENCHMARK)
    method, session, _ = prepare(params, key, benchmark.images)
    link = params.schedule.sessions[key]
    load_model(method, RUNS / link.prev)
    out = RUNS / key / "learned"
    with record("learn", key, params) as facts, Checkpoint(work_name(params, key)) as checkpoint:
        method.begin(session)
        progress = TrainingProgress(link.index, len(params.schedule.sessions))
        trainer = Trainer(
            params.train,
            method.augmentation,
            session,
            params.seed,
            method.device,
            checkpoint,
            progress,
        )
        losses = []
        try:
            for phase in method.phases(session):
                rows = trainer.fit(phase, method)
                losses += [{"phase": phase.name, "session": link.index, **row} for row in rows]
        finally:
            progress.close()
        out.mkdir(parents=True, exist_ok=True)
        save_model(method, out)
        write_json(out / "losses.json", losses)
        facts.update(
            seconds=round(checkpoint.seconds, 3),
            images=progress.done,
            images_per_second=progress.rate,
        )


def work_name(params: Params, key: str) -> str:
    """The name of this training in the scratch folder: a hash of all that it depends on."""
    prev = RUNS / params.schedule.sessions[key].prev
    own = [Path(f"dacr/methods/{name}.py") for name in set(params.code)]
    code = [
        file
        for path in map(Path, CODE)
        for file in (path.rglob("*.py") if path.is_dir() else [path])
    ]
    inputs = [BENCHMARK / "benchmark.json", SPLIT / f"session-{key}.csv"]
    state = [prev / "state.json", prev / "memory.csv", *prev.glob("**/*.safetensors")]
    state = [file for file in state if "learned" not in file.parts]
    parameters = params.model_dump(include=set(LEARN_PARAMS), by_alias=True)
    return fingerprint([key, parameters], [*own, *code, *inputs, *state])


LEARN_PARAMS = ("seed", "method", "options", "augmentation", "model", "train", "loss", "mixture")
