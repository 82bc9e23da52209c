"""MNIST (LeCun et al., 1998): handwritten digits, grey, 28×28, in the idx format."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_gzip
from dacr.data.sources.base import Part
from dacr.data.sources.digits import UpstreamDigits
from dacr.data.sources.options import parse_options
from dacr.data.sources.sampled import SampleOptions
from dacr.errors import UserError

NAMES = ("mnist",)
_PREFIX = {"train": "train", "test": "t10k"}
_UNSIGNED_BYTES = 0x08


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file: two zeros, the type, the number of dimensions, their sizes, the values."""
    data = read_gzip(path)
    zeros, kind, dimensions = struct.unpack(">HBB", data[:4]) if len(data) >= 4 else (1, 0, 0)
    start = 4 + 4 * dimensions
    if zeros or kind != _UNSIGNED_BYTES or len(data) < start:
        raise UserError(f"{path} is not an idx file of bytes; fetch it again")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    values = np.frombuffer(data, np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=object):
        raise UserError(f"{path} is cut off: {values.size:,} values for {shape}; fetch it again")
    return values.reshape(shape)


def read_labels(folder: Path, part: Part) -> NDArray[np.uint8]:
    """MNIST's labels, which are MNIST-M's too."""
    return read_idx(folder / f"{_PREFIX[part]}-labels-idx1-ubyte.gz")


class Mnist(UpstreamDigits):
    name = "mnist"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        images = read_idx(folder / f"{_PREFIX[part]}-images-idx3-ubyte.gz")
        return images, read_labels(folder, part)


def make_source(name: str, options: Mapping[str, Any]) -> Mnist:
    return Mnist(options=parse_options(SampleOptions, name, options))
