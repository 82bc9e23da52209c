"""What a source of images is: something that can be fetched once and read as labelled samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dacr.data.sources.origin import read_origin

Part = Literal["train", "test"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Sample:
    """One labelled image as its source gives it, before it is resized into the benchmark.

    ``image`` is a uint8 array (H×W or H×W×3) or the encoded bytes of an image file: decoding is
    left to the builder, which does it in parallel.
    """

    image: NDArray[np.uint8] | bytes
    label: int
    domain: str
    part: Part
    source_id: str


class Source(ABC):
    """One source: ``fetch`` brings it to a folder, verified; ``read`` yields its samples."""

    name: str

    @abstractmethod
    def fetch(self, folder: Path) -> None:
        """Bring everything that ``read`` needs to ``folder`` (it exists and is empty)."""

    @abstractmethod
    def read(self, folder: Path) -> Iterator[Sample]:
        """Yield every sample that was fetched to ``folder``, in a fixed order."""

    def class_names(self, folder: Path) -> list[str] | None:
        """What the labels mean, where the fetched data say it."""
        return None

    def size(self, folder: Path) -> int | None:
        """How many samples ``read`` yields, where that is known before."""
        origin = read_origin(folder)
        return sum(origin["counts"].values()) if "counts" in origin else origin.get("images")

    def facts(self, folder: Path) -> dict[str, Any]:
        """What a report should know of the fetched data: their origin, counts, choices made."""
        return read_origin(folder)
