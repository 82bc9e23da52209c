"""Where tests write: in memory; and on a disk, what they make once per machine and code."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
from filelock import FileLock

ROOT = Path(__file__).parents[1]
A_DAY = 86_400.0
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free there: several times what the tests have at a time."""
DISK = "DACR_TESTS_DISK"


def in_memory() -> None:
    """Let temporary files of this process and of its children lie in memory, if there is room.

    Tests make and remove some hundred thousand small files: a disk takes a fifth of their time.
    """
    if DISK in os.environ:  # a worker of pytest, whose parent has decided
        return
    os.environ[DISK] = tempfile.gettempdir()
    if "TMPDIR" in os.environ or not MEMORY.is_mount() or not os.access(MEMORY, os.W_OK):
        return
    for old in MEMORY.glob("dacr-*"):  # of tests that failed or were killed
        number = old.name.removeprefix("dacr-")
        if number.isdigit() and (old == _own_memory() or not psutil.pid_exists(int(number))):
            shutil.rmtree(old, ignore_errors=True)
    if shutil.disk_usage(MEMORY).free > ROOM:
        _own_memory().mkdir(mode=0o700)
        os.environ["TMPDIR"] = str(_own_memory())
        tempfile.tempdir = None
        # What torch.compile has made is as good the next time: it stays where torch keeps it.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{os.environ[DISK]}/torchinductor_tests")


def _own_memory() -> Path:
    return MEMORY / f"dacr-{os.getpid()}"


def leave_memory(status: int) -> None:
    """Give the memory back; what failing tests leave to look at stays until the next run."""
    if status == 0:
        shutil.rmtree(_own_memory(), ignore_errors=True)


def shelved(key: str, make: Callable[[Path], None]) -> Path:
    """The file or folder of this key, made by the first who asks for it."""
    place = folder() / key
    if not place.exists():
        with FileLock(place.with_name(f"{key}.lock")):
            if not place.exists():
                begun = Path(tempfile.mkdtemp(dir=place.parent))
                make(begun / "made")
                (begun / "made").rename(place)
                begun.rmdir()
    return place


def digest(files: Iterable[str], *more: str) -> str:
    """A key of these files of the project, by name and content, and of some words."""
    found = hashlib.sha256(repr(more).encode())
    for name in files:
        found.update(name.encode() + (ROOT / name).read_bytes())
    return found.hexdigest()[:16]


@cache
def folder() -> Path:
    """Where they are; those of a day ago are of other code."""
    place = Path(os.environ.get(DISK) or tempfile.gettempdir()) / f"dacr-tests-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    for old in place.iterdir():
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > A_DAY:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
    return place
