"""From packed uint8 images to the network's input (appendix, 'Data Augmentation').

Whole batches are transformed at once on their device, each sample by parameters of its own. These
are drawn on the CPU, so that every device sees the same ones. Each operation is torchvision's, and
the order is the reference's: crop, flip, jitter, float, normalise. The arithmetic is in float
throughout, where PIL would round to whole grey levels between two operations.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import log
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from dacr import config
from dacr.errors import UserError
from dacr.runtime.device import send

WHITE = 255.0
PADDING = 4
BRIGHTNESS = 63 / 255
AREA_SCALE = (0.08, 1.0)
ASPECT_RATIO = (3 / 4, 4 / 3)
TRIES = 10


Draw = tuple[Any, ...]
"""The random parameters of samples: tensors with one entry per sample, or tuples of such."""


def draw_of(draw: Draw, positions: Tensor) -> Draw:
    """The parameters of the samples at ``positions`` alone."""
    own = [draw_of(t, positions) if isinstance(t, tuple) else t[positions] for t in draw]
    return type(draw)(*own) if hasattr(draw, "_fields") else tuple(own)


class CropFlipJitterDraw(NamedTuple):
    """Of each sample: the crop's corner in the padded image, mirrored or not, brightness factor."""

    top: Tensor
    left: Tensor
    flip: Tensor
    brightness: Tensor


class Boxes(NamedTuple):
    """Of each sample: the part of the image that is resized to the network's input."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


class ResizedCropFlipDraw(NamedTuple):
    boxes: Boxes
    flip: Tensor


class Augmentation(ABC):
    """What a batch of images undergoes before the network sees it, in training and in testing.

    Both take uint8 [B, H, W, 3] and give float [B, 3, image_size, image_size] in channels_last.
    """

    random: ClassVar[bool]
    """Whether two training passes over an image can differ."""

    def __init__(
        self,
        image_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        views: int | None = None,
    ) -> None:
        self.image_size = image_size
        self.views = views if self.random else 1
        """How many training views an image has in a session; None: a new one in every epoch."""
        self._mean = WHITE * torch.tensor(mean)
        self._std = WHITE * torch.tensor(std)
        self._rows: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}

    @abstractmethod
    def draw(self, shape: torch.Size, generator: torch.Generator) -> Draw:
        """Random parameters for images of this shape; ``generator`` is a CPU one."""

    @abstractmethod
    def apply(self, images: Tensor, draw: Any) -> Tensor:
        """The images as the network is trained on them, by the parameters of ``draw``."""

    def train(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The images as the network is trained on them, by parameters drawn here."""
        return self.apply(images, self.draw(images.shape, generator))

    @abstractmethod
    def test(self, images: Tensor) -> Tensor:
        """The images as the network is tested on them: nothing is random."""

    def _normalise(self, images: Tensor) -> Tensor:
        """Float images [B, H, W, 3] in grey levels → standardised network input."""
        # a whole row at a time: an inner loop over three channels alone is 8 times slower on a CPU
        mean, std = self._mean_and_std(images.device, images.shape[2])
        rows = images.flatten(2).sub(mean).div_(std)
        return rows.view(images.shape).permute(0, 3, 1, 2)

    def _mean_and_std(self, device: torch.device, width: int) -> tuple[Tensor, Tensor]:
        """Of a row of ``width`` pixels; they stay on the device."""
        if (device, width) not in self._rows:
            mean, std = (t.repeat(width).to(device) for t in (self._mean, self._std))
            self._rows[device, width] = mean, std
        return self._rows[device, width]


class ResizeOnly(Augmentation):
    """iDigits: nothing but the size, which the packed images usually have already."""

    random = False

    def draw(self, shape: torch.Size, generator: torch.Generator) -> Draw:
        return ()

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        return self.test(images)

    def test(self, images: Tensor) -> Tensor:
        size = (self.image_size, self.image_size)
        if images.shape[1:3] == size:
            return self._normalise(images.float())
        planes = images.permute(0, 3, 1, 2).float()
        resized = interpolate(planes, size, mode="bilinear", antialias=True)
        return self._normalise(resized.permute(0, 2, 3, 1))


class _Cropping(Augmentation):
    """Train on random crops, test on the central one."""

    random = True

    def test(self, images: Tensor) -> Tensor:
        self._require_room(images.shape)
        top, left = (round((side - self.image_size) / 2) for side in images.shape[1:3])
        crop = images[:, top : top + self.image_size, left : left + self.image_size]
        return self._normalise(crop.float())

    def _require_room(self, shape: torch.Size) -> None:
        _, height, width, _ = shape
        if min(height, width) < self.image_size:
            raise UserError(
                f"images of {height}×{width} are smaller than the network input of "
                f"{self.image_size}×{self.image_size}: set augmentation.input_size to at most "
                f"{min(height, width)} or build the benchmark with larger images"
            )


