"""Predictions of every session on the pairs that it has not seen yet, for forward transfer.

They are no part of a run: it would take as long again as all its other predictions.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dacr.config import Params
from dacr.data.benchmark import Benchmark
from dacr.runtime.progress import IMAGES, AmountProgress
from dacr.sessions.places import BENCHMARK, run_folder
from dacr.sessions.predict import BATCH, Predictor, TrainedRun

PAIR = ["label", "domain"]


def future_predictions(params: Params, schedule: pd.DataFrame, root: Path) -> pd.DataFrame:
    """(session, id, label, domain, predicted) of all test images that session t has yet to meet."""
    benchmark = Benchmark.open(root / BENCHMARK)
    test = benchmark.index[benchmark.index["part"] == "test"]
    first = schedule.rename(columns={"class": "label"}).groupby(PAIR)["session"].min()
    known = test.merge(first.rename("since").reset_index(), on=PAIR)
    parts = []
    for key, link in params.schedule.sessions.items():
        ahead = known[known["since"] > link.index].sort_values("id", ignore_index=True)
        if ahead.empty:
            continue
        name, state = f"session {link.index}", root / run_folder(key).state
        predictor = Predictor(TrainedRun(name, state, root / BENCHMARK, params, None), 0)
        predicted = _labels(predictor, benchmark, ahead["id"].tolist(), name)
        own = ahead[["id", *PAIR]].assign(session=link.index, predicted=predicted)
        parts.append(own)
    columns = ["session", "id", *PAIR, "predicted"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


def _labels(predictor: Predictor, benchmark: Benchmark, ids: list[int], name: str) -> list[int]:
    labels: list[int] = []
    progress = AmountProgress(f"{name} on what it has yet to see", len(ids), IMAGES)
    try:
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            labels += [own.label for own in predictor(benchmark.images[batch])]
            progress.step(len(batch))
    finally:
        progress.close()
    return labels
