"""SVHN, cropped digits (Netzer et al., 2011): house numbers, colour, 32×32, as MATLAB files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dacr.data.archives import refuse_large_matlab
from dacr.data.sources.base import Part
from dacr.data.sources.digits import UpstreamDigits
from dacr.data.sources.options import parse_options
from dacr.data.sources.sampled import SampleOptions
from dacr.errors import UserError

NAMES = ("svhn",)


def read_matlab(file: IO[bytes], origin: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """``X`` of H×W×3×N and ``y`` of N×1, where MATLAB's label 10 is the digit 0.

    The images are a view of the file's own order: an image at a time is copied, never all of them.
    """
    from scipy.io import loadmat

    refuse_large_matlab(file, origin)
    try:
        content = loadmat(file, variable_names=("X", "y"))
        images, labels = np.moveaxis(content["X"], 3, 0), content["y"].astype(np.int64)
    except Exception as error:  # scipy raises many kinds for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{origin} is not a MATLAB file with X and y ({reason})") from None
    return images, np.where(labels == 10, 0, labels)


class Svhn(UpstreamDigits):
    name = "svhn"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        path = folder / f"{part}_32x32.mat"
        with path.open("rb") as file:
            return read_matlab(file, str(path))


def make_source(name: str, options: Mapping[str, Any]) -> Svhn:
    return Svhn(options=parse_options(SampleOptions, name, options))
