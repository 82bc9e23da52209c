"""MNIST (LeCun et al., 1998): handwritten digits, grey, 28×28, in the idx format."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_gzip
from dacr.data.sources.base import Part
from dacr.data.sources.upstream import UpstreamDigits
from dacr.errors import UserError

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


class Mnist(UpstreamDigits):
    name = "mnist"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        prefix = folder / _PREFIX[part]
        images = read_idx(prefix.with_name(f"{prefix.name}-images-idx3-ubyte.gz"))
        return images, read_idx(prefix.with_name(f"{prefix.name}-labels-idx1-ubyte.gz"))


SOURCE = Mnist()
