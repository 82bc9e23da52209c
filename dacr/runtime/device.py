"""Where the network runs. The device is no parameter: it changes the speed, not the experiment."""

from __future__ import annotations

import os

import torch

from dacr.errors import UserError


def pick_device() -> torch.device:
    """CUDA where there is one, the CPU otherwise; ``DACR_DEVICE`` overrides."""
    name = os.environ.get("DACR_DEVICE", "cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise UserError(
            f"DACR_DEVICE={name} cannot be used on this machine; use cpu, cuda or cuda:N"
        ) from None
    return device


def make_deterministic(threads: int) -> None:
    """Fix what would otherwise let two equal runs differ: threads and non-deterministic kernels."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
