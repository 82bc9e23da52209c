"""What a device cannot do is refused in one line, before any work."""

import pytest
import torch

from dacr.errors import UserError
from dacr.runtime.device import make_deterministic, pick_device, require_precision
from tests.learning import CPU, small_params

CUDA = torch.device("cuda")


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old GPU")


@pytest.mark.usefixtures("old_gpu")
def test_bfloat16_is_refused_where_there_is_none() -> None:
    train = small_params("method=replay", "train.precision=bf16").train
    with pytest.raises(UserError, match=r"train\.precision=bf16: Old GPU has no bfloat16; use"):
        require_precision(train, CUDA)
    require_precision(train, CPU)
    for precision in ("fp32", "tf32"):
        require_precision(small_params(f"train.precision={precision}").train, CUDA)


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_fp32_means_32_bits_and_tf32_is_said(precision: str, allowed: bool) -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        make_deterministic(small_params(f"train.precision={precision}").train)
        assert torch.backends.cudnn.allow_tf32 == allowed
        assert torch.backends.cuda.matmul.allow_tf32 == allowed
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def test_a_device_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACR_DEVICE", "cuda:7")
    with pytest.raises(UserError, match="DACR_DEVICE=cuda:7 cannot be used on this machine"):
        pick_device()
