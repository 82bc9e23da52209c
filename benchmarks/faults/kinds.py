"""The faults: each starts the command, does something to it, and undoes what can be undone.

A kind returns how the commands ended that met the fault. ``Skip`` says what this machine cannot do.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.commands import ALL, COMMANDS, DVC, WRITING, Command
from benchmarks.faults.places import (
    FAKE_CLOCK,
    Nursery,
    Place,
    Running,
    Said,
    used,
)

DISK = 256 << 20
NOBODY = 65534
DEAD = 4_000_000
"""A number that no process has: Linux ends at 2 ** 22."""
TRAINING = ("stages.learn 01", "stages.learn 02", "dvc repro", "dvc exp run")


class Skip(Exception):
    """Why this machine cannot have this fault."""


class Scene:
    """A round as a kind sees it."""

    def __init__(
        self, place: Place, command: Command, draw: random.Random, usual: float, growth: int
    ) -> None:
        """``usual`` and ``growth``: seconds and bytes that the command takes undisturbed."""
        self.place, self.command, self.draw = place, command, draw
        self.usual, self.growth = usual, growth
        self.details: list[str] = []
        self.damaged = False

    def start(self) -> Running:
        return self.place.start(*self.command.spelled(self.place.method))

    def tell(self, text: str) -> None:
        self.details.append(text)

    def wait(self, running: Running, fraction: float | None = None) -> float:
        """Until a moment, as a fraction of the usual time; or until it ends."""
        share = self.draw.uniform(0.02, 0.95) if fraction is None else fraction
        until = running.began + share * self.usual
        while time.monotonic() < until and running.process.poll() is None:
            time.sleep(0.005)
        return share


# -- signals -----------------------------------------------------------------------------------


def killed(scene: Scene) -> list[Said]:
    """SIGKILL: of everything at once, of the command alone, or of the youngest process alone."""
    whom = scene.draw.choice(["all", "all", "the command", "the youngest"])
    return _signalled(scene, signal.SIGKILL, whom)


def terminated(scene: Scene) -> list[Said]:
    """SIGTERM or SIGINT: of everything, or of the command alone."""
    how = scene.draw.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGINT])
    return _signalled(scene, how, scene.draw.choice(["all", "the command"]))


def _signalled(scene: Scene, how: signal.Signals, whom: str) -> list[Said]:
    running = scene.start()
    share = scene.wait(running)
    scene.tell(f"{how.name} to {whom} at {share:.2f}")
    tree = running.tree()
    if whom == "the youngest":
        tree = sorted(tree, key=lambda process: process.pid)[-1:]
    elif whom == "the command":
        tree = running.command()
    running.send(how, tree)
    return [running.end()]


def stopped(scene: Scene) -> list[Said]:
    """SIGSTOP of everything for a while, then SIGCONT."""
    running = scene.start()
    share = scene.wait(running)
    pause = scene.draw.uniform(0.2, 1.5)
    scene.tell(f"stopped at {share:.2f} for {pause:.1f} s")
    tree = running.tree()
    running.send(signal.SIGSTOP, tree)
    time.sleep(pause)
    running.send(signal.SIGCONT, tree)
    return [running.end()]


# -- disks -------------------------------------------------------------------------------------


def full_disk(scene: Scene) -> list[Said]:
    """A disk that fills up at a random moment, then has room again.

    That is when the command has ended, or after a while: DVC waits without a word for as long as
    there is no room for its database.
    """
    place = scene.place
    share = scene.draw.uniform(0.0, 1.0)
    room = int(share * max(scene.growth, 1 << 16))
    scene.tell(f"room for {share:.2f} of what it writes")
    _mount("-o", f"remount,size={used(place.folder) + room}", str(place.folder))
    running = scene.start()
    try:
        running.process.wait(WAITS + 3 * scene.usual)
    except subprocess.TimeoutExpired:
        scene.tell("waits for room")
    _mount("-o", f"remount,size={DISK}", str(place.folder))
    return [running.end()]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own for the folder of a round."""
    _mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def _mount(*words: str) -> None:
    if os.geteuid() != 0:
        raise Skip("only root may mount a file system")
    result = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Skip(f"mounting is not allowed here: {result.stderr.strip()}")


WAITS = 20.0  # seconds after which a command that has not ended is waiting
AREAS = (
    *("project/runs", "project/data", "project/reports", "project/.dvc", "project/.dvc/cache"),
    *("project/.dvc/tmp", "project/.dacr", "project/.git", "project", "store", "tmp"),
)


