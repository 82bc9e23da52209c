"""The packed benchmark: every image of every domain in one memory-mapped array, with an index.

``images.npy``      uint8 [N, size, size, 3]
``index.parquet``   id (its row in images.npy), label, domain, part (train or test), source_id,
                    pixels (a hash of its content)
``benchmark.json``  the names behind the ids, the counts, and the paper's counts beside them;
                    written last, so that a folder without it is no benchmark

This module reads it; ``building`` writes it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dacr.errors import UserError

IMAGES, INDEX, SUMMARY = "images.npy", "index.parquet", "benchmark.json"
COLUMNS = {
    "id": "int64",
    "label": "int64",
    "domain": "int64",
    "part": "str",
    "source_id": "str",
    "pixels": "str",
}


def pixels_hash(image: NDArray[np.uint8]) -> str:
    """A short hash of an image's content: 16 hexadecimal digits."""
    return hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()[:16]


def check_pixels(images: NDArray[np.uint8], table: pd.DataFrame, origin: str) -> None:
    """Refuse images that are not those of ``table`` (id, pixels), which is called ``origin``.

    A session depends on its table and not on the whole benchmark; this makes the two equal.
    """
    for number, expected in zip(table["id"], table["pixels"], strict=True):
        if number >= len(images) or pixels_hash(images[number]) != expected:
            raise UserError(
                f"image {number} of the benchmark is not the one that {origin} lists; "
                "run `dvc repro build` or `dvc checkout data/benchmark`"
            )


def count(index: pd.DataFrame, n_classes: int, n_domains: int) -> dict[str, Any]:
    """The number of images by part, and by part of each (class, domain) pair, by their ids."""
    by_pair = index.groupby(["label", "domain", "part"]).size().to_dict()
    pairs = [
        {"class": c, "domain": z}
        | {part: int(by_pair.get((c, z, part), 0)) for part in ("train", "test")}
        for c in range(n_classes)
        for z in range(n_domains)
    ]
    return {"pairs": pairs} | {part: sum(p[part] for p in pairs) for part in ("train", "test")}


@dataclass(frozen=True)
class Benchmark:
    """A benchmark on disk that was checked to be whole. ``images`` stays there until it is used."""

    name: str
    classes: list[str]
    domains: list[str]
    image_size: int
    images: NDArray[np.uint8]
    index: pd.DataFrame

    @classmethod
    def open(cls, folder: Path) -> Benchmark:
        summary, index = read_index(folder)
        images, size = _open_images(folder / IMAGES), summary["image_size"]
        if images.shape != (len(index), size, size, 3):
            expected = (len(index), size, size, 3)
            _damaged(folder / IMAGES, f"has shape {images.shape}, not {expected}")
        names = summary["name"], summary["classes"], summary["domains"]
        return cls(*names, size, images, index)


def read_index(folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """``benchmark.json`` and the index, checked against each other; the images are not needed."""
    summary = open_summary(folder / SUMMARY)
    classes, domains, counts = summary["classes"], summary["domains"], summary["counts"]
    index, n = _open_index(folder / INDEX), counts["train"] + counts["test"]
    if not np.array_equal(index["id"], np.arange(n)):
        _damaged(folder / INDEX, f"does not list the images 0 to {n - 1} in order")
    for column, known in (("label", classes), ("domain", domains)):
        if not index[column].between(0, len(known) - 1).all():
            _damaged(folder / INDEX, f"has a {column} outside 0 to {len(known) - 1}")
    if count(index, len(classes), len(domains)) != counts:
        _damaged(folder / INDEX, f"does not have the counts of {SUMMARY}")
    return summary, index


def _damaged(path: Path, problem: str) -> NoReturn:
    raise UserError(f"{path} {problem}; run `dvc repro build` to make it again")


def open_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        for key, kind in {"name": str, "classes": list, "domains": list, "image_size": int}.items():
            if not isinstance(summary[key], kind):
                raise TypeError
        _ = summary["counts"]["train"] + summary["counts"]["test"]
    except FileNotFoundError:
        _damaged(path, "is missing")
    except (ValueError, KeyError, TypeError):
        _damaged(path, "is damaged")
    return dict(summary)


def _open_images(path: Path) -> NDArray[np.uint8]:
    try:
        images = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        _damaged(path, "is missing")
    except (ValueError, EOFError):
        _damaged(path, "is truncated or no array")
    if images.dtype != np.uint8:
        _damaged(path, f"has values of type {images.dtype}, not uint8")
    if path.stat().st_size != images.offset + images.nbytes:
        _damaged(path, "is longer than its header says")
    return images


def _open_index(path: Path) -> pd.DataFrame:
    try:
        index = pd.read_parquet(path)
    except FileNotFoundError:
        _damaged(path, "is missing")
    except (ValueError, OSError):  # pyarrow's errors derive from these
        _damaged(path, "is truncated or no parquet file")
    if index.dtypes.astype(str).to_dict() != COLUMNS:
        _damaged(path, f"does not have the columns {', '.join(COLUMNS)}")
    return index
