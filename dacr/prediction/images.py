"""Images from anywhere → rows as the benchmark has them.

An image becomes the very row that the build would make of it (dacr/data/pictures.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dacr.data.packing import pack_image
from dacr.data.pictures import FORMATS, OTHER_SUFFIXES, SUFFIXES, as_seen, strict_decoding
from dacr.errors import UserError

STDIN = "-"
IMAGES = SUFFIXES | OTHER_SUFFIXES
MOST_BYTES = 1 << 30


def find_images(names: Iterable[str]) -> Iterator[str | UserError]:
    """The images that ``names`` stand for, folders unfolded; in place of a wrong name, why."""
    for name in names:
        path = Path(name)
        if name == STDIN or not path.is_dir():
            yield name
            continue
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGES and p.is_file())
        yield from (str(p) for p in inside)
        if not inside:
            yield UserError(f"{name}: the folder holds no images ({', '.join(sorted(IMAGES))})")


def read_image(name: str, size: int) -> NDArray[np.uint8]:
    """The file ``name`` (``-``: standard input) as size×size×3; a UserError names what is wrong."""
    shown = "standard input" if name == STDIN else name
    try:
        content = _content(name)
        return pack_image(np.asarray(_decode(content)), size)
    except FileNotFoundError:
        fault = "no such file"
    except UnidentifiedImageError:
        fault = f"not an image ({', '.join(FORMATS)} are read)"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        fault = f"more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels; scale it down first"
    except OSError as error:
        fault = (error.strerror or str(error)).lower()
    except Exception as error:  # Pillow's plugins raise many kinds
        fault = f"cannot be decoded ({' '.join(str(error).split()) or type(error).__name__})"
    raise UserError(f"{shown}: {fault}")


def _content(name: str) -> bytes:
    if name == STDIN:
        return _limited(sys.stdin.buffer)
    with open(name, "rb") as stream:
        return _limited(stream)


def _limited(stream: BinaryIO) -> bytes:
    """All of a stream, unless it does not end within reason (a device, a wrong pipe)."""
    content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"larger than {MOST_BYTES:,} bytes")
    return content


def _decode(content: bytes) -> Image.Image:
    with strict_decoding(), Image.open(BytesIO(content), formats=FORMATS) as picture:
        return as_seen(picture)
