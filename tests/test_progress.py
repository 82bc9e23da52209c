"""Progress of a training: plain lines outside a terminal, one moving line inside."""

from __future__ import annotations

import io

import pytest

from dacr.runtime.progress import TrainingProgress


def trained(monkeypatch: pytest.MonkeyPatch) -> TrainingProgress:
    """Two epochs of 50 images at 10 images per second; an earlier run did 100 images."""
    clock = {"now": 0.0}
    monkeypatch.setattr("dacr.runtime.progress.time.monotonic", lambda: clock["now"])
    progress = TrainingProgress(1, 4)
    progress.plan(300)
    clock["now"] = 1000.0
    progress.skip(100)
    for epoch in (1, 2):
        clock["now"] += 5.0
        progress.step(50)
        progress.epoch("train", epoch, 12, {"inter": 1.1764, "reg": -0.02})
    progress.close()
    return progress


def test_outside_a_terminal_an_epoch_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = trained(monkeypatch)
    assert capsys.readouterr().out.splitlines() == [
        "session 1/4  train epoch 1/12  inter 1.176  reg -0.020  10 images/s  15 s left",
        "session 1/4  train epoch 2/12  inter 1.176  reg -0.020  10 images/s  10 s left",
    ]
    assert (progress.done, progress.rate) == (200, 10.0)


def test_in_a_terminal_there_is_one_moving_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    trained(monkeypatch)
    assert capsys.readouterr().out == ""
    assert "session 1/4  train epoch 2/12  inter 1.176" in screen.getvalue()
    assert "10 images/s" in screen.getvalue()
