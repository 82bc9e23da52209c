"""Locks that end with the processes that hold them, however those end."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

PAUSE = 0.1


def lock(path: Path, patience: float = 0.0) -> IO[str] | None:
    """The file at ``path``, locked as long as it is open here or in a child that inherited it.

    None where another process still holds it after ``patience`` seconds.
    """
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (held by the caller)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.close()
                return None
            time.sleep(PAUSE)
        else:
            return file
