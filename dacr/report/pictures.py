"""Pictures as byte-stable PNG inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

HEAT = (0, 114, 178)


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def matrix_png(shares: Sequence[Sequence[float]]) -> bytes:
    """A matrix of percentages, one pixel an entry: one hue, its opacity the share.

    The page's own ground shows through, so the same picture serves light and dark.
    """
    opacity = np.clip(np.asarray(shares) / 100.0, 0.0, 1.0)
    pixels = np.empty((*opacity.shape, 4), dtype=np.uint8)
    pixels[..., :3] = HEAT
    pixels[..., 3] = np.round(255 * np.sqrt(opacity))  # the root lifts small shares into sight
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
