"""Where the network runs. The device is no parameter: it changes the speed, not the experiment."""

from __future__ import annotations

import os
from functools import cache

import torch
from torch import Tensor

from dacr.config import Train
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


def make_deterministic(train: Train) -> None:
    """Fix what would otherwise let two equal runs differ: threads, kernels and precision."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(train.threads)
    torch.use_deterministic_algorithms(True)
    # Deterministic mode fills every new tensor, hundreds per step. Nothing here reads memory that
    # it did not write, so the fills change no bit.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    # Left alone, PyTorch computes 'fp32' convolutions in TF32 on Ampere and later.
    torch.backends.cudnn.allow_tf32 = train.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = train.precision == "tf32"


def require_precision(train: Train, device: torch.device) -> None:
    """Refuse a precision that the device does not have, before any work."""
    if train.precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        name = torch.cuda.get_device_name(device)
        raise UserError(
            f"train.precision=bf16: {name} has no bfloat16; use train.precision=fp32 or tf32"
        )


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to the device without making the host wait for it."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


@cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """A vector of numbers that stays on the device."""
    return torch.tensor(values).to(device)


def room_on(device: torch.device, share: float) -> int:
    """``share`` of the free memory of a GPU, in bytes; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    free, _ = torch.cuda.mem_get_info(device)
    return int(share * free)
