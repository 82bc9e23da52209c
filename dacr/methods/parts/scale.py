"""How much a session has to do: what the parts of a method count their passes by.

A pass is one image through one extractor. Each part says how often it asks for passes, next to the
code that asks; `dacr.experiments.work` adds them up, and a test counts real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dacr.config import Params


@dataclass(frozen=True)
class Scale:
    """Session t, without its images."""

    index: int
    images: int
    """Of D̃_t."""
    balanced: int
    """Of the largest part of D̃_t with equally many images of every class."""
    test: int
    """Test images of everything seen so far."""
    params: Params
    options: Any
    augmented: bool

    @property
    def first(self) -> bool:
        return self.index == 1

    @property
    def trained(self) -> int:
        """How many images the main phase trains on, each epoch anew."""
        return self.params.train.epochs * self.images

    @property
    def views(self) -> int | None:
        """How many training views an image has; None if there is a new one in every epoch."""
        return self.params.augmentation.views if self.augmented else 1

    def teacher(self, networks: int, asked: int) -> int:
        """Passes of a teacher of so many networks whose answers on ``asked`` images are needed.

        Where images have a fixed number of views, it sees D̃_t once in each; its answers are kept.
        """
        return networks * (asked if self.views is None else self.views * self.images)
