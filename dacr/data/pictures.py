"""Image files → the pixels that a person sees: upright, of 8 bits, and opaque.

Training and prediction must see the same. What Pillow's conversion to RGB would spoil is put right
first: a photograph is turned upright, 16-bit grey levels are scaled to 8 bits, and what is
transparent is laid on white.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import numpy as np
from PIL import ExifTags, Image, ImageOps

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""What is decoded. Others are refused: Pillow hands EPS, for one, to an interpreter."""
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
"""Of files that may be images of a benchmark."""
OTHER_SUFFIXES = {".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
"""Of files that can only be predicted."""


@contextmanager
def strict_decoding() -> Iterator[None]:
    """Make an error of what Pillow only warns of: an image that fills the memory.

    The filters are those of all threads, so that this belongs around them and not into them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def as_seen(picture: Image.Image) -> Image.Image:
    """The picture as RGB."""
    return _opaque(_eight_bits(ImageOps.exif_transpose(picture)))


def may_be_spoilt(picture: Image.Image) -> bool:
    """Whether a plain conversion to RGB might give other pixels than are seen."""
    turned = picture.getexif().get(ExifTags.Base.Orientation, 1) != 1
    return turned or _is_deep(picture) or picture.has_transparency_data


def redrawn(picture: Image.Image) -> bytes | None:
    """A PNG of what is seen, where a plain conversion to RGB would give other pixels."""
    if not may_be_spoilt(picture):
        return None
    seen = np.asarray(as_seen(picture))
    if np.array_equal(seen, np.asarray(picture.convert("RGB"))):
        return None
    file = BytesIO()
    Image.fromarray(seen).save(file, "PNG")
    return file.getvalue()


def _is_deep(picture: Image.Image) -> bool:
    return picture.mode == "F" or picture.mode.startswith("I")


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Grey levels of 16 bits scaled to 8: Pillow's own conversion would cut all above 255."""
    if not _is_deep(picture):
        return picture
    levels = np.asarray(picture)
    if picture.mode == "F" or levels.min() < 0 or levels.max() > 0xFFFF:
        raise ValueError("its grey levels have more than 16 bits; convert it to 8")
    return Image.fromarray((levels.astype(np.uint32) // 257).astype(np.uint8))


def _opaque(picture: Image.Image) -> Image.Image:
    """RGB; what is transparent lies on white, since the colour beneath it is arbitrary."""
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    picture = picture.convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("RGB")
