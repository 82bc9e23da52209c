"""A picture of a benchmark at a glance: a row per domain, a column per class."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dacr.data.benchmark import Benchmark

MOST_CLASSES = 10
SIDE = 2  # a cell shows SIDE × SIDE images of its pair
TILE, SEAM, GAP, MARGIN, LINE = 44, 2, 14, 18, 30
CELL = SIDE * TILE + (SIDE - 1) * SEAM
PAPER, INK, EMPTY = "#ffffff", "#24292f", "#eaeef2"


def contact_sheet(benchmark: Benchmark, path: Path) -> None:
    """Write a PNG with training images of each pair; of many classes it shows ten."""
    font = ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), 15)
    shown = _spread(np.arange(len(benchmark.classes)), MOST_CLASSES)
    indent = MARGIN + GAP + int(max(font.getlength(name) for name in benchmark.domains))
    size = (
        indent + len(shown) * (CELL + GAP) - GAP + MARGIN,
        LINE + len(benchmark.domains) * (CELL + GAP) - GAP + MARGIN,
    )
    sheet = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(sheet)
    for z, domain in enumerate(benchmark.domains):
        y = LINE + z * (CELL + GAP)
        pen.text((indent - GAP, y + CELL / 2), domain, INK, font, anchor="rm")
        for column, c in enumerate(shown):
            _paste_cell(sheet, (indent + column * (CELL + GAP), y), benchmark, c, z)
    for column, c in enumerate(shown):
        name = _shorten(benchmark.classes[c], font)
        pen.text(
            (indent + column * (CELL + GAP) + CELL / 2, LINE / 2), name, INK, font, anchor="mm"
        )
    sheet.save(path, optimize=True)


def _paste_cell(
    sheet: Image.Image, corner: tuple[int, int], benchmark: Benchmark, c: int, z: int
) -> None:
    """Images of the pair (c, z) from all over its training part; a grey cell where it has none."""
    index = benchmark.index
    of_pair = (index["label"] == c) & (index["domain"] == z) & (index["part"] == "train")
    ids = _spread(index.loc[of_pair, "id"].to_numpy(), SIDE * SIDE)
    if not len(ids):
        sheet.paste(EMPTY, (*corner, corner[0] + CELL, corner[1] + CELL))
    for place, image in enumerate(benchmark.images[ids]):
        row, column = divmod(place, SIDE)
        tile = Image.fromarray(image).resize((TILE, TILE), Image.Resampling.LANCZOS)
        at = corner[0] + column * (TILE + SEAM), corner[1] + row * (TILE + SEAM)
        sheet.paste(tile, at)


def _spread(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the values, evenly spaced from the first."""
    n = min(most, len(values))
    return values[np.arange(n) * len(values) // max(n, 1)]


def _shorten(name: str, font: ImageFont.FreeTypeFont) -> str:
    """The name, or as much of it as a column holds."""
    if font.getlength(name) <= CELL:
        return name
    end = next(end for end in range(len(name), -1, -1) if font.getlength(name[:end] + "…") <= CELL)
    return name[:end] + "…"