def read_only(scene: Scene) -> list[Said]:
    """A folder that cannot be written, then can."""
    folder = scene.place.folder / scene.draw.choice(AREAS)
    folder.mkdir(parents=True, exist_ok=True)
    scene.tell(f"{folder.relative_to(scene.place.folder)} is read-only")
    with locked(folder):
        return [scene.start().end()]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,ro,bind", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


# -- damage ------------------------------------------------------------------------------------


DAMAGED = {
    "runs": "project/runs",
    "data": "project/data",
    "cache": "project/.dvc/cache",
    "scratch": "project/.dacr/scratch",
}


def damaged_runs(scene: Scene) -> list[Said]:
    """A file of runs/ is truncated, emptied, flipped or gone."""
    return _damaged(scene, "runs")


def damaged_data(scene: Scene) -> list[Said]:
    """The same in data/."""
    return _damaged(scene, "data")


def damaged_cache(scene: Scene) -> list[Said]:
    """The same in DVC's cache: objects, lists of folders, the run cache."""
    return _damaged(scene, "cache")


def damaged_scratch(scene: Scene) -> list[Said]:
    """A training is killed, and then a file that it kept is damaged."""
    running = scene.start()
    scratch = scene.place.project / ".dacr/scratch"
    until = time.monotonic() + 60
    while running.process.poll() is None and time.monotonic() < until:
        if list(scratch.glob("*/*.safetensors")):
            break
        time.sleep(0.005)
    running.send(signal.SIGKILL)
    said = running.end()
    return [said, *_damaged(scene, "scratch")]


def _damaged(scene: Scene, area: str) -> list[Said]:
    """Half of the time DVC has seen the file before, and believes sizes and times."""
    draw, place = scene.draw, scene.place
    how = draw.choice(["truncated", "emptied", "one bit flipped", "one bit flipped", "gone"])
    seen = draw.random() < 0.5
    branch, fraction, where = draw.random(), draw.random(), draw.random()
    quiet = draw.random() < 0.5
    if seen:
        place.run("dvc", "status", real=False)
    # A folder that the command is yet to fill has none: then where it takes them from.
    tops = [DAMAGED[area], *(["project/.dvc/cache/files", "store"] if area != "scratch" else [])]
    folders = next(filter(None, (_folders(place.folder / top) for top in tops)), [])
    if not folders:
        scene.tell("there is no such file")
        return []
    # First a folder, so that one with many files is not hit more often.
    files = sorted(_files(folders[int(branch * len(folders))]))
    name = str(files[int(fraction * len(files))].relative_to(place.folder))
    hurt(place.folder / name, how, where, quiet)
    scene.damaged = True
    scene.tell(f"{name.removeprefix('project/')} {how}{', its time unchanged' * quiet}")
    return []


def _folders(top: Path) -> list[Path]:
    return sorted(folder for folder in top.glob("*") if _files(folder))


def _files(place: Path) -> list[Path]:
    return [file for file in [place, *place.rglob("*")] if file.is_file()]


def hurt(file: Path, how: str, where: float, quiet: bool) -> None:
    """``quiet``: the time of the file does not tell."""
    facts, content = file.stat(), bytearray(file.read_bytes())
    match how:
        case "gone":
            file.unlink()
            return
        case "emptied":
            content = bytearray()
        case "truncated":
            del content[int(where * len(content)) :]
        case _ if content:
            content[int(where * len(content))] ^= 1 << int(where * 1000) % 8
    with file.open("r+b") as stream:  # the same inode and mode, as a failing disk leaves them
        stream.truncate(0)
        stream.write(content)
    if quiet:
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))


# -- others ------------------------------------------------------------------------------------


def two_at_once(scene: Scene) -> list[Said]:
    """The same command, or another one, starts while it runs."""
    draw, place = scene.draw, scene.place
    here = [name for name in ALL if COMMANDS[name].template == scene.command.template]
    other = scene.command.name if draw.random() < 0.5 else draw.choice(here)
    running = scene.start()
    share = scene.wait(running, draw.uniform(0.0, 0.9))
    scene.tell(f"`{other}` beside it from {share:.2f} on")
    second = place.start(*COMMANDS[other].spelled(place.method))
    return [running.end(), second.end()]


