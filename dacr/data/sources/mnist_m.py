"""MNIST-M (Ganin & Lempitsky, 2015): MNIST blended over photographs, colour.

Two releases are known, both with MNIST's own labels: torch tensors, and a pickle of two arrays of
images without labels, which stand in the order of MNIST's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import read_gzip, read_plain_pickle, read_tar_gz, read_tensors
from dacr.data.sources.base import PARTS, Part
from dacr.data.sources.digits import UpstreamDigits
from dacr.data.sources.mnist import read_labels
from dacr.data.sources.options import parse_options
from dacr.data.sources.sampled import SampleOptions
from dacr.errors import UserError

NAMES = ("mnist_m",)
PICKLE = "keras_mnistm.pkl.gz"


def read_pickled(path: Path, part: Part) -> NDArray[Any]:
    """The images of one part, of a pickled dictionary of parts."""
    content = read_plain_pickle(read_gzip(path), str(path))
    if not isinstance(content, dict) or not isinstance(content.get(part), np.ndarray):
        raise UserError(f"{path} is not a dictionary of the arrays {' and '.join(PARTS)}")
    images: NDArray[Any] = content[part]
    return images


class MnistM(UpstreamDigits):
    name = "mnist_m"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        if (folder / PICKLE).exists():
            return read_pickled(folder / PICKLE, part), read_labels(folder, part)
        member = f"mnist_m_{part}.pt"
        path = folder / f"{member}.tar.gz"
        return read_tensors(read_tar_gz(path, [member])[member], str(path))


def make_source(name: str, options: Mapping[str, Any]) -> MnistM:
    return MnistM(options=parse_options(SampleOptions, name, options))
