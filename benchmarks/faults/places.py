"""The projects that rounds copy, the folder of a round, and whether it has the right bytes."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml
from PIL import Image

from benchmarks.faults.nursery import write_clients
from dacr.runtime.hashes import file_md5
from tests.tiny_project import commit, environment, make_project, run

ROOT = Path(__file__).parents[2]
EPOCHS = 6
LIMIT = 150.0
"""Seconds after which a command hangs."""
CACHE = ".dvc/cache/files/md5"
LAST = "02"
AFTER_FIRST = ("learn@02", "consolidate@02", "evaluate", "measure", "budget", "report")
"""The stages that a half project still has to run."""
KEPT_BY_GIT = ("evaluate", "measure", "budget")
"""The stages whose outs are in git, and not in DVC's cache."""
EDIT = "\nAn edit that is not committed.\n"
NOTE = "A file of the user.\n"
FAKE_CLOCK = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


class Nursery:
    """The process that forks commands, and a folder of clients for PATH."""

    def __init__(self, folder: Path, clock: bool = False) -> None:
        """With ``clock``, ``jump`` sets the time of day of what it forks."""
        folder.mkdir(parents=True)
        self.clients = folder / "bin"
        self.offset = folder / "clock"
        write_clients(self.clients, folder / "socket")
        more = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        if clock:
            self.jump("+0")
            more |= {
                "LD_PRELOAD": FAKE_CLOCK,
                "FAKETIME_TIMESTAMP_FILE": str(self.offset),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        command = [sys.executable, "-m", "benchmarks.faults.nursery", str(folder / "socket")]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(**more), stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"

    def jump(self, offset: str) -> None:
        self.offset.write_text(f"{offset}\n")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Said:
    """How a command ended, and both its streams."""

    words: tuple[str, ...]
    code: int
    text: str
    seconds: float
    hung: bool = False

    @property
    def lines(self) -> list[str]:
        """Those that say what is wrong."""
        beginnings = ("dacr: ", "ERROR: ", "FAULT", "fatal: ", "error: ")
        return [line for line in self.text.splitlines() if line.startswith(beginnings)]

    @property
    def clear(self) -> bool:
        """Done, killed, or a line that says what is wrong; no traceback."""
        if self.hung or "Traceback (most recent call last)" in self.text:
            return False
        return self.code <= 0 or bool(self.lines)


@dataclass
class Running:
    """A command that was started."""

    place: Place
    words: tuple[str, ...]
    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)

    def tree(self) -> list[psutil.Process]:
        """The process, what it started, and what the nursery forked for them."""
        roots = [self.process.pid] if self.process.poll() is None else []
        found: dict[int, psutil.Process] = {}
        for pid in [*roots, *self.place.forked()]:
            with suppress(psutil.Error):
                own = psutil.Process(pid)
                if pid not in roots and "benchmarks.faults.nursery" not in own.cmdline():
                    continue  # the number has a new owner
                for process in [own, *own.children(recursive=True)]:
                    found[process.pid] = process
        return list(found.values())

    def send(self, number: int, processes: Sequence[psutil.Process] | None = None) -> None:
        for process in self.tree() if processes is None else processes:
            with suppress(psutil.Error):
                process.send_signal(number)

    def end(self, seconds: float = LIMIT) -> Said:
        """Wait for it; whatever still runs of it after the limit is killed."""
        hung = False
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            hung = True
        until = time.monotonic() + (0 if hung else seconds)
        while self.orphans() and time.monotonic() < until:
            time.sleep(0.02)
        if hung or self.orphans():
            hung = True
            self.send(signal.SIGKILL)
            self.process.wait()
        text = self.log.read_text(encoding="utf-8", errors="replace")
        took = time.monotonic() - self.began
        return Said(self.words, self.process.returncode, text, took, hung)

    def command(self) -> list[psutil.Process]:
        """The process itself, or its client with what the nursery forked for it."""
        first = min((n for n in self.place.forked() if n > self.process.pid), default=0)
        forked = () if self.place.real else (first,)
        return [own for own in self.tree() if own.pid in (self.process.pid, *forked)]

    def orphans(self) -> list[psutil.Process]:
        """What it started and what still runs."""
        running = []
        for process in self.tree():
            with suppress(psutil.Error):
                if process.pid != self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    running.append(process)
        return running


