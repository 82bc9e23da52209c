"""``dacr doctor`` on the CPU, on a pretend GPU, and on devices that are not ready."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dacr.__main__ import main
from dacr.cli import doctor
from dacr.config import Params
from dacr.experiments.devices import read_measured
from dacr.sessions.trial import Trial, tiny_params, tiny_session, trial


def call(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["dacr", "doctor", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def test_a_cpu_is_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--methods", "replay,der_dacr", monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:5]] == [
        "device", "processor", "system", "torch", "driver",
    ]  # fmt: skip
    assert any(line.startswith("replay") and "the same bits as a CPU" in line for line in lines)
    assert any("a second run" in line and "the same bits" in line for line in lines)
    assert any("of the bare step" in line for line in lines)
    assert lines[-1] == "ready"
    assert len(lines) < 24, "one screen"
    rate = read_measured().rate("resnet8", "fp32")
    assert 1e8 < rate < 1e13
    assert f"resnet8 {rate / 1e12:.3g} TFLOP/s" in lines[-2]


def test_a_pretend_gpu_is_ready(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--pretend", "--methods", "ucir,geodl", monkeypatch=monkeypatch) == 0
    output = capsys.readouterr().out
    assert "gpu:0" in output
    assert "geodl          values close to those of a CPU" in output
    assert output.splitlines()[-1] == "ready"
    assert not (Path(os.environ["DVC_ROOT"]) / ".dacr/device.json").exists(), "it is no device"


def broken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that computes wrongly, not at all, or not the same twice."""
    calls = []

    def wrong(params: Params, device: torch.device) -> Trial:
        found = trial(params, device)
        calls.append(found)
        if len(calls) % 2 == 1 and kind != "twice":  # the CPU's turn
            return found
        match kind:
            case "values":
                return replace(found, losses={n: 1.1 * v for n, v in found.losses.items()})
            case "operation":
                raise NotImplementedError("no kernel\nfor this device")
            case "twice":
                return replace(found, digest=str(len(calls)))
        raise AssertionError(kind)

    monkeypatch.setattr(doctor, "trial", wrong)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("values", "NOT READY  replay: losses"),
        ("operation", "NOT READY  replay does not run on cpu: no kernel for this device"),
        ("twice", "NOT READY  two runs of der_dacr differ on cpu"),
    ],
)
def test_what_is_not_ready_is_one_line(
    kind: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken(kind, monkeypatch)
    assert call("--methods", "replay", monkeypatch=monkeypatch) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(line)


def test_an_unknown_method_is_told_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--methods", "replay,magic", monkeypatch=monkeypatch) == 1
    told = capsys.readouterr()
    assert "unknown method 'magic'" in told.err
    assert not told.out


def test_the_tiny_sessions_can_be_learned() -> None:
    """A device that computed nothing of use would not pass for one that does."""
    params = tiny_params("replay", "train.epochs=12", "augmentation.name=none")
    found = trial(params, torch.device("cpu"))
    assert found.accuracy > 0.8
    assert tiny_session(2).new.tolist() == [4, 5]
