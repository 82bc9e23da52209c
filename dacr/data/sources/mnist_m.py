"""MNIST-M (Ganin & Lempitsky, 2015): MNIST blended over photographs, colour, as torch tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dacr.data.archives import read_tar_gz, read_tensors
from dacr.data.sources.base import Part
from dacr.data.sources.upstream import UpstreamDigits


class MnistM(UpstreamDigits):
    name = "mnist_m"

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        member = f"mnist_m_{part}.pt"
        path = folder / f"{member}.tar.gz"
        return read_tensors(read_tar_gz(path, [member])[member], str(path))


SOURCE = MnistM()