class Place:
    """The folder of a round: the project, its remote, a home and a folder for temporary files."""

    def __init__(self, folder: Path, nursery: Nursery, method: str, real: bool) -> None:
        self.folder, self.nursery, self.method, self.real = folder, nursery, method, real
        self.logs = folder.with_name(f"{folder.name}-logs")
        self.pids = self.logs / "pids"
        self.pids.mkdir(parents=True, mode=0o777)
        self.pids.chmod(0o777)
        self.started = 0
        self.prefix: tuple[str, ...] = ()
        self.more: dict[str, str] = {}
        self.template = ""
        self.mended = False

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def fill(self, template: Path) -> None:
        self.template = template.name
        subprocess.run(["cp", "-a", f"{template}/.", str(self.folder)], check=True)

    def surroundings(self) -> dict[str, str]:
        """Whatever a command starts finds the clients first."""
        own = environment(
            HOME=str(self.folder / "home"),
            TMPDIR=str(self.folder / "tmp"),
            DVC_SITE_CACHE_DIR=str(self.folder / "site"),
            DACR_HOME=str(self.folder / "home/dacr"),
            DACR_CHECKPOINT_SECONDS="0",
            FAULTS_PIDS=str(self.pids),
            OMP_NUM_THREADS="1",
            COLUMNS="200",
        )
        own["PATH"] = f"{self.nursery.clients}:{own['PATH']}"
        return own | self.more

    def forked(self) -> list[int]:
        """The processes of this round that the nursery forked, and that have not ended."""
        return [int(file.name) for file in self.pids.iterdir()]

    def start(self, *words: str, real: bool | None = None) -> Running:
        self.started += 1
        log = self.logs / f"{self.started:02d}.log"
        real = self.real if real is None else real
        env = self.surroundings()
        first = words[0]
        if real:
            first = str(Path(sys.executable).parent / words[0])
        elif not self.prefix:
            first = str(self.nursery.clients / words[0])
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*self.prefix, first, *words[1:]],
                cwd=self.project,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with (self.logs / "commands").open("a") as notes:
            notes.write(f"{log.name}: {' '.join(words)}\n")
        return Running(self, words, process, log)

    def run(self, *words: str, real: bool | None = None) -> Said:
        return self.start(*words, real=real).end()

    def remove(self) -> None:
        for folder in (self.folder, self.logs):
            shutil.rmtree(folder, ignore_errors=True)


# -- templates ---------------------------------------------------------------------------------


def make_templates(folder: Path, method: str) -> None:
    """``<method>-finished`` with all outs and a remote; ``<method>-half``, before session 2."""
    finished = folder / f"{method}-finished"
    project = finished / "project"
    for name in ("home", "tmp", "store"):
        (finished / name).mkdir(parents=True)
    with redirect_stdout(io.StringIO()):
        make_project(project, f"method={method}", f"train.epochs={EPOCHS}")
    for words in (
        ("remote", "add", "-q", "--local", "-d", "team", "../store"),
        ("remote", "modify", "-q", "--local", "team", "verify", "true"),
        ("push", "-q"),
        ("status", "-q"),
    ):
        run(project, "dvc", *words, env={"DVC_SITE_CACHE_DIR": str(finished / "site")})
    pixels = np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(project / "photo.png")
    with (project / ".git/info/exclude").open("a") as file:
        file.write("photo.png\nnotes.txt\n")
    half = folder / f"{method}-half"
    shutil.copytree(finished, half, symlinks=True)
    forget_second_session(half / "project")
    for own in (project, half / "project"):
        with (own / "README.md").open("a") as file:
            file.write(EDIT)
        (own / "notes.txt").write_text(NOTE)


