"""Domain randomisation (Meta-DR): random chains of image manipulations, on whole batches.

The manipulations and their ranges are those of the published code of Volpi and Murino (ICCV 2019),
which uses PIL one image at a time. Here they act on float images [B, 3, H, W] between 0 and 1, each
sample at a level of its own. Nothing is rounded to grey levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.runtime.device import constant, send

WHITE = 255
LUMA = (0.299, 0.587, 0.114)
SMOOTH = (1.0, 1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0)


def grayscale(images: Tensor, level: Tensor | None = None) -> Tensor:
    """The luma in all three channels; there is nothing to choose a level of."""
    weights = constant(LUMA, images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True).expand_as(images)


def blend(origin: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """From ``origin`` (factor 0) through the images (factor 1) and on, cut to what can be shown."""
    return (origin + factor * (images - origin)).clamp(0, 1)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    return blend(torch.zeros_like(images), images, factor)


def colour(images: Tensor, factor: Tensor) -> Tensor:
    return blend(grayscale(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    return blend(grayscale(images).mean((1, 2, 3), keepdim=True), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Away from a smoothed copy; the outermost pixels have too few neighbours and stay."""
    kernel = constant(SMOOTH, images.device).view(3, 3)
    kernel = (kernel / kernel.sum()).expand(3, 1, 3, 3)
    smooth = images.clone()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(images, kernel, groups=3)
    return blend(smooth, images, factor)


def autocontrast(images: Tensor, cutoff: Tensor) -> Tensor:
    """Stretch each channel to 0 … 1 after cutting ``cutoff`` percent of its pixels at both ends."""
    pixels = images.flatten(2).sort(dim=2).values
    count = pixels.shape[2]
    cut = (count * cutoff / 100).long().view(-1, 1, 1).expand(-1, 3, 1)
    low = pixels.gather(2, cut).unsqueeze(3)
    high = pixels.gather(2, count - 1 - cut).unsqueeze(3)
    spread = high - low
    stretched = ((images - low) / spread).clamp(0, 1)
    return torch.where(spread > 0, stretched, images)


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert what is at least as bright as ``threshold`` grey levels."""
    return torch.where(images >= threshold / WHITE, 1 - images, images)


def shift(images: Tensor, grey_levels: Tensor, channel: int) -> Tensor:
    """Brighten or darken one colour."""
    shifted = images.clone()
    shifted[:, channel : channel + 1] += grey_levels / WHITE
    return shifted.clamp(0, 1)


class Manipulation(NamedTuple):
    """One way to change an image, and the range that its level is drawn from."""

    apply: Callable[[Tensor, Tensor], Tensor]
    low: float
    high: float


MANIPULATIONS = {
    "autocontrast": Manipulation(autocontrast, 0.0, 0.3),
    "brightness": Manipulation(brightness, 0.6, 1.4),
    "colour": Manipulation(colour, 0.6, 1.4),
    "contrast": Manipulation(contrast, 0.6, 1.4),
    "sharpness": Manipulation(sharpness, 0.6, 1.4),
    "solarise": Manipulation(solarise, 0.0, 20.0),
    "grayscale": Manipulation(grayscale, 0.0, 0.0),
    "red": Manipulation(partial(shift, channel=0), -120.0, 120.0),
    "green": Manipulation(partial(shift, channel=1), -120.0, 120.0),
    "blue": Manipulation(partial(shift, channel=2), -120.0, 120.0),
}


class Chain(NamedTuple):
    """Manipulations one after the other, for each sample its own: both [length, B], on the CPU."""

    manipulations: Tensor
    """Positions in ``MANIPULATIONS``."""
    levels: Tensor
    """Where between the lowest and the highest level, 0 … 1."""

    def repeat(self, count: int) -> Chain:
        """The chain of one sample for ``count`` samples alike."""
        return Chain(*(part.expand(-1, count) for part in self))


def draw_chain(length: int, count: int, generator: torch.Generator) -> Chain:
    """``length`` manipulations for each of ``count`` samples, drawn with replacement."""
    shape = (length, count)
    return Chain(
        torch.randint(0, len(MANIPULATIONS), shape, generator=generator),
        torch.rand(shape, generator=generator),
    )


def manipulate(images: Tensor, chain: Chain) -> Tensor:
    """The images [B, 3, H, W] between 0 and 1 after all manipulations of their chains."""
    images = images.clone()
    counts, positions, levels = sorted_chain(chain, images.device)
    for step, sizes in enumerate(counts):
        parts = zip(positions[step].split(sizes), levels[step].split(sizes), strict=True)
        for manipulation, (own, level) in zip(MANIPULATIONS.values(), parts, strict=True):
            if len(own):
                images[own] = manipulation.apply(images[own], level.view(-1, 1, 1, 1))
    return images


def sorted_chain(chain: Chain, device: torch.device) -> tuple[list[list[int]], Tensor, Tensor]:
    """Of each step: how many samples undergo each manipulation, which ones, and at which levels.

    The samples [length, B] and their levels are sorted by manipulation on the CPU and reach the
    device in one copy, which the host does not wait for.
    """
    order = chain.manipulations.argsort(dim=1, stable=True)
    low = torch.tensor([own.low for own in MANIPULATIONS.values()])
    span = torch.tensor([own.high - own.low for own in MANIPULATIONS.values()])
    levels = low[chain.manipulations] + span[chain.manipulations] * chain.levels
    counts = [step.bincount(minlength=len(MANIPULATIONS)).tolist() for step in chain.manipulations]
    # Positions in a batch are exact as float32.
    packed = send(torch.stack([order.float(), levels.gather(1, order)]), device)
    return counts, packed[0].long(), packed[1]


class Randomisation:
    """Chains of ``length`` manipulations on standardised network inputs."""

    def __init__(self, length: int, mean: Sequence[float], std: Sequence[float]) -> None:
        self.length = length
        self._mean, self._std = tuple(mean), tuple(std)

    def each(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Randomise the current domain: a chain for every image."""
        return self._apply(images, draw_chain(self.length, len(images), generator))

    def domain(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Make up another domain: one chain for all images."""
        return self._apply(images, draw_chain(self.length, 1, generator).repeat(len(images)))

    def _apply(self, images: Tensor, chain: Chain) -> Tensor:
        mean, std = (
            constant(own, images.device).view(1, 3, 1, 1) for own in (self._mean, self._std)
        )
        return (manipulate((images * std + mean).clamp(0, 1), chain) - mean) / std
