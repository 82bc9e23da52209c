"""The same bits on other processors: which instructions the libraries may choose.

torch, oneDNN, MKL and OpenBLAS pick kernels by the processor that they find, and other kernels add
in another order. ``train.portable`` holds them to what every x86-64 processor with AVX2 has, and
MKL to code that does not ask who made the processor. They read these variables when they are
loaded, so this module loads none of them and is called first.
"""

from __future__ import annotations

import os
from pathlib import Path

from dacr.config import Params, load_params

PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",
}


def has_avx2(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this is an x86-64 processor with AVX2, as far as the system tells."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.startswith("flags") and "avx2" in line.split() for line in lines)


def fix_instructions(portable: bool) -> None:
    """Before torch and NumPy are loaded: hold them to the common instructions, if asked to.

    A processor without AVX2 cannot have these bits; there everything stays as the libraries choose.
    """
    if portable and has_avx2():
        os.environ.update(PORTABLE)


def training_params() -> Params:
    """The parameters of a stage that loads torch; call it before torch is loaded."""
    params = load_params()
    fix_instructions(params.train.portable)
    stay_on_the_cpu(params.train.portable)
    return params


def stay_on_the_cpu(portable: bool) -> None:
    """Let no GPU that happens to be there take a run whose bits are promised.

    ``train.portable`` promises the bits of a CPU, so that ``make repro`` ends in the same bytes on
    every machine. ``DACR_DEVICE`` overrides.
    """
    if portable:
        os.environ.setdefault("DACR_DEVICE", "cpu")
