"""The driver of ``python -m benchmarks faults``: its rounds, its judgement, its processes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from benchmarks.faults import driver
from benchmarks.faults.commands import COMMANDS
from benchmarks.faults.driver import LOSS, SAME, Tally, Verdict, chosen, heed
from benchmarks.faults.kinds import KINDS, hurt
from benchmarks.faults.places import Nursery, Place, Reference, Said, damaged_objects
from dacr.runtime.hashes import file_md5


def test_the_seed_determines_the_rounds() -> None:
    own = chosen(5, 60)
    assert own == chosen(5, 60)
    assert own != chosen(6, 60)
    assert [one.draws().random() for one in own] == [one.draws().random() for one in own]
    assert chosen(5, 200, numbers=[17, 3]) == [own[16], own[2]]
    assert chosen(5, 60, "clock that jumps") == [
        one for one in own if one.kind == "clock that jumps"
    ]


def test_every_fault_comes_as_often_as_the_others() -> None:
    counts = Counter(one.kind for one in chosen(1, 10 * len(KINDS)))
    assert counts == dict.fromkeys(KINDS, 10)
    for kind, (_, names) in KINDS.items():
        assert set(names) <= set(COMMANDS), kind


@pytest.mark.parametrize(
    ("code", "text", "clear"),
    [
        (0, "", True),
        (-9, "", True),
        (1, "dacr: the disk is full; free some space", True),
        (1, "ERROR: unable to acquire lock", True),
        (1, "", False),
        (1, "something", False),
        (1, "Traceback (most recent call last):\n  …\ndacr: no", False),
    ],
)
def test_what_is_a_clear_end(code: int, text: str, clear: bool) -> None:
    assert Said(("dvc",), code, text, 1.0).clear == clear
    assert not Said(("dvc",), code, text, 1.0, hung=True).clear


@pytest.mark.parametrize("quiet", [False, True])
def test_damage(tmp_path: Path, quiet: bool) -> None:
    whole, lengths = bytes(range(100)), {"truncated": 50, "emptied": 0, "one bit flipped": 100}
    for how, length in lengths.items():
        file = tmp_path / how
        file.write_bytes(whole)
        file.chmod(0o444)
        os.utime(file, ns=(1, 1))
        before = file.stat()
        hurt(file, how, 0.5, quiet)
        content, after = file.read_bytes(), file.stat()
        assert len(content) == length
        assert content != whole
        assert (after.st_mtime_ns == 1) == quiet
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    hurt(file, "gone", 0.5, quiet)
    assert not file.exists()


def test_bytes_are_compared_file_by_file(tmp_path: Path) -> None:
    for name in ("runs/01/a", "runs/01/b", "data/c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    lock = {
        "stages": {"one": {"outs": [{"path": "runs/01"}]}, "two": {"outs": [{"path": "data/c"}]}}
    }
    names = ("runs/01/a", "runs/01/b", "data/c")
    reference = Reference(lock, {name: file_md5(tmp_path / name) for name in names})
    assert reference.differences(tmp_path) == []
    (tmp_path / "runs/01/a").unlink()
    (tmp_path / "runs/01/more").touch()
    (tmp_path / "data/c").write_text("other")
    assert reference.differences(tmp_path) == [
        "runs/01/a is missing", "runs/01/more is too many", "data/c is different",
    ]  # fmt: skip
    assert reference.differences(tmp_path, ["two"]) == ["data/c is different"]


def test_an_object_has_the_bytes_of_its_name(tmp_path: Path) -> None:
    content = tmp_path / "content"
    content.write_text("content")
    name = file_md5(content)
    kept = tmp_path / name[:2] / name[2:]
    kept.parent.mkdir()
    content.rename(kept)
    kept.with_name("half-written.tmp").touch()
    assert damaged_objects(tmp_path) == []
    kept.write_text("other")
    assert damaged_objects(tmp_path) == [kept]


def test_what_a_line_says_is_done(tmp_path: Path) -> None:
    run: list[tuple[str, ...]] = []
    place = cast(Place, SimpleNamespace(project=tmp_path, run=lambda *w, real: run.append(w)))
    (tmp_path / "object").touch()
    line = "FAULT cache x is damaged; remove object and run `dvc pull`, or `dvc repro -f learn@01`"
    assert heed(place, [line, line], attempt=0)
    assert not (tmp_path / "object").exists()
    assert heed(place, [line], attempt=1)
    assert run == [("dvc", "pull"), ("dvc", "repro", "-f", "learn@01")]
    assert not heed(place, ["dacr: it is wrong"], attempt=0)
    stale = tmp_path / ".git/index.lock"
    stale.parent.mkdir()
    stale.touch()
    assert heed(place, ["ERROR: unexpected error - the index is locked; this might be"], attempt=0)
    assert not stale.exists()
    assert len(run) == 2


def a_place(folder: Path) -> Place:
    """Without a project."""
    place = Place(folder / "round", cast(Nursery, SimpleNamespace(clients=folder)), "icarl", True)
    place.project.mkdir(parents=True)
    return place


def test_a_command_is_ended_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, time; subprocess.Popen(['sleep', '60']); print(1, flush=True); "
        "time.sleep(60)"
    )
    running = a_place(tmp_path).start("python", "-c", code)
    while running.log.read_text() != "1\n":
        assert running.process.poll() is None
    own = running.tree()
    assert len(own) == 2
    running.send(signal.SIGKILL)
    assert running.end().code == -signal.SIGKILL
    psutil.wait_procs(own)  # who is killed is gone a moment later


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    said = a_place(tmp_path).start("python", "-c", "import time; time.sleep(60)").end(0.2)
    assert said.hung
    assert not said.clear


def test_the_table_is_printed_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of rounds that fail themselves, and when ^C comes."""
    answers = iter([Verdict(SAME), RuntimeError("no"), KeyboardInterrupt()])

    def play(*_: object) -> tuple[Verdict, list[str]]:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer, ["details"]

    monkeypatch.setattr(driver, "play", play)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert not driver.faults(3, 1)
    told = capsys.readouterr().out
    assert "interrupted: the table so far" in told
    assert "--seed 1 --round 2" in told
    assert told.splitlines()[-2].split("|")[1:4] == [" all ", " 2 ", " 1 "]


def test_a_row_of_the_table() -> None:
    tally = Tally()
    for outcome in (SAME, SAME, LOSS):
        tally.add("SIGKILL", Verdict(outcome))
    assert "| SIGKILL | 3 | 2 |  |  | 1 |  |" in list(tally.lines())
