"""Session t, second half: reduce the mixtures, choose the memory, predict on everything seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dacr.config import Params
from dacr.data.benchmark import Benchmark
from dacr.data.splits import read_session
from dacr.learning.session import Images, Session, extend_seen
from dacr.methods.base import Method
from dacr.rng import numpy_generator
from dacr.runtime.provenance import record
from dacr.sessions.embedding import embed
from dacr.sessions.learn import BENCHMARK, RUNS, SPLIT, prepare
from dacr.sessions.state import (
    extend_table,
    load_model,
    read_json,
    read_start,
    save_model,
    write_json,
)

History = dict[str, list[dict[str, Any]]]
BATCH = 256
EMBEDDED = 600
"""How many test images the t-SNE picture of a session shows."""


def consolidate(params: Params, key: str) -> None:
    """Stage ``consolidate@key``: from ``runs/<t>/learned`` to the state of session t."""
    benchmark = Benchmark.open(BENCHMARK)
    method, session, seen_before = prepare(params, key, benchmark.images)
    load_model(method, RUNS / key / "learned")
    table = read_session(SPLIT / f"session-{key}.csv")
    incoming = table.loc[table["part"] == "train", "label"].to_numpy()
    seen = extend_seen(seen_before, incoming)
    folder, before = RUNS / key, RUNS / params.schedule.sessions[key].prev
    with record("consolidate", key, params):
        features = method.session_features(session)
        method.consolidate(session, features)
        memory = choose_memory(method, session, features, table, before)
        predictions, embedding = predict(method, benchmark.images, table, seen, session.index)
        save_model(method, folder)
        write_json(folder / "state.json", {"seen": seen, "session": session.index})
        memory.to_csv(folder / "memory.csv", index=False)
        extend_table(before, folder, "predictions.parquet", predictions)
        extend_table(before, folder, "embedding.parquet", embedding)
        new = session_history(method, session, seen, memory, folder)
        write_json(folder / "history.json", extend_history(before, new))


def choose_memory(
    method: Method, session: Session, features: Tensor, table: pd.DataFrame, before: Path
) -> pd.DataFrame:
    """M_{t+1} as a table: the exemplars' ids, classes and components."""
    train = table[table["part"] == "train"]
    available = pd.concat([train[["id", "label"]], read_start(before).memory[["id", "label"]]])
    chosen = method.exemplars(session, features)
    if len(chosen) > method.params.memory.size:
        raise RuntimeError("the memory is larger than memory.size")
    method.remember(session, features, chosen)
    rows = session.data.labels[chosen].to(features.device)
    components = method.components_of(features[chosen.to(features.device)], rows)
    memory = available.iloc[chosen.numpy()].reset_index(drop=True)
    return memory.assign(component=components.cpu().numpy()).astype("int64")


@torch.no_grad()
def predict(
    method: Method, images: Images, table: pd.DataFrame, seen: list[int], session: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Predictions on the test images of every pair seen so far, and a t-SNE of some of them."""
    test = table[table["part"] == "test"].sort_values("id", ignore_index=True)
    row_of = {label: row for row, label in enumerate(seen)}
    rows = torch.tensor([row_of[label] for label in test["label"]], dtype=torch.long)
    shown = choose_shown(test, method.params.seed, session)
    kept: list[NDArray[np.float32]] = []
    parts: list[Tensor] = []
    method.eval()
    for positions in torch.arange(len(test)).split(BATCH):
        batch = torch.from_numpy(images[test["id"].to_numpy()[positions.numpy()]])
        features = method.features(method.augmentation.test(batch.to(method.device)))
        # Purity asks into which component of its own class an image falls.
        answer = method.answer(features, rows[positions].to(method.device))
        parts.append(torch.stack([part.double() for part in answer]).cpu())
        inside = shown[positions.numpy()]
        kept.append(torch.nn.functional.normalize(features.float()).cpu().numpy()[inside])
    predicted, confidence, component = torch.cat(parts, 1)
    test = test.drop(columns="part").assign(
        session=session,
        predicted=np.asarray(seen)[predicted.long().numpy()],
        component=component.long().numpy(),
        confidence=confidence.numpy().round(6),
    )
    points = test.loc[shown, ["session", "id", "label", "domain", "component"]]
    coordinates = embed(np.concatenate(kept), method.params.seed)
    return test, points.assign(x=coordinates[:, 0], y=coordinates[:, 1])


def choose_shown(test: pd.DataFrame, seed: int, session: int) -> NDArray[np.bool_]:
    """Which test images the t-SNE shows: as many of each class-domain pair."""
    order = numpy_generator(seed, "shown", session).permutation(len(test))
    pairs = test.groupby(["label", "domain"]).ngroup().to_numpy()
    each = max(1, EMBEDDED // max(1, pairs.max() + 1))
    rank = pd.Series(pairs[order]).groupby(pairs[order]).cumcount().to_numpy()
    shown = np.zeros(len(test), dtype=bool)
    shown[order[rank < each]] = True
    return shown


def session_history(
    method: Method, session: Session, seen: list[int], memory: pd.DataFrame, folder: Path
) -> History:
    """What this session tells: losses, memory, and the method's own records by class."""
    told = {
        name: [
            {**record, "class": seen[record["row"]]} if "row" in record else record
            for record in records
        ]
        for name, records in method.history.items()
    }
    return {
        "losses": read_json(folder / "learned" / "losses.json", "run `dvc repro`"),
        "memory": [
            {"session": session.index, "class": key[0], "component": key[1], "ids": ids.tolist()}
            for key, ids in sorted(memory.groupby(["label", "component"])["id"], key=lambda g: g[0])
        ],
        **told,
    }


def extend_history(before: Path, new: History) -> History:
    """The records of all sessions up to this one."""
    old: History = read_json(before / "history.json", "run `dvc repro`")
    return {name: old.get(name, []) + new.get(name, []) for name in {*old, *new}}
