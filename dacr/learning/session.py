"""Problem setup (Sec. 3.1): what a learner is handed at session t, and nothing else.

The learner sees D̃_t = D_t ∪ M_t: images, labels and an is-memory flag. It cannot reach domain
labels, past images outside the memory, or test images: a `TrainingView` holds no table and no
array, only a function that answers for positions inside D̃_t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dacr.errors import UserError
from dacr.learning.feed import Feed

Images = NDArray[np.uint8]
ReadImages = Callable[[NDArray[np.int64]], Images]


def reader_of(images: Images, ids: NDArray[np.int64]) -> ReadImages:
    """A reader of the images ``ids`` alone, by position; every other image is out of reach."""
    if ids.size and (ids.min() < 0 or ids.max() >= len(images)):
        raise UserError(
            "a session table names images that the benchmark does not hold; run `dvc repro split`"
        )

    def read(positions: NDArray[np.int64]) -> Images:
        if positions.size and (positions.min() < 0 or positions.max() >= len(ids)):
            raise IndexError("a position outside D_t ∪ M_t")
        return images[ids[positions]]

    return read


class TrainingView:
    """D̃_t as the learner sees it: ``labels`` (rows), ``is_memory`` and images by position."""

    __slots__ = ("_feeds", "_read", "is_memory", "labels")

    def __init__(self, read: ReadImages, labels: Tensor, is_memory: Tensor) -> None:
        self._read = read
        self._feeds: dict[torch.device, Feed] = {}
        self.labels = labels
        self.is_memory = is_memory

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, positions: Tensor) -> Tensor:
        """The uint8 images [B, H, W, 3] at ``positions``."""
        return torch.from_numpy(self._read(positions.numpy()))

    def feed(self, device: torch.device) -> Feed:
        """The same images on a device; all that ask share what is there already."""
        if device not in self._feeds:
            self._feeds[device] = Feed(self.images, len(self), device)
        return self._feeds[device]


@dataclass(frozen=True)
class Session:
    """Session t: its data and the sets of classes that the paper speaks of, as rows.

    A row is the position of a class in the order of first appearance, so the old classes are the
    rows below ``n_old`` and the label space of the model is ``range(n_seen)``.
    """

    index: int
    n_old: int
    n_seen: int
    data: TrainingView

    @property
    def incoming(self) -> Tensor:
        """The rows of C_t: the classes that D_t has images of."""
        incoming: Tensor = self.data.labels[~self.data.is_memory].unique()
        return incoming

    @property
    def new(self) -> Tensor:
        """The rows of C_t that were never seen before; empty in every ND session but the first."""
        return torch.arange(self.n_old, self.n_seen)


def extend_seen(seen: list[int], labels: NDArray[np.int64]) -> list[int]:
    """The classes in order of first appearance, after a session with these labels."""
    return seen + sorted(set(labels.tolist()) - set(seen))


def open_session(
    index: int,
    images: Images,
    seen_before: list[int],
    incoming: tuple[NDArray[np.int64], NDArray[np.int64]],
    memory: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Session:
    """Session ``index`` from (ids, class labels) of D_t and of M_t."""
    ids = np.concatenate([incoming[0], memory[0]])
    labels = np.concatenate([incoming[1], memory[1]])
    seen = extend_seen(seen_before, incoming[1])
    row = {label: position for position, label in enumerate(seen)}
    rows = torch.tensor([row[label] for label in labels.tolist()], dtype=torch.long)
    is_memory = torch.arange(len(ids)) >= len(incoming[0])
    view = TrainingView(reader_of(images, ids), rows, is_memory)
    return Session(index, len(seen_before), len(seen), view)
