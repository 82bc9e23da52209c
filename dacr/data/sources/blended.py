"""Handwriting blended over photographs, in MNIST-M's role and made as it: |photograph − digit|."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_sample_images

from dacr.data.sources.base import Part
from dacr.data.sources.embedded import SIZE, EmbeddedSource, Image, Plane, shrink, to_image
from dacr.data.sources.handwritten import base_digits, handwriting


@cache
def _photographs() -> list[Plane]:
    return [image.astype(np.float64) for image in load_sample_images().images]


def patch(rng: np.random.Generator) -> Plane:
    """A random square of one of the two photographs, seen from one of three distances."""
    photographs = _photographs()
    photograph = photographs[rng.integers(len(photographs))]
    distance = int(rng.integers(1, 4))
    side = SIZE * distance
    top, left = (rng.integers(extent - side + 1) for extent in photograph.shape[:2])
    return shrink(photograph[top : top + side, left : left + side], distance)


class Blended(EmbeddedSource):
    name = "blended"

    def bases(self, label: int, part: Part) -> tuple[str, ...]:
        return base_digits(label, part)

    def draw(self, base: str, rng: np.random.Generator) -> Image:
        digit = 255 * handwriting(base, rng)[..., None]
        return to_image(np.abs(patch(rng) - digit))


SOURCE = Blended()
