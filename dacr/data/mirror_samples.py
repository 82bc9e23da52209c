"""A sample ``<source>.npz`` of a mirror, looked at before it is taken for data.

Whoever made it may have had other habits: channels first, labels as floats or one-hot. Each array
is named with what it is and what it must be; nothing is guessed or converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_npz
from dacr.data.sources.base import PARTS
from dacr.errors import UserError

Array = NDArray[Any]
DIGITS = 10


def check_digits(path: Path) -> None:
    """Refuse a sample of digits that is not ``<part>_x`` and ``<part>_y`` as docs/data.md says."""
    arrays = read_npz(path, [f"{part}_{kind}" for part in PARTS for kind in "xy"])
    for part in PARTS:
        images, labels = arrays[f"{part}_x"], arrays[f"{part}_y"]
        _check_images(path, f"{part}_x", images, grey=True)
        column = labels.shape[1:] == (1,)  # MATLAB's way to write a list
        _check_labels(path, f"{part}_y", labels[:, 0] if column else labels, len(images), DIGITS)


def check_cifar(path: Path) -> None:
    """The same for images with labels of two levels, and the names that these count."""
    levels = ("fine", "coarse")
    keys = [f"{part}_{kind}" for part in PARTS for kind in ("x", *levels)]
    arrays = read_npz(path, [*keys, *(f"{level}_names" for level in levels)])
    for level in levels:
        _check_names(path, f"{level}_names", arrays[f"{level}_names"])
    for part in PARTS:
        images = arrays[f"{part}_x"]
        _check_images(path, f"{part}_x", images, grey=False)
        for level in levels:
            labels, names = arrays[f"{part}_{level}"], arrays[f"{level}_names"]
            _check_labels(path, f"{part}_{level}", labels, len(images), len(names))
    _check_superclasses(path, arrays)


def _wrong(path: Path, name: str, array: Array, expected: str) -> UserError:
    return UserError(
        f"{path}: {name} is {array.dtype} of shape {array.shape}; it must be {expected}"
        " (see docs/data.md)"
    )


def _check_images(path: Path, name: str, images: Array, grey: bool) -> None:
    fits = (images.ndim == 4 and images.shape[3] == 3) or (grey and images.ndim == 3)
    if images.dtype != np.uint8 or not fits or 0 in images.shape:
        shapes = "N×H×W or N×H×W×3" if grey else "N×H×W×3"
        raise _wrong(path, name, images, f"uint8 of {shapes}, none of them 0")


def _check_labels(path: Path, name: str, labels: Array, images: int, classes: int) -> None:
    if labels.dtype.kind not in "iu" or labels.shape != (images,):
        raise _wrong(path, name, labels, f"{images:,} integers, one for each image")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise UserError(
            f"{path}: {name} goes from {low} to {high}; it must stay within 0 to {classes - 1}"
            " (see docs/data.md)"
        )


def _check_names(path: Path, name: str, names: Array) -> None:
    if names.ndim != 1 or names.dtype.kind != "U" or not len(names):
        raise _wrong(path, name, names, "a list of strings")


def _check_superclasses(path: Path, arrays: Mapping[str, Array]) -> None:
    """A subclass of two superclasses would be a domain of the wrong one."""
    pairs = [
        np.stack([arrays[f"{part}_{level}"].reshape(-1) for level in ("fine", "coarse")], axis=1)
        for part in PARTS
    ]
    fine, count = np.unique(np.unique(np.concatenate(pairs), axis=0)[:, 0], return_counts=True)
    if (count > 1).any():
        name = arrays["fine_names"][fine[count > 1][0]]
        raise UserError(
            f"{path}: the subclass '{name}' belongs to more than one superclass; correct"
            " train_coarse and test_coarse"
        )
