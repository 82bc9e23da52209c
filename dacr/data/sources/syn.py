"""SYN, Synthetic Digits (Ganin & Lempitsky, 2015): rendered digits, colour, 32×32.

Three releases are known: MATLAB files in SVHN's layout, the same in one zip, and torch tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dacr.data.archives import open_zip, read_gzip, read_tensors
from dacr.data.sources.base import Part
from dacr.data.sources.digits import UpstreamDigits
from dacr.data.sources.options import parse_options
from dacr.data.sources.sampled import SampleOptions
from dacr.data.sources.svhn import read_matlab

NAMES = ("syn",)


class Syn(UpstreamDigits):
    name = "syn"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        matlab = folder / f"synth_{part}_32x32.mat"
        packed = folder / "SynthDigits.zip"
        if matlab.exists():
            with matlab.open("rb") as file:
                return read_matlab(file, str(matlab))
        if packed.exists():
            with open_zip(packed, [matlab.name]) as archive, archive.open(matlab.name) as file:
                return read_matlab(file, f"{packed}:{matlab.name}")
        tensors = folder / f"synth_{part}.pt.gz"
        return read_tensors(read_gzip(tensors), str(tensors))


def make_source(name: str, options: Mapping[str, Any]) -> Syn:
    return Syn(options=parse_options(SampleOptions, name, options))
