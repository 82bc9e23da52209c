"""Read from archives that strangers made: only what was asked for, or one clear line.

An archive is hostile until proved otherwise. Nothing here ever writes a member to disk. A path that
leaves the archive, a link, a device, a bomb, or a pickle that holds more than plain values and
arrays is refused, also when it is not among the members that were asked for.
"""

from __future__ import annotations

import bz2
import gzip
import io
import math
import pickle
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dacr.errors import UserError

GIB = 1 << 30
MAX_UNPACKED = 4 * GIB  # what one read may bring into memory; SYN, the largest, needs 1.5 GiB
MAX_ZIP = 64 * GIB  # what all members of a zip may claim together; DomainNet's largest has 6
MAX_RATIO = 100  # the sources' own archives stay below 10 …
RATIO_FLOOR = 64 << 20  # … but small runs of equal values may shrink any number of times

_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@contextmanager
def _one_line(path: Path, kind: str) -> Iterator[None]:
    """Turn what a damaged archive makes the standard library raise into one line."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} is missing; fetch or restore it") from None
    except _DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} is not a readable {kind}: {reason}; replace it") from None


def _refuse_bomb(path: Path, unpacked: int, packed: int, limit: int) -> None:
    if unpacked > limit:
        raise UserError(f"{path} unpacks to more than {limit:,} bytes; it is refused")
    if unpacked > RATIO_FLOOR and unpacked > MAX_RATIO * packed:
        raise UserError(f"{path} unpacks to over {MAX_RATIO} times its size; it is a bomb")


def refuse_unsafe_name(path: Path, name: str) -> None:
    """Refuse a member whose name leads out of the archive."""
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or name[1:2] == ":":
        raise UserError(f"{path} holds the unsafe path {name!r}; it is refused")


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Bounded:
    """A stream that refuses to give more than a bomb would need."""

    def __init__(self, stream: _Readable, path: Path, limit: int) -> None:
        self._stream, self._path, self._limit = stream, path, limit
        self._packed, self._count = path.stat().st_size, 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self._limit + 1 - self._count if size < 0 else size)
        self._count += len(data)
        _refuse_bomb(self._path, self._count, self._packed, self._limit)
        return data


def read_gzip(path: Path, limit: int = MAX_UNPACKED) -> bytes:
    """The content of a ``.gz`` file."""
    with _one_line(path, "gzip file"), gzip.open(path) as stream:
        return _read_bounded(stream, path, limit)


def read_bz2(path: Path, limit: int = MAX_UNPACKED) -> bytes:
    """The content of a ``.bz2`` file."""
    with _one_line(path, "bz2 file"), bz2.open(path) as stream:
        return _read_bounded(stream, path, limit)


def _read_bounded(stream: _Readable, path: Path, limit: int) -> bytes:
    if path.stat().st_size == 0:  # which Python takes for a file without content
        raise EOFError("it is empty")
    bounded, unpacked = _Bounded(stream, path, limit), io.BytesIO()
    while block := bounded.read(1 << 20):
        unpacked.write(block)
    return unpacked.getvalue()


def _refuse_special(path: Path, member: tarfile.TarInfo) -> None:
    refuse_unsafe_name(path, member.name)
    if member.issparse():  # its holes take no bytes of the archive
        raise UserError(f"{path} holds a sparse file, {member.name!r}; it is refused")
    if not (member.isfile() or member.isdir()):
        raise UserError(f"{path} holds a link or device, {member.name!r}; it is refused")


def read_tar_gz(path: Path, names: Collection[str], limit: int = MAX_UNPACKED) -> dict[str, bytes]:
    """The named members of a ``.tar.gz``; every other member is looked at and left alone."""
    found: dict[str, bytes] = {}
    with _one_line(path, "tar.gz archive"), gzip.open(path) as stream:
        bounded: Any = _Bounded(stream, path, limit)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for member in archive:
                _refuse_special(path, member)
                name = member.name.removeprefix("./")
                content = archive.extractfile(member) if name in names else None
                if content is not None:
                    found[name] = content.read()
        while bounded.read(1 << 20):  # to the end, where gzip's own checksum stands
            pass
    _refuse_incomplete(path, names, found)
    return found


def _refuse_incomplete(path: Path, names: Collection[str], found: Collection[str]) -> None:
    missing = sorted(set(names) - set(found))
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise UserError(f"{path} does not hold {missing[0]!r}{more}; it is not the expected file")


def _refuse_special_entry(path: Path, entry: zipfile.ZipInfo) -> None:
    refuse_unsafe_name(path, entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise UserError(f"{path} holds a link or device, {entry.filename!r}; it is refused")
    _refuse_bomb(path, entry.file_size, entry.compress_size, MAX_UNPACKED)


@contextmanager
def open_zip(path: Path, names: Collection[str] = ()) -> Iterator[zipfile.ZipFile]:
    """A zip whose every entry was looked at and that holds all of ``names``."""
    with _one_line(path, "zip archive"), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        for entry in entries:
            _refuse_special_entry(path, entry)
        _refuse_bomb(path, sum(e.file_size for e in entries), path.stat().st_size, MAX_ZIP)
        present = set(archive.namelist())
        if len(present) != len(entries):
            raise UserError(f"{path} holds two members of the same name; it is refused")
        _refuse_incomplete(path, names, present)
        yield archive


def read_npz(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """The named arrays of a ``.npz`` file; arrays of Python objects are refused."""
    with open_zip(path, [f"{name}.npy" for name in names]), _one_line(path, "npz file"):
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in names}
        except MemoryError:
            raise UserError(f"{path} claims an array larger than memory; it is refused") from None


# Pickles -----------------------------------------------------------------------------------------


class _PickledType:
    """Stands for numpy's dtype while a pickle is read."""

    def __init__(self, code: str, *_: object) -> None:
        if np.dtype(code).kind not in "biuf":
            raise pickle.UnpicklingError(f"an array of type {code!r}")
        self._dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._dtype = self._dtype.newbyteorder(state[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype


class _PickledArray:
    """Stands for numpy's array while a pickle is read: only its bytes can make it large."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, raw = state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        flat = np.frombuffer(raw, kind.dtype)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


def _no_call(*_: object) -> None:
    raise pickle.UnpicklingError("a call of numpy.ndarray")


def _reconstruct(*_: object) -> _PickledArray:
    return _PickledArray()


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _no_call,  # only ever named, as the kind to reconstruct
    ("numpy", "dtype"): _PickledType,
}


def _no_bytearray(_: object) -> None:
    raise pickle.UnpicklingError("a bytearray")  # which takes room before its bytes are there


class _PlainUnpickler(pickle._Unpickler):
    """Python's own unpickler: that in C keeps its memo in an array as long as a pickle says."""

    dispatch: ClassVar = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _no_bytearray}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name}") from None


