"""What tests make once per machine and code, and share: composed parameters, a finished project."""

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
    place = Path(tempfile.gettempdir()) / f"dacr-tests-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    for old in place.iterdir():
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > A_DAY:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
    return place
