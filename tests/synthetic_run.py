"""A made-up but plausible run, so that evaluation and report are tried without any training.

It writes the very files that the pipeline's earlier stages write: ``data/benchmark``,
``data/split``, ``runs/<tt>`` and ``params.yaml``.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from dvc.utils.serialize import dumps_yaml

from dacr.config import load_params
from dacr.data.benchmark import count, pixels_hash
from dacr.data.shares import first_appearances
from dacr.runtime.compose import compose
from stages import evaluate, measure, report
from tests.schedules import make_schedule, write_split

RULES: dict[str, dict[str, Any]] = {
    "nc": {"sessions": 5},
    "nd": {"sessions": 4, "domains_per_session": [1, 1, 1, 1]},
    "ncd": {"sessions": 10, "new_classes": [4, 3, 2, 1, 0, 0, 0, 0, 0, 0]},
    "repeat": {"sessions": 10, "times": 2},
}


@dataclass
class SyntheticRun:
    """``write(folder)`` lays the run out; the attributes are what went into the files."""

    split: str = "ncd"
    method: str = "der_dacr"
    benchmark: str = "idigits_mini"
    classes: list[str] = field(default_factory=lambda: [str(digit) for digit in range(10)])
    domains: list[str] = field(
        default_factory=lambda: ["handwritten", "street", "blended", "rendered"]
    )
    train_per_pair: int = 24
    test_per_pair: int = 12
    epochs: int = 12
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        rule = RULES[self.split]
        self.schedule = make_schedule(self.split, len(self.classes), len(self.domains), **rule)
        self.sessions = rule["sessions"]
        self.mixture = self.method.endswith("_dacr")
        self.index = self._index()
        self.predictions = self._predictions()
        self.history = self._history()
        self.embedding = self._embedding()
        self.params = self._params()

    def _index(self) -> pd.DataFrame:
        rows = [
            (c, d, part, f"{part}/{c}/{d}/{i}")
            for c in range(len(self.classes))
            for d in range(len(self.domains))
            # Unequal sizes, so that a pooled mean and a mean over pairs differ.
            for part, n in (
                ("train", self.train_per_pair),
                ("test", self.test_per_pair + 5 * d + c),
            )
            for i in range(n)
        ]
        index = pd.DataFrame(rows, columns=["label", "domain", "part", "source_id"])
        return index.assign(id=np.arange(len(index), dtype=np.int64))

    def _predictions(self) -> pd.DataFrame:
        test = self.index[self.index["part"] == "test"]
        first = first_appearances(self.schedule)[["session", "class", "domain"]]
        since = first.rename(columns={"class": "label", "session": "since"})
        test = test.merge(since, on=["label", "domain"])
        tables = []
        for session in range(1, self.sessions + 1):
            seen = test[test["since"] <= session]
            age = session - seen["since"]
            skill = 0.97 - 0.06 * seen["domain"] - (0.02 if self.mixture else 0.05) * age
            right = self.random.random(len(seen)) < skill
            known = self.schedule[self.schedule["session"] <= session]["class"].unique()
            guess = self.random.choice(known, len(seen))
            mixed = self.random.random(len(seen)) < 0.15
            component = np.where(mixed, self.random.integers(0, 3, len(seen)), seen["domain"])
            tables.append(
                pd.DataFrame(
                    {
                        "session": session,
                        "id": seen["id"].to_numpy(),
                        "label": seen["label"].to_numpy(),
                        "domain": seen["domain"].to_numpy(),
                        "predicted": np.where(right, seen["label"], guess),
                        "component": component if self.mixture else 0,
                        "confidence": self.random.random(len(seen)).astype(np.float32),
                    }
                )
            )
        return pd.concat(tables, ignore_index=True)

    def _history(self) -> dict[str, Any]:
        history: dict[str, Any] = {"losses": [], "components": [], "merges": []}
        history |= {"memory": [], "kappa": [], "costs": []}
        count: dict[int, int] = {}
        for session, brought in self.schedule.groupby("session"):
            classes = sorted({int(c) for c in brought["class"]})
            for epoch in range(1, self.epochs + 1):
                inter = 2.1 * np.exp(-epoch / 3) + 0.02 * int(session) + 0.1 * self.random.random()
                terms = {"inter": round(float(inter), 6)}
                if self.mixture:
                    terms |= {"intra": round(0.3 / epoch, 6), "reg": -0.02}
                    terms |= {"dis": round(0.2 / epoch, 6)} if session > 1 else {}
                row = {"session": int(session), "phase": "expand", "epoch": epoch}
                history["losses"].append(row | terms)
            for c in classes if self.mixture else []:
                before = count.get(c, 0) + 10
                after = count.get(c, 0) + int(self.random.integers(1, 3))
                dropped = int(self.random.integers(2, 6))
                record = {"session": int(session), "class": c, "before": before, "after": after}
                merged = before - after - dropped
                history["components"].append(record | {"dropped": dropped, "merged": merged})
                count[c] = after
                for k in range(merged):
                    distance = round(float(self.random.uniform(0.05, 0.69)), 4)
                    merge = {"session": int(session), "class": c, "distance": distance}
                    merge |= {"left": [k], "right": [k + 1, k + 2]}
                    history["merges"].append(merge | {"left_support": 9, "right_support": 3})
            if self.mixture:
                history["kappa"].append({"session": int(session), "kappa": 16.0 + int(session) / 4})
            history["memory"] += self._memory(int(session))
        return history

    def _memory(self, session: int) -> list[dict[str, Any]]:
        since = self.schedule[self.schedule["session"] <= session]
        train = self.index[self.index["part"] == "train"]
        seen = train.merge(since.rename(columns={"class": "label"}), on=["label", "domain"])
        quota = 80 // seen["label"].nunique()
        return [
            {"session": session, "class": int(c), "component": 0, "count": quota, "ids": ids}
            for c, rows in seen.groupby("label")
            for ids in [sorted(int(i) for i in self.random.choice(rows["id"], quota, False))]
        ]

    def _params(self) -> dict[str, Any]:
        choice = [f"benchmark={self.benchmark}", f"split={self.split}", f"method={self.method}"]
        with TemporaryDirectory() as folder:
            compose(choice, Path(folder) / "params.yaml")
            params = load_params(Path(folder) / "params.yaml")
        return params.model_dump(mode="json", by_alias=True)

    def _embedding(self) -> pd.DataFrame:
        """Groups by class, and inside a class by domain, as a good mixture has them."""
        rows = self.predictions.groupby(["session", "label", "domain"]).head(6)
        centre = self.random.normal(size=(len(self.classes), 2)) * 40
        offset = self.random.normal(size=(len(self.domains), 2)) * 6
        places = centre[rows["label"]] + offset[rows["domain"]]
        places = (places + self.random.normal(size=places.shape)).round(4)
        columns = ["session", "id", "label", "domain", "component"]
        return rows[columns].assign(x=places[:, 0], y=places[:, 1])

    def benchmark_json(self) -> dict[str, Any]:
        return {
            "name": self.benchmark,
            "classes": self.classes,
            "domains": self.domains,
            "image_size": 32,
            "counts": count(self.index, len(self.classes), len(self.domains)),
            "paper": None,
            "origins": {},
        }

    def budget(self) -> dict[str, Any]:
        """As stage ``budget`` would count it, which needs a trained model."""
        sessions = [
            {"session": t, "extractors": t, "images_trained": 500, "images_forward": 40 * t,
             "training_flops": 10**12}
            for t in range(1, self.sessions + 1)
        ]  # fmt: skip
        return {
            "parameters": 322_369, "model_bytes": 1_300_646, "exemplars": 50,
            "exemplar_bytes": 153_600, "images_trained": 500 * self.sessions, "images_forward": 900,
            "training_flops": 10**12 * self.sessions, "prediction_flops": 25_001_984,
            "by_session": sessions,
        }  # fmt: skip

    def images(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A plain picture for each image: the domain's colour, brighter with the class."""
        colours = np.array([[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167]])
        shade = 0.3 + 0.07 * self.index["label"].to_numpy()[:, None] % 0.7
        flat = (colours[self.index["domain"].to_numpy() % 4] * shade).astype(np.uint8)
        return np.broadcast_to(flat[:, None, None, :], (len(flat), 32, 32, 3))

    def write(self, folder: Path) -> None:
        benchmark, run = folder / "data/benchmark", folder / f"runs/{self.sessions:02d}/results"
        benchmark.mkdir(parents=True)
        run.mkdir(parents=True)
        np.save(benchmark / "images.npy", self.images())
        columns = ["id", "label", "domain", "part", "source_id", "pixels"]
        index = self.index.assign(pixels=[pixels_hash(image) for image in self.images()])
        index[columns].to_parquet(benchmark / "index.parquet", index=False)
        (benchmark / "benchmark.json").write_text(json.dumps(self.benchmark_json()))
        write_split(self.schedule, index, folder / "data/split")
        self.predictions.to_parquet(run / "predictions.parquet", index=False)
        self.embedding.to_parquet(run / "embedding.parquet", index=False)
        (run / "history.json").write_text(json.dumps(self.history))
        (folder / "reports").mkdir()
        (folder / "reports/budget.json").write_text(json.dumps(self.budget()))
        (folder / "params.yaml").write_text(dumps_yaml(self.params))


def make_report(run: SyntheticRun, folder: Path) -> Path:
    """Lay the run out in ``folder``, evaluate it and report on it by the stages; the page."""
    run.write(folder)
    (folder / "conf").symlink_to(Path("conf").resolve())
    rerun(folder)
    return folder / "reports/index.html"


def rerun(folder: Path) -> None:
    """The stages that read predictions, in a run that is laid out already."""
    with contextlib.chdir(folder):
        evaluate.main()
        measure.main()
        report.main()
