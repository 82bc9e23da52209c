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

from filelock import FileLock

ROOT = Path(__file__).parents[1]
A_DAY = 86_400.0
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free there: ten times what the tests need."""
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
    if shutil.disk_usage(MEMORY).free > ROOM:
        place = MEMORY / f"dacr-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        os.environ["TMPDIR"] = str(place)
        tempfile.tempdir = None


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
