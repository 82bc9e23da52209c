"""A stream of sessions from the files ``images.npy`` and ``stream.pt``; it needs torch and NumPy.

    from stream import Images, load
    stream = load(".")
    for t, ids in enumerate(stream["train"]):
        train, seen = Images(stream, ids), Images(stream, stream["seen"][t])

``images`` uint8 [N, height, width, 3]; ``labels`` [N]; ``ids`` [N], the numbers of the images in
the benchmark; ``domains`` [N] where they were asked for; ``classes`` and ``domain_names``;
``train``, ``test`` and ``seen``: of each session the rows to train on, the test rows of its own
class-domain pairs, and the test rows of every pair seen so far.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

Stream = dict[str, Any]


def load(folder: str | Path = ".") -> Stream:
    """The stream in ``folder``; images stay on disk until they are used."""
    stream: Stream = torch.load(Path(folder, "stream.pt"), weights_only=True)
    return stream | {"images": np.load(Path(folder, "images.npy"), mmap_mode="r")}


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Some rows of a stream: float tensors [3, height, width] in [0, 1], with their labels."""

    def __init__(self, stream: Stream, rows: torch.Tensor) -> None:
        self._images, self.rows = stream["images"], rows
        self.ids: list[int] = stream["ids"][rows].tolist()
        self.targets: list[int] = stream["labels"][rows].tolist()
        domains = stream.get("domains")
        self.domains: list[int] | None = None if domains is None else domains[rows].tolist()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        image = self._images[int(self.rows[number])].transpose(2, 0, 1)
        return torch.from_numpy(image / np.float32(255)), self.targets[number]
