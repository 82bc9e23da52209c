"""The packed benchmark: every image of every domain in one memory-mapped array, with an index.

``images.npy``      uint8 [N, size, size, 3]
``index.parquet``   id (its row in images.npy), label, domain, part (train or test), source_id
``benchmark.json``  the names behind the ids, the counts, and the paper's counts beside them;
                    written last, so that a folder without it is no benchmark
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dacr.data.packing import Packed, packed
from dacr.data.restriction import restricted
from dacr.data.sources.base import Sample, Source
from dacr.errors import UserError
from dacr.runtime.progress import IMAGES as IN_IMAGES
from dacr.runtime.progress import AmountProgress

IMAGES, INDEX, SUMMARY = "images.npy", "index.parquet", "benchmark.json"
COLUMNS = {"id": "int64", "label": "int64", "domain": "int64", "part": "str", "source_id": "str"}

Sources = Sequence[tuple[Source, Path]]


def build_benchmark(
    name: str,
    classes: list[str],
    domains: list[str],
    sources: Sources,
    *,
    image_size: int,
    out: Path,
    paper: Mapping[str, Any] | None = None,
    workers: int | None = None,
    per_pair: int | None = None,
    validation: float = 0.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Pack what ``sources`` hold into ``out``; for the last three see ``restrict``.

    Returns the summary, which stands there as ``benchmark.json``.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / SUMMARY).unlink(missing_ok=True)
    samples, total = restricted(lambda: _read(sources), per_pair, validation, seed)
    chunks = packed(_checked(samples, classes, domains), image_size, workers)
    progress = AmountProgress(f"build {name}", total or _size(sources), IN_IMAGES)
    try:
        with _partial(out / IMAGES).open("wb") as file:
            index, digest = _write_images(file, chunks, image_size, domains, progress)
    finally:
        progress.close()
    if index.empty:
        raise UserError(f"the sources of {name} hold no images; remove data/raw and fetch again")
    index.to_parquet(_partial(out / INDEX), index=False)
    summary = {
        "name": name,
        "classes": classes,
        "domains": domains,
        "image_size": image_size,
        "counts": count(index, len(classes), len(domains)),
        "paper": paper,
        "origins": {
            source.name: facts for source, folder in sources if (facts := source.facts(folder))
        },
        "pixels_sha256": digest,
    }
    text = json.dumps(summary, indent=2, sort_keys=True, ensure_ascii=False)
    _partial(out / SUMMARY).write_text(text + "\n", encoding="utf-8")
    for file_name in (IMAGES, INDEX, SUMMARY):
        _partial(out / file_name).replace(out / file_name)
    return summary


def describe(summary: Mapping[str, Any]) -> list[str]:
    """What was built, as lines: all images, those of a class in each domain, and their origin."""
    counts, classes, domains = summary["counts"], summary["classes"], summary["domains"]
    lines = [
        f"{summary['name']}: {counts['train']:,} images to train and {counts['test']:,} to test,"
        f" {len(classes)} classes × {len(domains)} domains ({SUMMARY} lists every pair)"
    ]
    for number, domain in enumerate(domains):
        pairs = [pair for pair in counts["pairs"] if pair["domain"] == number]
        spans = {part: _span([pair[part] for pair in pairs]) for part in ("train", "test")}
        lines.append(f"  {domain}: {spans['train']} to train and {spans['test']} to test a class")
    origins = summary["origins"].items()
    return lines + [f"  source {name}: {facts['kind']}" for name, facts in origins]


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _read(sources: Sources) -> Iterator[Sample]:
    for source, folder in sources:
        yield from source.read(folder)


def _size(sources: Sources) -> int | None:
    sizes = [source.size(folder) for source, folder in sources]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _checked(samples: Iterable[Sample], classes: list[str], domains: list[str]) -> Iterator[Sample]:
    """The same samples, up to one that the benchmark has no place for."""
    for sample in samples:
        if sample.domain not in domains:
            raise UserError(
                f"image {sample.source_id} is of domain '{sample.domain}', which is not among "
                f"data.domains ({', '.join(domains)}); add it there"
            )
        if not 0 <= sample.label < len(classes):
            raise UserError(
                f"image {sample.source_id} of {sample.domain} has label {sample.label}, but there "
                f"are {len(classes)} classes; correct data.class_names"
            )
        yield sample


def _write_images(
    file: BinaryIO,
    chunks: Iterable[Packed],
    size: int,
    domains: list[str],
    progress: AmountProgress,
) -> tuple[pd.DataFrame, str]:
    """Write images.npy as the chunks come; return the index and the digest of all pixels."""
    rows: list[tuple[int, int, str, str]] = []
    digest = hashlib.sha256()
    _write_header(file, 0, size)
    for samples, images in chunks:
        rows += [(s.label, domains.index(s.domain), s.part, s.source_id) for s in samples]
        digest.update(images.data)
        file.write(images.data)
        progress.step(len(samples))
    file.seek(0)
    _write_header(file, len(rows), size)
    index = pd.DataFrame(rows, columns=list(COLUMNS)[1:])
    index.insert(0, "id", np.arange(len(rows)))
    return index, digest.hexdigest()


def _write_header(file: BinaryIO, n: int, size: int) -> None:
    """The header of images.npy. NumPy pads it so that a larger N takes no more bytes."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (n, size, size, 3)}
    np.lib.format.write_array_header_1_0(file, header)


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
        summary = open_summary(folder / SUMMARY)
        name, classes, domains = summary["name"], summary["classes"], summary["domains"]
        images = _open_images(folder / IMAGES)
        index = _open_index(folder / INDEX)
        size, n = summary["image_size"], summary["counts"]["train"] + summary["counts"]["test"]
        if images.shape != (n, size, size, 3):
            _damaged(folder / IMAGES, f"has shape {images.shape}, not {(n, size, size, 3)}")
        if not np.array_equal(index["id"], np.arange(n)):
            _damaged(folder / INDEX, f"does not list the images 0 to {n - 1} in order")
        for column, known in (("label", classes), ("domain", domains)):
            if not index[column].between(0, len(known) - 1).all():
                _damaged(folder / INDEX, f"has a {column} outside 0 to {len(known) - 1}")
        if count(index, len(classes), len(domains)) != summary["counts"]:
            _damaged(folder / INDEX, f"does not have the counts of {SUMMARY}")
        return cls(name, classes, domains, size, images, index)


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
