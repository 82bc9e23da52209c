"""Session t, second half: reduce the mixtures, choose the memory, predict on everything seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dacr.config import Params
from dacr.model.heads import MixtureHead
from dacr.rng import numpy_generator
from dacr.runtime.json_files import read_json
from dacr.runtime.provenance import record
from dacr.sessions.embedding import embed
from dacr.sessions.history import (
    REMEDY,
    History,
    extend_results,
    memory_history,
    mixture_history,
)
from dacr.sessions.learn import Opened, open_stage
from dacr.sessions.places import run_folder
from dacr.sessions.state import load_model, write_state

BATCH = 256
EMBEDDED = 600
"""How many test images the t-SNE picture of a session shows."""


def consolidate(params: Params, key: str) -> None:
    """Stage ``consolidate@key``: from ``learned`` to the state and results of session t."""
    opened = open_stage(params, key)
    method, session = opened.method, opened.session
    run, before = run_folder(key), run_folder(params.schedule.sessions[key].prev)
    load_model(method, run.learned)
    with record("consolidate", key, params):
        features = method.session_features(session)
        told = reduce(opened, features)
        memory = choose_memory(opened, features)
        tested = predict(opened)
        write_state(method, run.state, session=session.index, seen=opened.seen, memory=memory)
        losses = read_json(run.learned / "losses.json", REMEDY)
        new = {"losses": losses, **memory_history(session.index, memory), **told}
        extend_results(
            before.results,
            run.results,
            new,
            predictions=tested.predictions,
            embedding=embedding(tested, params.seed),
        )


def reduce(opened: Opened, features: Tensor) -> History:
    """Consolidate the classifier; what that did to its mixtures, if it has any."""
    method, session = opened.method, opened.session
    head = method.head
    if not isinstance(head, MixtureHead):
        method.consolidate(session, features)
        return {}
    before = head.counts().tolist()
    reduced = method.consolidate(session, features)
    return mixture_history(session.index, opened.seen, before, reduced, head)


def choose_memory(opened: Opened, features: Tensor) -> pd.DataFrame:
    """M_{t+1} as a table: the exemplars' ids, classes and components."""
    method, session = opened.method, opened.session
    chosen = method.exemplars(session, features)
    if len(chosen) > method.params.memory.size:
        raise RuntimeError("the memory is larger than memory.size")
    rows = session.data.labels[chosen].to(features.device)
    components = method.classifier.components(features[chosen.to(features.device)], rows)
    memory = opened.available.iloc[chosen.numpy()].reset_index(drop=True)
    return memory.assign(component=components.cpu().numpy()).astype("int64")


@dataclass(frozen=True)
class Tested:
    """Predictions on the test images of every pair seen so far."""

    predictions: pd.DataFrame
    shown: NDArray[np.bool_]
    """Which of them the t-SNE shows …"""
    features: NDArray[np.float32]
    """… and their unit features."""


@torch.no_grad()
def predict(opened: Opened) -> Tested:
    method, session = opened.method, opened.session
    test = opened.table[opened.table["part"] == "test"].sort_values("id", ignore_index=True)
    row_of = {label: row for row, label in enumerate(opened.seen)}
    rows = torch.tensor([row_of[label] for label in test["label"]], dtype=torch.long)
    shown = choose_shown(test, method.params.seed, session.index)
    kept: list[NDArray[np.float32]] = []
    parts: list[Tensor] = []
    method.eval()
    for positions in torch.arange(len(test)).split(BATCH):
        ids = test["id"].to_numpy()[positions.numpy()]
        features = method.features_of(torch.from_numpy(opened.benchmark.images[ids]))
        # Purity asks into which component of its own class an image falls.
        answer = method.answer(features, rows[positions].to(method.device))
        parts.append(torch.stack([part.double() for part in answer]).cpu())
        inside = shown[positions.numpy()]
        kept.append(torch.nn.functional.normalize(features.float()).cpu().numpy()[inside])
    predicted, confidence, component = torch.cat(parts, 1)
    predictions = test.drop(columns="part").assign(
        session=session.index,
        predicted=np.asarray(opened.seen)[predicted.long().numpy()],
        component=component.long().numpy(),
        confidence=confidence.numpy().round(6),
    )
    return Tested(predictions, shown, np.concatenate(kept))


def embedding(tested: Tested, seed: int) -> pd.DataFrame:
    """A t-SNE of some of the test images."""
    columns = ["session", "id", "label", "domain", "component"]
    points = tested.predictions.loc[tested.shown, columns]
    coordinates = embed(tested.features, seed)
    return points.assign(x=coordinates[:, 0], y=coordinates[:, 1])


def choose_shown(test: pd.DataFrame, seed: int, session: int) -> NDArray[np.bool_]:
    """Which test images the t-SNE shows: as many of each class-domain pair."""
    order = numpy_generator(seed, "shown", session).permutation(len(test))
    pairs = test.groupby(["label", "domain"]).ngroup().to_numpy()
    each = max(1, EMBEDDED // max(1, pairs.max() + 1))
    rank = pd.Series(pairs[order]).groupby(pairs[order]).cumcount().to_numpy()
    shown = np.zeros(len(test), dtype=bool)
    shown[order[rank < each]] = True
    return shown
