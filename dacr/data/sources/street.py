"""House numbers on a wall, in SVHN's role: faint, blurred, noisy type between its neighbours."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from dacr.data.sources.base import Part
from dacr.data.sources.embedded import SIZE, EmbeddedSource, Image, Pose, to_image
from dacr.data.sources.rendered import among_neighbours, glyphs, printed, ramp

POSE = Pose(zoom=(0.85, 1.15), degrees=8, shear=0.15, shift=1.5)


class Street(EmbeddedSource):
    name = "street"

    def bases(self, label: int, part: Part) -> tuple[str, ...]:
        return glyphs(label, part)

    def draw(self, base: str, rng: np.random.Generator) -> Image:
        face, digit = base.split("/")
        gap = int(rng.integers(0, 3))
        ink = printed(face, among_neighbours(digit, 0.9, rng), gap, POSE, rng)[..., None]
        wall = rng.uniform(70, 185) + rng.normal(0, 14, 3)
        contrast = rng.choice([-1, 1]) * rng.uniform(30, 60) + rng.normal(0, 6, 3)
        light = 1 + rng.uniform(0, 0.3) * ramp(rng)[..., None]
        blur = rng.uniform(0.8, 1.6)
        picture = ndimage.gaussian_filter(light * (wall + contrast * ink), (blur, blur, 0))
        return to_image(picture + rng.normal(0, 9, (SIZE, SIZE, 3)))


SOURCE = Street()
