"""USPS (Hull, 1994): digits from envelopes, grey, 16×16, in LIBSVM's sparse text format.

It stands in for SYN in ``idigits_cpu``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_bz2
from dacr.data.sources.base import Part
from dacr.data.sources.digits import UpstreamDigits
from dacr.data.sources.options import parse_options
from dacr.data.sources.sampled import SampleOptions
from dacr.errors import UserError

NAMES = ("usps",)
FILES: dict[Part, str] = {"train": "usps.bz2", "test": "usps.t.bz2"}
SIDE = 16


def read_libsvm(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Lines of ``label place:value …``: labels from 1, places from 1, values from −1 to 1.

    A place that a line leaves out has the value 0. Bytes are cut off and not rounded, as in
    torchvision: the images are the same.
    """
    rows = [_row(path, number, line) for number, line in _lines(path)]
    labels = np.array([label for label, _ in rows], np.int64) - 1
    values = np.array([pixels for _, pixels in rows], np.float32).reshape(-1, SIDE, SIDE)
    return ((values + 1) / 2 * 255).astype(np.uint8), labels


def _lines(path: Path) -> list[tuple[int, bytes]]:
    lines = enumerate(read_bz2(path).splitlines(), start=1)
    return [(number, line) for number, line in lines if line.strip()]


def _row(path: Path, number: int, line: bytes) -> tuple[int, NDArray[np.float32]]:
    try:
        label, *pairs = line.split()
        numbers = np.array([pair.split(b":") for pair in pairs], np.float64).reshape(-1, 2)
        places, values = numbers[:, 0].astype(int) - 1, numbers[:, 1].astype(np.float32)
        if places.min(initial=0) < 0 or len(np.unique(places)) != len(places):
            raise ValueError
        pixels = np.zeros(SIDE * SIDE, np.float32)
        pixels[places] = values
        if not np.abs(pixels).max() <= 1:
            raise ValueError
        return int(label), pixels
    except (ValueError, IndexError, OverflowError):
        raise UserError(
            f"{path}:{number} is not a label and at most {SIDE * SIDE} values from -1 to 1;"
            " fetch it again"
        ) from None


class Usps(UpstreamDigits):
    name = "usps"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        return read_libsvm(folder / FILES[part])


def make_source(name: str, options: Mapping[str, Any]) -> Usps:
    return Usps(options=parse_options(SampleOptions, name, options))
