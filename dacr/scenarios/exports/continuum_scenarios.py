"""A stream of sessions as scenarios of continuum (1.2).

    from continuum_scenarios import scenarios
    from stream import load
    train, test, seen = scenarios(load("."))
    for t, tasks in enumerate(train):
        for images, labels, _ in DataLoader(tasks, batch_size=32): ...
        DataLoader(seen[t])

Task t is session t + 1: of ``train`` its training images, of ``test`` the test images of its own
class-domain pairs, of ``seen`` those of everything seen so far. Images are copied into memory.
"""

from typing import Any

import numpy as np
import torch
from continuum.datasets import InMemoryDataset
from continuum.scenarios import ContinualScenario

from dacr.scenarios.exports.stream import Stream

PARTS = ("train", "test", "seen")


def scenarios(stream: Stream, transformations: Any = None) -> tuple[Any, Any, Any]:
    """The scenarios train, test and seen; ``transformations`` are those of continuum."""
    train, test, seen = (_scenario(stream, part, transformations) for part in PARTS)
    return train, test, seen


def _scenario(stream: Stream, part: str, transformations: Any) -> Any:
    rows = torch.cat(stream[part]).numpy()
    tasks = np.repeat(np.arange(len(stream[part])), [len(own) for own in stream[part]])
    labels = stream["labels"].numpy()[rows]
    data = InMemoryDataset(stream["images"][rows], labels, tasks, train=part == "train")
    return ContinualScenario(data, transformations=transformations)
