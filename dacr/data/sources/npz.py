"""A user's own images in one ``.npz``: ``x`` (N×H×W or N×H×W×3, uint8), ``y`` and ``domain`` (N).

Classes and domains may be numbers or strings; a label is the rank of the class among all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_npz
from dacr.data.files import Fingerprint, copy_in, user_path
from dacr.data.sources.base import Sample, Source
from dacr.data.sources.options import Options, TestFraction, held_out, parse_options
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError
from dacr.names import one_form

NAMES = ("npz",)
ANY_NUMBER = True
FILE = "images.npz"
KEYS = ("x", "y", "domain")


class NpzOptions(Options):
    """Where the file is, and how many of its images are for testing."""

    path: Path
    test_fraction: TestFraction = 0.2


def _load(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any]]:
    x, y, domain = read_npz(path, KEYS).values()
    if x.dtype != np.uint8 or not (x.ndim == 3 or (x.ndim == 4 and x.shape[3] == 3)):
        raise UserError(f"{path}: x is {x.dtype} {x.shape}; it must be uint8 of N×H×W or N×H×W×3")
    for name, values in (("y", y), ("domain", domain)):
        if values.shape != (len(x),) or values.dtype.kind not in "iuU":
            raise UserError(
                f"{path}: {name} is {values.dtype} {values.shape}; it must be {len(x)} numbers"
                " or strings, one for each image"
            )
    if not len(x):
        raise UserError(f"{path} holds no images")
    if 0 in x.shape:
        raise UserError(f"{path}: x is {x.shape}; its images have no pixels")
    return x, _in_one_form(y), _in_one_form(domain)


def _in_one_form(names: NDArray[Any]) -> NDArray[Any]:
    """Names are compared in one Unicode form; numbers are what they are."""
    return np.array([one_form(name) for name in names]) if names.dtype.kind == "U" else names


class NpzSource(Source):
    def __init__(self, name: str, options: NpzOptions) -> None:
        self.name = name
        self._options = options

    def fetch(self, folder: Path) -> None:
        path = user_path(self._options.path)
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise UserError(f"{path} is not a regular file; name an .npz file")
        images, _, _ = _load(path)
        copy_in(path, folder / FILE)
        facts = {"source": self.name, "kind": "own images", "images": len(images)}
        write_origin(folder, {**facts, "sha256": Fingerprint.of(path).sha256})

    def class_names(self, folder: Path) -> list[str]:
        _, y, _ = _load(folder / FILE)
        return [str(name) for name in np.unique(y)]

    def read(self, folder: Path) -> Iterator[Sample]:
        images, y, domains = _load(folder / FILE)
        _, labels = np.unique(y, return_inverse=True)
        ids = [f"{self.name}/{i:08d}" for i in range(len(images))]
        pairs = {ids[i]: (int(labels[i]), str(domains[i])) for i in range(len(images))}
        test = held_out(pairs, self._options.test_fraction)
        for i, identity in enumerate(ids):
            label, domain = pairs[identity]
            part: Literal["train", "test"] = "test" if identity in test else "train"
            yield Sample(images[i], label, domain, part, identity)


def make_source(name: str, options: Mapping[str, Any]) -> NpzSource:
    return NpzSource(name, parse_options(NpzOptions, name, options))
