"""CIFAR-100 (Krizhevsky, 2009) as iCIFAR-20: superclasses are classes, their subclasses domains.

The domains are 'subclass 1' … 'subclass 5': the place of the subclass among the five of its
superclass, in the alphabetical order of their names. With the option ``labels: fine`` it is the set
as others use it: a hundred classes in one domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_npz, read_plain_pickle, read_tar_gz
from dacr.data.mirror_samples import check_cifar
from dacr.data.sources.base import PARTS, Part, Sample
from dacr.data.sources.options import parse_options
from dacr.data.sources.sampled import Sampled, SampleOptions
from dacr.data.sources.upstream import Published
from dacr.errors import UserError

ARCHIVE = "cifar-100-python.tar.gz"
NAMES = ("cifar100",)
MEMBERS = {name: f"cifar-100-python/{name}" for name in ("meta", "train", "test")}


class CifarOptions(SampleOptions):
    """Which labels are the classes, and how many images of each subclass are read."""

    labels: Literal["coarse", "fine"] = "coarse"


@dataclass(frozen=True)
class Images:
    """One part: images with the labels of both levels."""

    pixels: NDArray[np.uint8]
    fine: NDArray[np.int64]
    coarse: NDArray[np.int64]


@dataclass(frozen=True)
class Cifar:
    """Everything that was fetched."""

    parts: dict[Part, Images]
    fine_names: list[str]
    coarse_names: list[str]

    def subclass_ranks(self) -> dict[int, int]:
        """The place of each fine label among those of its superclass, by name."""
        fine, coarse = (
            np.concatenate([getattr(images, level) for images in self.parts.values()])
            for level in ("fine", "coarse")
        )
        ranks = {}
        for superclass in np.unique(coarse):
            members = np.unique(fine[coarse == superclass]).tolist()
            ordered = sorted(members, key=lambda label: self.fine_names[label])
            ranks.update({label: rank for rank, label in enumerate(ordered)})
        return ranks


def _from_batch(batch: dict[str, Any]) -> Images:
    planes = batch["data"].reshape(-1, 3, 32, 32)
    fine, coarse = (np.asarray(batch[f"{level}_labels"]) for level in ("fine", "coarse"))
    return Images(planes.transpose(0, 2, 3, 1), fine, coarse)


def _load_published(path: Path) -> Cifar:
    members = read_tar_gz(path, MEMBERS.values())
    content = {
        name: read_plain_pickle(members[member], f"{path}:{member}")
        for name, member in MEMBERS.items()
    }
    parts = {part: _from_batch(content[part]) for part in PARTS}
    meta = content["meta"]
    return Cifar(parts, meta["fine_label_names"], meta["coarse_label_names"])


def _load_sample(path: Path) -> Cifar:
    keys = {part: [f"{part}_{kind}" for kind in ("x", "fine", "coarse")] for part in PARTS}
    arrays = read_npz(path, [*keys["train"], *keys["test"], "fine_names", "coarse_names"])
    parts = {part: Images(*(arrays[key] for key in keys[part])) for part in PARTS}
    return Cifar(parts, arrays["fine_names"].tolist(), arrays["coarse_names"].tolist())


class Cifar100(Sampled):
    name = "cifar100"

    def __init__(
        self, published: Published | None = None, options: CifarOptions | None = None
    ) -> None:
        super().__init__(published, options)
        self._fine = (options or CifarOptions()).labels == "fine"

    def check_sample(self, path: Path) -> None:
        check_cifar(path)

    def load(self, folder: Path) -> Cifar:
        sample = folder / self.sample_name
        cifar = _load_sample(sample) if sample.exists() else _load_published(folder / ARCHIVE)
        for part, images in cifar.parts.items():
            if not len(images.pixels) == len(images.fine) == len(images.coarse):
                raise UserError(f"cifar100: {part} has fewer labels than images; fetch it again")
        return cifar

    def counts(self, folder: Path) -> dict[Part, int]:
        return {part: len(images.fine) for part, images in self.load(folder).parts.items()}

    def class_names(self, folder: Path) -> list[str]:
        cifar = self.load(folder)
        return cifar.fine_names if self._fine else cifar.coarse_names

    def read_all(self, folder: Path) -> Iterator[Sample]:
        cifar = self.load(folder)
        ranks = cifar.subclass_ranks()
        for part, images in cifar.parts.items():
            for i, pixels in enumerate(images.pixels):
                fine, coarse = int(images.fine[i]), int(images.coarse[i])
                subclass = coarse, f"subclass {ranks[fine] + 1}"
                label, domain = (fine, self.name) if self._fine else subclass
                source_id = f"{self.name}/{part}/{i:05d}"
                yield Sample(np.ascontiguousarray(pixels), label, domain, part, source_id)


def make_source(name: str, options: Mapping[str, Any]) -> Cifar100:
    return Cifar100(options=parse_options(CifarOptions, name, options))
