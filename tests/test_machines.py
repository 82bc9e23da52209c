"""What Linux has and another system has not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dacr.__main__ import check_system
from dacr.cli import doctor
from dacr.errors import UserError
from dacr.experiments import node


def test_windows_is_told_of_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    check_system("paper")
    monkeypatch.setattr(sys, "platform", "win32")
    check_system("scenario")
    with pytest.raises(UserError, match="on Windows use WSL"):
        check_system("paper")


def test_the_doctor_tells_whether_bits_are_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {}
    for known in (True, False):
        monkeypatch.setattr(doctor, "has_avx2", lambda known=known: known)
        told[known] = dict(doctor.facts(doctor.CPU))["portable bits"]
    assert told[True].startswith("yes")
    assert told[False].startswith("no: /proc/cpuinfo")


SHELL = "sleep 300 & echo $!; read word; exit 3"
"""A worker that leaves a process behind."""


def worker(log: Path) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    process = node.start_worker("job", log.parent, log, command=["bash", "-c", SHELL])
    while not (said := log.read_bytes()).endswith(b"\n"):
        time.sleep(0.01)
    return process, psutil.Process(int(said))


def is_gone(process: psutil.Process) -> bool:
    """Killed; whoever reaps it may not have done so yet."""
    process.wait()
    return not process.is_running()


@pytest.mark.parametrize("system", ["linux", "macos"])
def test_a_worker_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """Also where Python has no way to look at a process before it is reaped."""
    if system == "macos":
        monkeypatch.delattr(os, "waitid")
    process, left = worker(tmp_path / "log")
    assert node.finished(process) == 3
    assert is_gone(left)


def test_a_group_that_has_ended_may_not_be_killed_on_macos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the answer to a signal is EPERM as long as an ended process is not reaped."""
    real = os.killpg

    def killpg(group: int, number: signal.Signals) -> None:
        if psutil.Process(group).status() == psutil.STATUS_ZOMBIE:
            raise PermissionError
        real(group, number)

    process = node.start_worker("job", tmp_path, tmp_path / "log", command=["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(os, "killpg", killpg)
    assert node.finished(process) == 0
    again = node.start_worker("job", tmp_path, tmp_path / "log", command=["true"])
    os.waitid(os.P_PID, again.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(os, "killpg", killpg)
    assert node._kill_group(again)
    assert again.returncode == 0
