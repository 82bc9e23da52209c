"""The committed run: files as they are in git's HEAD."""

from __future__ import annotations

import hashlib
from pathlib import Path

from dacr.runtime.git import git_or_nothing

REAL = "--no-replace-objects"
"""`git replace` shows another commit in place of HEAD."""


def committed(path: Path | str) -> str:
    """A file as it is in git's HEAD; empty where there is none."""
    return git_or_nothing(REAL, "show", f"HEAD:./{path}")


def unlike_committed(*paths: str) -> list[str]:
    """The files of HEAD below these paths that have other bytes here, or are missing.

    `git status` and `git diff` do not tell: both believe an index that says 'assume unchanged'.
    """
    tree = git_or_nothing(REAL, "ls-tree", "-r", "HEAD", "--", *paths)
    blobs = {line.partition("\t")[2]: line.split()[2] for line in tree.splitlines()}
    return [name for name, blob in blobs.items() if _blob(Path(name), len(blob)) != blob]


def _blob(path: Path, digits: int) -> str | None:
    """The name that git gives to the content of a file; sha256 in some repositories."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    kind = "sha256" if digits == 64 else "sha1"
    digest = hashlib.new(kind, b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()