class CropFlipJitter(_Cropping):
    """iCIFAR-20: RandomCrop(padding=4), RandomHorizontalFlip, ColorJitter(brightness=63/255)."""

    def draw(self, shape: torch.Size, generator: torch.Generator) -> CropFlipJitterDraw:
        self._require_room(shape)
        count, height, width, _ = shape
        slack = 2 * PADDING - self.image_size
        return CropFlipJitterDraw(
            top=torch.randint(0, height + slack + 1, (count,), generator=generator),
            left=torch.randint(0, width + slack + 1, (count,), generator=generator),
            flip=_draw_flips(count, generator),
            brightness=_uniform((count,), 1 - BRIGHTNESS, 1 + BRIGHTNESS, generator).float(),
        )

    def apply(self, images: Tensor, draw: CropFlipJitterDraw) -> Tensor:
        top, left, flip, brightness = (_to(images, t) for t in draw)
        padded = pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
        count, height, width, channels = padded.shape
        steps = torch.arange(self.image_size, device=images.device)
        rows = top[:, None] + steps + height * torch.arange(count, device=images.device)[:, None]
        columns = left[:, None] + torch.where(flip[:, None], steps.flip(0), steps)
        pixels = rows[:, :, None] * width + columns[:, None, :]
        crops = padded.view(-1, channels).index_select(0, pixels.flatten()).float()
        crops = crops.view(*pixels.shape, channels).mul_(brightness[:, None, None, None])
        return self._normalise(crops.clamp_(max=WHITE))


class ResizedCropFlip(_Cropping):
    """iDomainNet: RandomResizedCrop, RandomHorizontalFlip."""

    def draw(self, shape: torch.Size, generator: torch.Generator) -> ResizedCropFlipDraw:
        self._require_room(shape)
        count, height, width, _ = shape
        boxes = draw_boxes(count, height, width, generator)
        return ResizedCropFlipDraw(boxes, _draw_flips(count, generator))

    def apply(self, images: Tensor, draw: ResizedCropFlipDraw) -> Tensor:
        count, height, width, channels = images.shape
        top, left, box_height, box_width = (_to(images, t) for t in draw.boxes)
        flip = _to(images, draw.flip)
        vertical = interpolation_weights(top, box_height, height, self.image_size)
        horizontal = interpolation_weights(left, box_width, width, self.image_size)
        horizontal = torch.where(flip[:, None, None], horizontal.flip(1), horizontal)
        # with the channels between rows and columns both steps are plain products:
        # [B, H·3, W] → [B, H·3, w], then [B, H, 3·w] → [B, h, 3·w]
        planes = images.transpose(2, 3).reshape(count, height * channels, width).float()
        narrowed = planes @ horizontal.mT
        resized = vertical @ narrowed.view(count, height, channels * self.image_size)
        resized = resized.view(count, self.image_size, channels, self.image_size)
        return self._normalise(resized.transpose(2, 3))


def _to(images: Tensor, parameters: Tensor) -> Tensor:
    return send(parameters, images.device)


def _uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _draw_flips(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, generator=generator) < 0.5


def draw_boxes(count: int, height: int, width: int, generator: torch.Generator) -> Boxes:
    """RandomResizedCrop's boxes: area and log aspect ratio uniform, position uniform."""
    areas = _uniform((count, TRIES), *AREA_SCALE, generator) * height * width
    low, high = (log(ratio) for ratio in ASPECT_RATIO)
    aspects = _uniform((count, TRIES), low, high, generator).exp()
    box_height, box_width, fits = choose_sizes(areas, aspects, height, width)
    position = torch.rand((2, count), generator=generator, dtype=torch.float64)
    top, left = height - box_height, width - box_width  # the largest that keep the box inside
    return Boxes(
        top=torch.where(fits, (position[0] * (top + 1)).long(), top // 2),
        left=torch.where(fits, (position[1] * (left + 1)).long(), left // 2),
        height=box_height,
        width=box_width,
    )


def choose_sizes(
    areas: Tensor, aspects: Tensor, height: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each sample's tries [B, TRIES] the first that fits in the image: height, width, whether.

    Where none fits it is the largest box of an allowed aspect ratio.
    """
    widths = (areas * aspects).sqrt().round().long()
    heights = (areas / aspects).sqrt().round().long()
    fit = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fit.byte().argmax(dim=1, keepdim=True)  # the first of equal maxima
    fits = fit.any(dim=1)
    ratio = min(max(width / height, ASPECT_RATIO[0]), ASPECT_RATIO[1])
    fallback_height = min(height, round(width / ratio))
    fallback_width = min(width, round(height * ratio))
    return (
        torch.where(fits, heights.gather(1, first)[:, 0], fallback_height),
        torch.where(fits, widths.gather(1, first)[:, 0], fallback_width),
        fits,
    )


def interpolation_weights(start: Tensor, length: Tensor, source: int, target: int) -> Tensor:
    """[B, target, source]: what each source pixel gives to each target pixel, along one axis.

    The pixels start … start + length − 1 are resized to ``target`` pixels by torch's antialiased
    bilinear kernel: a triangle around the target's centre that reaches one pixel, or one target
    pixel where that is the larger.
    """
    start, length = start[:, None, None], length[:, None, None]
    scale = length / target
    pixels = torch.arange(source, device=start.device) - start
    outside = (pixels < 0) | (pixels >= length)
    positions = (pixels + 0.5).masked_fill(outside, torch.inf)  # infinitely far: no weight
    centres = scale * (torch.arange(target, device=start.device)[:, None] + 0.5)
    distances = (positions - centres).abs_().div_(scale.clamp(min=1))
    weights = distances.neg_().add_(1).clamp_(min=0)
    return weights.div_(weights.sum(dim=2, keepdim=True))


AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "none": ResizeOnly,
    "crop_flip_jitter": CropFlipJitter,
    "resized_crop_flip": ResizedCropFlip,
}


def make_augmentation(section: config.Augmentation) -> Augmentation:
    """What the section ``augmentation`` of the parameters describes."""
    kind = AUGMENTATIONS[section.name]
    return kind(section.input_size, section.mean, section.std, section.views)
