"""Coloured type on coloured clutter, in SYN's role: the glyphs of matplotlib's bundled fonts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image as Picture
from PIL import ImageDraw, ImageFont
from scipy import ndimage

from dacr.data.sources.base import Part
from dacr.data.sources.embedded import (
    SIZE,
    EmbeddedSource,
    Image,
    Plane,
    Pose,
    shrink,
    to_image,
    warp,
)

# A face of the test part has relatives in the training part (its family at another weight or
# slant), as unseen street signs and books resemble the seen ones.
FACES: dict[Part, tuple[str, ...]] = {
    "train": (
        "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-BoldOblique",
        "DejaVuSansMono", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
        "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic",
        "STIXGeneral", "STIXGeneralItalic", "STIXGeneralBolIta",
        "cmr10", "cmss10", "cmti10", "cmtt10",
    ),
    "test": (
        "DejaVuSans-Oblique", "DejaVuSansMono-Bold", "DejaVuSerif-Italic", "STIXGeneralBol",
        "cmb10",
    ),
}  # fmt: skip

POSE = Pose(zoom=(0.7, 1.05), degrees=25, shear=0.25, shift=2.0)
FINE = 3  # glyphs are drawn and turned at this many times the resolution, then averaged
CANVAS = 2 * FINE * SIZE  # wide enough that a neighbour enters the turned view whole


@cache
def _font(face: str) -> ImageFont.FreeTypeFont:
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{face}.ttf")
    return ImageFont.truetype(path, FINE * SIZE, layout_engine=ImageFont.Layout.BASIC)


def glyphs(label: int, part: Part) -> tuple[str, ...]:
    """The base digits of a class: its glyph in every face of the part."""
    return tuple(f"{face}/{label}" for face in FACES[part])


def _typeset(face: str, text: str, gap: int) -> Plane:
    """The ink in [0, 1] of three characters ``gap`` pixels apart, the middle one centred."""
    font = _font(face)
    left, top, right, bottom = font.getbbox(text[1], anchor="ls")
    x, y = (CANVAS - left - right) / 2, (CANVAS - top - bottom) / 2
    canvas = Picture.new("L", (CANVAS, CANVAS))
    pen = ImageDraw.Draw(canvas)
    pen.text((x, y), text[1], 255, font, anchor="ls")
    pen.text((x + left - gap * FINE, y), text[0], 255, font, anchor="rs")
    pen.text((x + right + gap * FINE, y), text[2], 255, font, anchor="ls")
    return np.asarray(canvas, np.float64) / 255


def printed(face: str, text: str, gap: int, pose: Pose, rng: np.random.Generator) -> Plane:
    """The ink in [0, 1] of three characters at 32×32, a little moved about the middle one."""
    return shrink(warp(_typeset(face, text, gap), FINE * SIZE, pose, 1, rng), FINE)


def among_neighbours(digit: str, chance: float, rng: np.random.Generator) -> str:
    """The digit between two others, each of which is there by ``chance``."""
    left, right = (str(rng.integers(10)) if rng.random() < chance else " " for _ in range(2))
    return f"{left}{digit}{right}"


def ramp(rng: np.random.Generator) -> Plane:
    """A plane from −1 to 1 over the picture, in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.asarray((cos * x + sin * y) / (abs(cos) + abs(sin)))


def _clutter(rng: np.random.Generator) -> Plane:
    """A few strokes over the background, in [0, 1]."""
    side = FINE * SIZE
    canvas = Picture.new("L", (side, side))
    pen = ImageDraw.Draw(canvas)
    for _ in range(rng.integers(1, 4)):
        ends = [float(value) for value in rng.uniform(0, side, 4)]
        pen.line(ends, 255, int(rng.integers(2, 4)) * FINE)
    return shrink(np.asarray(canvas, np.float64) / 255, FINE)


def _colours(rng: np.random.Generator) -> tuple[Plane, Plane]:
    """Two colours that an eye tells apart, by hue or by lightness."""
    while True:
        ink, paper = rng.uniform(0, 255, (2, 3))
        if np.linalg.norm(ink - paper) > 130:
            return ink, paper


class Rendered(EmbeddedSource):
    name = "rendered"

    def bases(self, label: int, part: Part) -> tuple[str, ...]:
        return glyphs(label, part)

    def draw(self, base: str, rng: np.random.Generator) -> Image:
        face, digit = base.split("/")
        ink = printed(face, among_neighbours(digit, 0.4, rng), 5, POSE, rng)[..., None]
        colour, paper = _colours(rng)
        other = rng.uniform(0, 255, 3)
        background = paper + 0.25 * (other - paper) * (ramp(rng) + 1)[..., None]
        background += 0.6 * (other - background) * _clutter(rng)[..., None]
        picture = background + ink * (colour - background)
        blur = rng.uniform(0, 0.8)
        return to_image(ndimage.gaussian_filter(picture, (blur, blur, 0)))


SOURCE = Rendered()
