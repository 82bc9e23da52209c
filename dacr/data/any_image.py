"""Images from anywhere → rows as the benchmark has them.

An image becomes the very row that the build would make of it (dacr/data/pictures.py).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dacr.data.packing import pack_image
from dacr.data.pictures import FORMATS, OTHER_SUFFIXES, SUFFIXES, as_seen, strict_decoding
from dacr.errors import UserError

STDIN = "-"
IMAGES = SUFFIXES | OTHER_SUFFIXES
MOST_BYTES = 1 << 30


def named_images(names: Iterable[str]) -> Iterator[str | UserError]:
    """The images that ``names`` stand for, folders unfolded; in place of a wrong name, why."""
    for name in names:
        if name == STDIN:
            yield _checked_stdin()
        elif os.path.isdir(name):  # noqa: PTH112 (unlike Path.is_dir it never raises)
            yield from _inside(name)
        else:
            yield _checked(name)


def _checked_stdin() -> str | UserError:
    if sys.stdin is None or sys.stdin.closed:
        return UserError("standard input is closed; pipe an image into it")
    if sys.stdin.isatty():
        return UserError("standard input is a terminal; pipe an image into it")
    return STDIN


def _inside(folder: str) -> Iterator[str | UserError]:
    """The images in a folder at any depth in order, and subfolders that cannot be read."""
    empty = True
    for found in _walk(folder):
        empty = False
        yield found
    if empty:
        yield UserError(f"{folder}: the folder holds no images ({', '.join(sorted(IMAGES))})")


def _walk(folder: str) -> Iterator[str | UserError]:
    """Folder by folder, so that only the names in one and in those around it are in memory."""
    waiting = [(folder, True)]
    while waiting:
        path, is_folder = waiting.pop()
        if not is_folder:
            yield _checked_in_folder(path)
            continue
        try:
            with os.scandir(path) as entries:
                inside = sorted(((own.name, own) for own in entries), reverse=True)
        except OSError as error:
            yield UserError(f"{path}: {_reason(error)}")
            continue
        for name, own in inside:
            below, place = own.is_dir(follow_symlinks=False), str(Path(path, name))
            if below:
                waiting.append((place, True))
            elif Path(name).suffix.lower() in IMAGES and not os.path.isdir(place):  # noqa: PTH112
                waiting.append((place, False))  # but no link to a folder, which may lead back


def _checked_in_folder(name: str) -> str | UserError:
    """Who names a pipe wants it read; one that lies in a folder may be waited for without end."""
    checked = _checked(name)
    if isinstance(checked, str) and not Path(name).is_file():
        return UserError(f"{name}: not a regular file")
    return checked


def _checked(name: str) -> str | UserError:
    """The name, unless it is certain that nothing can be read there."""
    try:
        facts = Path(name).stat()
    except (OSError, ValueError) as error:
        return UserError(f"{name}: {_reason(error)}")
    if not os.access(name, os.R_OK):
        return UserError(f"{name}: permission denied")
    if stat.S_ISREG(facts.st_mode) and not facts.st_size:
        return UserError(f"{name}: the file is empty")
    return name


def _reason(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def read_image(name: str, size: int) -> NDArray[np.uint8]:
    """The file ``name`` (``-``: standard input) as size×size×3; a UserError names what is wrong."""
    shown = "standard input" if name == STDIN else name
    try:
        content = _content(name)
        if not content:
            raise OSError("the file is empty")
        return pack_image(np.asarray(_decode(content)), size)
    except UnidentifiedImageError:
        fault = f"not an image ({', '.join(FORMATS)} are read)"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        fault = f"more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels; scale it down first"
    except OSError as error:
        fault = _reason(error)
    except Exception as error:  # Pillow's plugins raise many kinds
        fault = f"cannot be decoded ({' '.join(str(error).split()) or type(error).__name__})"
    raise UserError(f"{shown}: {fault}")


def _content(name: str) -> bytes:
    """All of a file, unless it does not end within reason (a device, a wrong pipe)."""
    with nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"larger than {MOST_BYTES:,} bytes")
    return content


def _decode(content: bytes) -> Image.Image:
    with strict_decoding(), Image.open(BytesIO(content), formats=FORMATS) as picture:
        return as_seen(picture)
