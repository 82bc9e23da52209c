"""Files that are whole or absent, and what is known of those that others published."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

BLOCK = 1 << 20


def _well_formed(address: str) -> str:
    """Also what the pattern lets pass must come apart, as a host such as ``[::1`` does not."""
    urlsplit(address)
    return address


Address = Annotated[str, Field(pattern=r"^https?://[^\s/]+/\S*$"), AfterValidator(_well_formed)]
Checksum = Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")]


class RemoteFile(BaseModel):
    """What ``conf/sources.yaml`` knows of a file; ``None`` where nothing was published."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    addresses: tuple[Address, ...]
    size: int | None = Field(ge=0)
    checksum: Checksum | None


@dataclass(frozen=True)
class Fingerprint:
    """What a file is, whatever it is called."""

    size: int
    md5: str
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                md5.update(block)
                sha256.update(block)
                size += len(block)
        return cls(size, md5.hexdigest(), sha256.hexdigest())

    def fault(self, file: RemoteFile) -> str | None:
        """How this differs from the published file, if it does."""
        if file.size is not None and self.size != file.size:
            return f"{self.size:,} bytes instead of {file.size:,}"
        if file.checksum is not None:
            algorithm, _, expected = file.checksum.partition(":")
            actual = getattr(self, algorithm)
            if actual != expected:
                return f"{algorithm} {actual} instead of {expected}"
        return None


def user_path(path: Path) -> Path:
    """A path of the user's; a relative one starts at the project, not at DVC's copies of it."""
    return Path(os.environ.get("DVC_ROOT", ".")) / path.expanduser()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def land(source: Path, target: Path) -> None:
    """Move a finished file into place: at any moment ``target`` is whole or absent."""
    _sync(source)
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, beside)
        _sync(beside)
        beside.replace(target)
        source.unlink()
    _sync(target.parent)


def copy_in(original: Path, target: Path) -> None:
    """Copy a file of the user's into place: at any moment ``target`` is whole or absent."""
    beside = target.with_name(f".{target.name}.part")
    shutil.copyfile(original, beside)
    land(beside, target)