def stale_lock(scene: Scene) -> list[Said]:
    """A lock that a dead process left behind."""
    project = scene.place.project
    which = scene.draw.choice(["dvc", "rwlock", "git", "scratch"])
    scene.tell(f"the lock of {which}")
    (project / ".dvc/tmp").mkdir(exist_ok=True)
    if which == "dvc":
        (project / ".dvc/tmp/lock").write_text(f" {DEAD}\n")
    elif which == "rwlock":
        info = {"pid": DEAD, "cmd": "dvc repro"}
        paths = [str(project / path) for path in ("runs/02/learned", "params.yaml")]
        content = {"write": {paths[0]: info}, "read": {paths[1]: [info]}}
        (project / ".dvc/tmp/rwlock").write_text(json.dumps(content))
    elif which == "git":
        (project / ".git/index.lock").touch()
    else:
        running = scene.start()
        scene.wait(running)
        running.send(signal.SIGKILL)
        said = running.end()
        for folder in (project / ".dacr/scratch").glob("*"):
            (folder / "lock").write_text(str(DEAD))
        return [said]
    return []


JUMPS = ("+3650d", "+400d", "+1d", "+1h", "-1h", "-1d", "-400d", "-3650d")


def clock(scene: Scene) -> list[Said]:
    """The time of day jumps while the command runs, and is right again afterwards."""
    jump = scene.draw.choice(JUMPS)
    running = scene.start()
    share = scene.wait(running, scene.draw.choice([0.0, scene.draw.uniform(0.0, 0.9)]))
    scene.tell(f"{jump} at {share:.2f}")
    scene.place.nursery.jump(jump)
    said = running.end()
    scene.place.nursery.jump("+0")
    return [said]


def shallow(scene: Scene) -> list[Said]:
    """A clone of the last commit alone, with the outs from the remote."""
    place = scene.place
    whole = place.folder / "whole"
    place.project.rename(whole)
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{whole}", str(place.project)], check=True
    )
    for words in (("user.name", "test"), ("user.email", "test@example.org")):
        subprocess.run(["git", "config", *words], cwd=place.project, check=True)
    shutil.copy(whole / ".dvc/config.local", place.project / ".dvc/config.local")
    for name in ("README.md", "notes.txt", "photo.png"):
        shutil.copy(whole / name, place.project / name)
    exclude = Path(".git/info/exclude")
    shutil.copy(whole / exclude, place.project / exclude)
    pulled = place.run("dvc", "pull", "--allow-missing", real=False)
    (place.project / "reports").mkdir(exist_ok=True)
    scene.command.prepare(place)
    return [pulled, scene.start().end()]


def no_git_user(scene: Scene) -> list[Said]:
    """Neither the repository nor the system knows who commits."""
    place = scene.place
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "config", "--unset", name], cwd=place.project, check=True)
    place.more |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    place.more |= {"GIT_CONFIG_NOSYSTEM": "1", "EMAIL": ""}
    return [scene.start().end()]


def not_root(scene: Scene) -> list[Said]:
    """The user `nobody` owns the copy."""
    place = scene.place
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        raise Skip("only root can become another user, with setpriv")
    for folder in (place.folder, place.pids):
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
    place.real = False  # this Python may be in a folder of root's
    place.prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    python = subprocess.run([*place.prefix, "test", "-x", sys.base_prefix], check=False)
    if "build" in scene.command.name and python.returncode != 0:
        raise Skip("build starts processes of a Python that the user nobody cannot reach")
    reachable = subprocess.run(
        [*place.prefix, "test", "-w", str(place.project), "-a", "-x", str(place.nursery.clients)],
        check=False,
    )
    if reachable.returncode != 0:
        raise Skip("the user nobody cannot reach the folder of the rounds")
    return [scene.start().end()]


def clock_skips() -> str | None:
    return None if Path(FAKE_CLOCK).exists() else "libfaketime is not installed (Debian: faketime)"


Kind = Callable[[Scene], list[Said]]
KINDS: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "SIGKILL": (killed, ALL),
    "SIGTERM, SIGINT": (terminated, ALL),
    "SIGSTOP, SIGCONT": (stopped, ALL),
    "full disk": (full_disk, WRITING),
    "read-only folder": (read_only, ALL),
    "damaged file of runs/": (damaged_runs, ALL),
    "damaged file of data/": (damaged_data, ALL),
    "damaged file of the cache": (damaged_cache, (*DVC, "dacr verify", "dacr publish")),
    "damaged file of the scratch": (damaged_scratch, TRAINING),
    "two commands at once": (two_at_once, ALL),
    "stale lock": (stale_lock, (*DVC, *TRAINING, "dacr verify")),
    "clock that jumps": (clock, ALL),
    "shallow clone": (shallow, ALL),
    "no git user": (no_git_user, (*DVC, "dacr verify", "dacr publish", "stages.report")),
    "not root": (not_root, ALL),
}
__all__ = ["KINDS", "Nursery", "Scene", "Skip", "clock_skips", "small_disk"]
