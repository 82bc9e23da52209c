"""A trained run as a function: images in; class, confidence, component, nearest exemplars out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dacr.config import Params
from dacr.data.benchmark import INDEX, SUMMARY, Benchmark, open_summary, read_index
from dacr.errors import UserError
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.model.heads import MixtureHead
from dacr.runtime.device import make_deterministic, pick_device
from dacr.sessions.state import load_model, read_start

BATCH = 256

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class TrainedRun:
    """Where the state of a session and its benchmark lie, and what it was trained with."""

    name: str
    state: Path
    benchmark: Path
    params: Params
    note: str | None
    """What the user should know about where the parameters come from."""
    exemplars: bool = True
    """Whether the images of its memory can be had; a published model comes without them."""


def other_benchmark(folder: Path, run: str) -> UserError:
    return UserError(
        f"{folder} is not the benchmark that {run} was trained on; run `dvc checkout` or "
        "`dvc repro`"
    )


@dataclass(frozen=True)
class Exemplar:
    """An image of the memory and how near it is: the cosine of the two features."""

    id: int
    label: int
    class_name: str
    domain: str
    similarity: float


@dataclass(frozen=True)
class Prediction:
    label: int
    class_name: str
    confidence: float
    component: int | None
    """The component of the predicted class that the image fell into; None without a mixture."""
    components: int | None
    """How many the class has."""
    component_exemplars: int | None
    """How many exemplars in memory fell into the same component."""
    exemplars: list[Exemplar]


class Predictor:
    """The model of a run in memory, with the features of its exemplars if they are asked for."""

    def __init__(self, run: TrainedRun, exemplars: int) -> None:
        self.run = run
        self.size = run.params.data.image_size
        make_deterministic(run.params.train)
        self.method = _load(run)
        start = read_start(run.state)
        self.seen = start.seen
        if not self.seen:
            raise UserError(f"{run.name} has learned no class yet; name a later session")
        self.classes: list[str] = open_summary(run.benchmark / SUMMARY)["classes"]
        if max(self.seen) >= len(self.classes):
            self._refuse_benchmark()
        self.kept = Counter(zip(start.memory["label"], start.memory["component"], strict=True))
        self.k = min(exemplars, len(start.memory)) if run.exemplars else 0
        self.memory_ids, self.memory_labels = start.exemplars()
        self.memory_domains: list[str] = []
        self.memory_images = self._memory_images() if self.k else np.empty(0, np.uint8)
        if not self.k and (run.benchmark / INDEX).exists():  # a published model has none
            self._check_labels(read_index(run.benchmark)[1])
        self.memory_features = self._memory_features() if self.k else torch.empty(0)

    def __call__(self, images: Images) -> list[Prediction]:
        """Of uint8 images [B, size, size, 3], what the run says of each."""
        features = self._features(images)
        with torch.no_grad():
            if self.method.classifier.scores(features[:1]).shape[1] != len(self.seen):
                raise UserError(f"{self.run.name} is damaged: run `dvc repro`")
            answer = [part.tolist() for part in self.method.answer(features)]
        nearest = self._nearest(features)
        return [self._prediction(*facts) for facts in zip(*answer, nearest, strict=True)]

    def _prediction(
        self, row: int, confidence: float, component: int, near: list[Exemplar]
    ) -> Prediction:
        label, head = self.seen[row], self.method.head
        components = int(head.counts()[row]) if isinstance(head, MixtureHead) else None
        return Prediction(
            label=label,
            class_name=self.classes[label],
            confidence=confidence,
            component=component if components else None,
            components=components,
            component_exemplars=self.kept[label, component] if components else None,
            exemplars=near,
        )

    @torch.no_grad()
    def _features(self, images: Images) -> Tensor:
        return self.method.features_of(torch.from_numpy(images))

    def _check_labels(self, index: pd.DataFrame) -> None:
        """The names of classes come from the benchmark, so that it must be the run's own."""
        if not np.array_equal(index["label"].reindex(self.memory_ids), self.memory_labels):
            self._refuse_benchmark()

    def _memory_images(self) -> Images:
        benchmark = Benchmark.open(self.run.benchmark)
        index, ids = benchmark.index, self.memory_ids
        if benchmark.image_size != self.size:
            self._refuse_benchmark()
        self._check_labels(index)
        rows = index.iloc[ids]
        self.memory_domains = [benchmark.domains[domain] for domain in rows["domain"]]
        images: Images = benchmark.images[ids]
        return images

    def _refuse_benchmark(self) -> None:
        raise other_benchmark(self.run.benchmark, self.run.name)

    def _memory_features(self) -> Tensor:
        parts = [
            self._features(self.memory_images[start : start + BATCH])
            for start in range(0, len(self.memory_images), BATCH)
        ]
        return F.normalize(torch.cat(parts).float(), dim=1)

    def _nearest(self, features: Tensor) -> list[list[Exemplar]]:
        if not self.k:
            return [[] for _ in features]
        cosines = F.normalize(features.float(), dim=1) @ self.memory_features.T
        values, places = cosines.topk(self.k, dim=1)
        return [
            [
                Exemplar(
                    id=int(self.memory_ids[place]),
                    label=int(self.memory_labels[place]),
                    class_name=self.classes[self.memory_labels[place]],
                    domain=self.memory_domains[place],
                    similarity=value,
                )
                for value, place in zip(own_values, own_places, strict=True)
            ]
            for own_values, own_places in zip(values.tolist(), places.tolist(), strict=True)
        ]

    def image_of(self, exemplar: Exemplar) -> Images:
        """The pixels of an exemplar, as they lie in the benchmark."""
        (place,) = np.flatnonzero(self.memory_ids == exemplar.id)[:1]
        image: Images = self.memory_images[place]
        return image


def _load(run: TrainedRun) -> Method:
    method = make_method(run.params, pick_device())
    load_model(method, run.state)
    if not all(tensor.isfinite().all() for tensor in method.state_dict().values()):
        raise UserError(
            f"the weights of {run.name} are not all numbers: its training went astray; train it "
            "again with a smaller train.lr"
        )
    method.eval()
    return method
