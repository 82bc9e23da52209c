"""Make ``import torchvision`` work beside a CPU build of torch.

PyPI's torchvision is a CUDA build. Next to a CPU torch its compiled operators do not load, and its
import then fails with ``operator torchvision::nms does not exist`` because it registers meta
kernels for operators that nobody defined. Nothing in dacr calls these operators; declaring their
signatures is enough. Where the compiled operators do load (any CUDA machine), this does nothing.

Import this module before torchvision.
"""

import contextlib

import torch

_SIGNATURES = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _operators_exist() -> bool:
    return hasattr(torch.ops.torchvision, "nms")


def declare_missing_operators() -> torch.library.Library | None:
    """Declare torchvision's operators if its own extension cannot; return what holds them alive."""
    if _operators_exist():
        return None
    from importlib.util import find_spec

    spec = find_spec("torchvision")
    if spec is not None and spec.submodule_search_locations:
        from pathlib import Path

        for extension in Path(spec.submodule_search_locations[0]).glob("_C*.so"):
            with contextlib.suppress(OSError):
                torch.ops.load_library(str(extension))
    if _operators_exist():
        return None
    library = torch.library.Library("torchvision", "DEF")
    for signature in _SIGNATURES.values():
        library.define(signature)
    return library


# torch forgets the operators when what holds them is collected, so a reload keeps the first one
_library = declare_missing_operators() or globals().get("_library")
