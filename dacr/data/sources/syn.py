"""SYN, Synthetic Digits (Ganin & Lempitsky, 2015): rendered digits, colour, 32×32.

Three releases are known: MATLAB files in SVHN's layout, the same in one zip, and torch tensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dacr.data.archives import open_zip, read_gzip, read_tensors
from dacr.data.sources.base import Part
from dacr.data.sources.svhn import read_matlab
from dacr.data.sources.upstream import UpstreamDigits


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


SOURCE = Syn()
