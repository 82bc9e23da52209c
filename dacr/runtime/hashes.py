"""Checksums of files and folders as DVC writes them to ``dvc.lock``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from io import BufferedIOBase
from pathlib import Path

_new_md5 = partial(hashlib.md5, usedforsecurity=False)


def file_md5(path: Path) -> str:
    with path.open("rb") as file:
        return stream_md5(file)


def stream_md5(file: BufferedIOBase) -> str:
    return hashlib.file_digest(file, _new_md5).hexdigest()


def folder_md5(files: Mapping[str, str]) -> str:
    """Of a folder whose files have these checksums: that of the sorted list in JSON."""
    rows = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    return _new_md5(json.dumps(rows, sort_keys=True).encode()).hexdigest() + ".dir"


def md5(path: Path) -> str:
    """Of a file, or of a folder with all its files."""
    if not path.is_dir():
        return file_md5(path)
    inside = (file for file in path.rglob("*") if file.is_file())
    return folder_md5({file.relative_to(path).as_posix(): file_md5(file) for file in inside})