def _plain(value: object, done: dict[int, Any]) -> Any:
    """The value with its arrays in place; anything that is not plain is refused.

    ``done`` keeps a few nested lists that share their items from growing without end.
    """
    if id(value) in done:
        return done[id(value)]
    plain: Any
    match value:
        case dict():
            plain = {_plain(key, done): _plain(item, done) for key, item in value.items()}
        case list():
            plain = [_plain(item, done) for item in value]
        case bool() | int() | float() | str() | bytes() | None:
            return value
        case _PickledArray():
            plain = value.array
        case _:
            raise pickle.UnpicklingError(f"a {type(value).__name__.strip('_')}")
    done[id(value)] = plain
    return plain


def read_plain_pickle(data: bytes, origin: str) -> Any:
    """Load a pickle of dicts, lists, strings, numbers and numeric arrays, and of nothing else."""
    try:
        return _plain(_PlainUnpickler(io.BytesIO(data), encoding="latin1").load(), {})
    except Exception as error:  # a hostile pickle can make its reader raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{origin} holds more than plain arrays ({reason}): refused") from None


# Bytes an element of MATLAB's classes; others are taken for the widest.
_WIDTHS = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "single": 4}


def refuse_large_matlab(file: IO[bytes], origin: str, limit: int = MAX_UNPACKED) -> None:
    """Refuse a MATLAB file whose variables, which it compresses itself, would fill the memory."""
    from scipy.io import whosmat

    try:
        variables = whosmat(file)
    except Exception as error:  # scipy raises many kinds for a damaged file
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{origin} is not a MATLAB file ({reason})") from None
    file.seek(0)
    claimed = sum(math.prod(shape) * _WIDTHS.get(kind, 8) for _, shape, kind in variables)
    if claimed > limit:
        raise UserError(f"{origin} claims {claimed:,} bytes of arrays; it is refused")


def _refuse_compressed(data: bytes) -> None:
    """Refuse a torch file that could unpack to any size: torch itself stores and never compresses.

    An old one, before torch took to zip, is no archive and cannot be compressed.
    """
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("compressed tensors")


def read_tensors(data: bytes, origin: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pair of tensors (images, labels) that ``torch.save`` wrote; nothing else is loaded."""
    import torch

    try:
        _refuse_compressed(data)
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        images, labels = (tensor.numpy() for tensor in content)
    except Exception:  # torch raises many kinds, with messages that advise to switch the guard off
        raise UserError(f"{origin} is not a pair of plain tensors; it is refused") from None
    return images, labels
