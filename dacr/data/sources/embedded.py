"""What the four domains of the embedded benchmark share.

Every image is drawn from a *base digit* that some installed package carries: one of scikit-learn's
handwritten digits, or the glyph of one of matplotlib's fonts. The base digits of the test part and
those of the training part are disjoint, in every domain and across domains.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import ndimage

from dacr.data.sources.base import Part, Sample, Source
from dacr.rng import numpy_generator

SEED = 2022
SIZE = 32
PER_PAIR: dict[Part, int] = {"train": 240, "test": 60}

Image = NDArray[np.uint8]
Plane = NDArray[np.float64]


class EmbeddedSource(Source):
    """A domain of 32×32 digits. Each image has a generator of its own, so order does not matter."""

    @abstractmethod
    def bases(self, label: int, part: Part) -> Sequence[str]:
        """The names of the base digits of a class that a part may use."""

    @abstractmethod
    def draw(self, base: str, rng: np.random.Generator) -> Image:
        """A new picture of that base digit."""

    def sample(self, label: int, part: Part, i: int) -> Sample:
        """The i-th image of a class in a part."""
        bases = self.bases(label, part)
        base = bases[i % len(bases)]
        rng = numpy_generator(SEED, "embedded", self.name, part, label, i)
        return Sample(self.draw(base, rng), label, self.name, part, f"{base}#{i}")

    def fetch(self, folder: Path) -> None:
        samples = [
            self.sample(label, part, i)
            for part, per_pair in PER_PAIR.items()
            for label in range(10)
            for i in range(per_pair)
        ]
        np.save(folder / "images.npy", np.stack([sample.image for sample in samples]))
        rows = [(sample.label, sample.part, sample.source_id) for sample in samples]
        table = pd.DataFrame(rows, columns=["label", "part", "source_id"])
        table.to_csv(folder / "samples.csv", index=False)

    def read(self, folder: Path) -> Iterator[Sample]:
        table = pd.read_csv(folder / "samples.csv")
        images = np.load(folder / "images.npy", mmap_mode="r")
        columns = table.label.tolist(), table.part.tolist(), table.source_id.tolist()
        for image, label, part, source_id in zip(images, *columns, strict=True):
            yield Sample(np.asarray(image), label, self.name, part, source_id)


@dataclass(frozen=True)
class Pose:
    """How far a base digit is moved at random. All bounds but ``zoom`` are symmetric about 0."""

    zoom: tuple[float, float]  # pixels of the canvas per pixel of the base digit
    degrees: float
    shear: float
    shift: float  # in pixels of the final picture


def warp(image: Plane, size: int, pose: Pose, order: int, rng: np.random.Generator) -> Plane:
    """A random affine view of ``image``, about its centre, on a canvas of ``size``² pixels."""
    angle = np.radians(rng.uniform(-pose.degrees, pose.degrees))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    slant = np.array([[1.0, 0.0], [rng.uniform(-pose.shear, pose.shear), 1.0]])
    inverse = np.linalg.inv(turn @ slant * rng.uniform(*pose.zoom))
    centre = (size - 1) / 2 + rng.uniform(-pose.shift, pose.shift, 2) * size / SIZE
    offset = (np.array(image.shape) - 1) / 2 - inverse @ centre
    view: Plane = ndimage.affine_transform(image, inverse, offset, (size, size), order=order)
    return view


def shrink(image: Plane, factor: int) -> Plane:
    """The mean of each block of ``factor``² pixels."""
    height, width, *rest = image.shape
    blocks = image.reshape(height // factor, factor, width // factor, factor, *rest)
    return np.asarray(blocks.mean((1, 3)))


def to_image(values: Plane) -> Image:
    """Intensities in [0, 255] as bytes."""
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)
