"""Published sets of digits: ten classes in one domain, as arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dacr.data.archives import read_npz
from dacr.data.mirror_samples import check_digits
from dacr.data.sources.base import PARTS, Part, Sample
from dacr.data.sources.sampled import Sampled
from dacr.errors import UserError


class UpstreamDigits(Sampled):
    """Ten digits as arrays; the source is one domain."""

    def check_sample(self, path: Path) -> None:
        check_digits(path)

    @abstractmethod
    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        """Images (N×H×W or N×H×W×3) and labels of the published files."""

    def arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        """Images and labels of whatever was fetched, checked against each other."""
        sample = folder / self.sample_name
        if sample.exists():
            images, labels = read_npz(sample, [f"{part}_x", f"{part}_y"]).values()
        else:
            images, labels = self.published_arrays(folder, part)
        labels = labels.reshape(-1)
        if images.dtype != "uint8" or images.ndim not in (3, 4) or len(images) != len(labels):
            raise UserError(
                f"{self.name}: {part} images are {images.dtype} {images.shape} with {len(labels):,}"
                " labels; these are not the published files"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() <= 9):
            raise UserError(f"{self.name}: {part} labels are not the digits 0 to 9")
        return images, labels

    def counts(self, folder: Path) -> dict[Part, int]:
        return {part: len(self.arrays(folder, part)[1]) for part in PARTS}

    def read_all(self, folder: Path) -> Iterator[Sample]:
        for part in PARTS:
            images, labels = self.arrays(folder, part)
            for i, (image, label) in enumerate(zip(images, labels, strict=True)):
                source_id = f"{self.name}/{part}/{i:06d}"
                yield Sample(image.copy(order="C"), int(label), self.name, part, source_id)
