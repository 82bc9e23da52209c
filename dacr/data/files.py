"""Files that are whole or absent, and what is known of those that others published."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

BLOCK = 1 << 20


def _well_formed(address: str) -> str:
    """Also what the pattern lets pass must come apart, as a host such as ``[::1`` does not."""
    urlsplit(address)
    return address


Address = Annotated[str, Field(pattern=r"^https?://[^\s/]+/\S*$"), AfterValidator(_well_formed)]
Checksum = Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")]


def _listed(value: object) -> object:
    """One checksum, none (null) or a list of them."""
    return () if value is None else (value,) if isinstance(value, str) else value


class RemoteFile(BaseModel):
    """What ``conf/sources.yaml`` knows of a file; null where nothing was published."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    addresses: tuple[Address, ...]
    size: int | None = Field(ge=0)
    checksum: Annotated[tuple[Checksum, ...], BeforeValidator(_listed)]
    """Every one of them must be right; without any the file is trusted on first use."""
    at_least: int | None = Field(default=None, ge=0)
    """A file with fewer bytes is another one; for files whose size was not published."""


@dataclass(frozen=True)
class Fingerprint:
    """What a file is, whatever it is called."""

    size: int
    md5: str
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        with path.open("rb") as stream:
            return cls.read(stream)

    @classmethod
    def read(cls, stream: IO[bytes]) -> Self:
        md5, sha256, size = hashlib.md5(usedforsecurity=False), hashlib.sha256(), 0
        while block := stream.read(BLOCK):
            md5.update(block)
            sha256.update(block)
            size += len(block)
        return cls(size, md5.hexdigest(), sha256.hexdigest())

    def fault(self, file: RemoteFile) -> str | None:
        """How this differs from the published file, if it does."""
        if file.size is not None and self.size != file.size:
            return f"{self.size:,} bytes instead of {file.size:,}"
        if self.size < (file.at_least or 0):
            return f"{self.size:,} bytes, fewer than {file.at_least:,}"
        for checksum in file.checksum:
            algorithm, _, expected = checksum.partition(":")
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
