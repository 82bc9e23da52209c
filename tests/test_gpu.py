"""On a real GPU: what `dacr doctor` looks at, as tests. `pytest -m gpu`; skipped without one."""

from __future__ import annotations

import pytest
import torch

from dacr.methods import known_methods
from dacr.sessions.trial import loop_share, tiny_params, trial

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


@pytest.mark.parametrize("name", known_methods())
def test_a_method_gives_what_the_cpu_gives(name: str) -> None:
    params = tiny_params(name)
    assert trial(params, CUDA).close_to(trial(params, CPU))


@pytest.mark.parametrize("name", known_methods())
def test_a_second_run_gives_the_same_bits(name: str) -> None:
    params = tiny_params(name)
    assert trial(params, CUDA).digest == trial(params, CUDA).digest


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_other_precisions_run(precision: str) -> None:
    if precision == "bf16" and not torch.cuda.is_bf16_supported():
        pytest.skip("this GPU has no bfloat16")
    assert trial(tiny_params("der_dacr", f"train.precision={precision}"), CUDA).losses


def test_the_loop_keeps_the_device_busy() -> None:
    _, share = loop_share(tiny_params("replay"), CUDA)
    assert share > 0.8