def forget_second_session(project: Path) -> None:
    """As it was before learn@02 ran, committed: neither outs nor cache nor run cache nor lock."""
    lock = read_lock(project)
    kept = [stage for name, stage in lock["stages"].items() if name not in AFTER_FIRST]
    objects = set(objects_of(project, kept))
    for name in AFTER_FIRST:
        for out in lock["stages"].pop(name)["outs"]:
            place = project / out["path"]
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    for file in (project / CACHE).rglob("*"):
        if file.is_file() and f"{file.parent.name}{file.name}" not in objects:
            file.unlink()
    shutil.rmtree(project / f"runs/{LAST}")
    shutil.rmtree(project / ".dvc/cache/runs", ignore_errors=True)
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    (project / "reports/.gitkeep").touch()
    commit(project, "before the second session")


def read_lock(project: Path) -> dict[str, Any]:
    lock: dict[str, Any] = yaml.load((project / "dvc.lock").read_text(), yaml.CSafeLoader)
    return lock


def objects_of(project: Path, stages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The names of all objects of the outs of these stages."""
    for stage in stages:
        for out in stage.get("outs", ()):
            yield out["md5"]
            if out["md5"].endswith(".dir"):
                listed = project / CACHE / out["md5"][:2] / out["md5"][2:]
                if listed.exists():
                    yield from (row["md5"] for row in yaml.safe_load(listed.read_text()))


# -- bytes -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """The bytes of an undisturbed run."""

    lock: dict[str, Any]
    files: dict[str, str]
    """Of all declared outs, with checksums."""
    objects: frozenset[str] = frozenset()
    """Of the cache, without those of outs that git keeps: nobody reads them."""

    @classmethod
    def of(cls, project: Path) -> Reference:
        lock = read_lock(project)
        files = {name: file_md5(project / name) for name in files_of(project, lock)}
        kept_by_git = [lock["stages"][name] for name in KEPT_BY_GIT]
        others = [stage for name, stage in lock["stages"].items() if name not in KEPT_BY_GIT]
        objects = {*objects_of(project, others)} - {*objects_of(project, kept_by_git)}
        return cls(lock, files, frozenset(objects))

    def outs(self, stage: str) -> list[str]:
        return [out["path"] for out in self.lock["stages"][stage]["outs"]]

    def differences(self, project: Path, stages: Sequence[str] | None = None) -> list[str]:
        """Declared files that are missing, different or too many, of these stages or of all."""
        names = list(self.lock["stages"]) if stages is None else stages
        paths = [path for name in names for path in self.outs(name)]
        wanted = {n: md5 for n, md5 in self.files.items() if any(_inside(n, p) for p in paths)}
        found = {name for path in paths for name in files_under(project, path)}
        gone = [f"{name} is missing" for name in sorted(set(wanted) - found)]
        more = [f"{name} is too many" for name in sorted(found - set(wanted))]
        other = [
            f"{name} is different" for name in sorted(found & set(wanted))
            if file_md5(project / name) != wanted[name]
        ]  # fmt: skip
        return gone + more + other


def _inside(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}/")


def files_of(project: Path, lock: dict[str, Any]) -> list[str]:
    outs = [out["path"] for stage in lock["stages"].values() for out in stage.get("outs", ())]
    return [name for path in outs for name in files_under(project, path)]


def files_under(project: Path, path: str) -> list[str]:
    place = project / path
    if place.is_file():
        return [path]
    inside = sorted(file for file in place.rglob("*") if file.is_file())
    return [str(file.relative_to(project)) for file in inside]


def damaged_objects(cache: Path) -> list[Path]:
    """Objects whose bytes are not those of their names; half-written ones have other names."""
    found = []
    for folder in sorted(cache.glob("[0-9a-f][0-9a-f]")):
        for file in sorted(folder.iterdir()):
            name = f"{folder.name}{file.name}".removesuffix(".dir")
            if len(name) == 32 and file.is_file() and file_md5(file) != name:
                found.append(file)
    return found


def lost_files(project: Path) -> list[str]:
    """What the user had in the project besides the run, and has not any more."""
    lost = []
    if not (project / "README.md").read_text(encoding="utf-8").endswith(EDIT):
        lost.append("the edit of README.md is lost")
    note = project / "notes.txt"
    if not note.exists() or note.read_text() != NOTE:
        lost.append("notes.txt is lost")
    return lost


def used(folder: Path) -> int:
    """Bytes on the file system that begins at ``folder``."""
    facts = os.statvfs(folder)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
