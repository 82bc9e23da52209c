"""White handwriting on black, in MNIST's role: scikit-learn's 1,797 real 8×8 digits."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from dacr.data.sources.base import Part
from dacr.data.sources.embedded import (
    SEED,
    SIZE,
    EmbeddedSource,
    Image,
    Plane,
    Pose,
    to_image,
    warp,
)
from dacr.rng import numpy_generator

TEST_FRACTION = 0.2
POSE = Pose(zoom=(2.7, 3.4), degrees=12, shear=0.15, shift=1.5)


@cache
def _digits() -> tuple[Plane, np.ndarray]:
    """The digits as [1797, 8, 8] in [0, 1], and their labels."""
    digits = load_digits()
    return digits.images / 16, digits.target


@cache
def base_digits(label: int, part: Part) -> tuple[str, ...]:
    """The digits of a class, shared out once between the two parts for every domain."""
    (indices,) = np.nonzero(_digits()[1] == label)
    shuffled = numpy_generator(SEED, "embedded", "base digits", label).permutation(indices)
    n_test = round(TEST_FRACTION * len(indices))
    chosen = shuffled[:n_test] if part == "test" else shuffled[n_test:]
    return tuple(f"sklearn-digit-{index:04d}" for index in chosen)


def handwriting(base: str, rng: np.random.Generator) -> Plane:
    """The ink of a base digit in [0, 1] at 32×32: a spline through its pixels, a little moved."""
    digit = _digits()[0][int(base.rpartition("-")[2])]
    smooth = warp(np.pad(digit, 2), SIZE, POSE, 3, rng)
    thin = rng.uniform(0.25, 0.5)
    edge = np.clip((smooth - thin + 0.15) / 0.3, 0, 1)
    return edge * edge * (3 - 2 * edge) * rng.uniform(0.85, 1)


class Handwritten(EmbeddedSource):
    name = "handwritten"

    def bases(self, label: int, part: Part) -> tuple[str, ...]:
        return base_digits(label, part)

    def draw(self, base: str, rng: np.random.Generator) -> Image:
        return to_image(255 * handwriting(base, rng))


SOURCE = Handwritten()
