"""Pack what the sources hold into one benchmark (``dacr/data/benchmark.py`` says what it is)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from dacr.config import Data, DuplicatePolicy
from dacr.data.benchmark import COLUMNS, IMAGES, INDEX, SUMMARY, count, pixels_hash
from dacr.data.duplicates import (
    cut,
    find_duplicates,
    refuse_duplicates,
    tell_duplicates,
    to_drop,
)
from dacr.data.packing import Packed, packed
from dacr.data.restriction import Limit, limit_of, restricted
from dacr.data.sources import get_source
from dacr.data.sources.base import Sample, Source
from dacr.errors import UserError
from dacr.names import one_form
from dacr.runtime.progress import IMAGES as IN_IMAGES
from dacr.runtime.progress import AmountProgress

Sources = Sequence[tuple[Source, Path]]


def build(data: Data, seed: int, raw: Path, out: Path) -> list[str]:
    """The benchmark of ``params.yaml`` in ``out``; what was built, as lines."""
    options = data.source_options | data.read_options
    sources = [(get_source(name, options), raw / name) for name in data.sources]
    classes = [one_form(name) for name in data.class_names or names_of_classes(sources)]
    domains = [one_form(name) for name in data.domains]
    check_classes(data, classes)
    summary = build_benchmark(
        data.benchmark,
        classes,
        domains,
        sources,
        image_size=data.image_size,
        out=out,
        paper=data.paper,
        limit=limit_of(data),
        validation=data.validation,
        seed=seed,
        duplicates=data.duplicates,
    )
    found = find_duplicates(pd.read_parquet(out / INDEX))
    return [
        *tell_counts(summary),
        *tell_choice(summary["origins"]),
        *tell_validation(data),
        *tell_duplicates(found, data.benchmark, classes, domains),
    ]


def names_of_classes(sources: Sources) -> list[str]:
    """The classes that the sources name: those of the first, then what each further one adds.

    So a source that is appended leaves the number of every earlier class as it was.
    """
    names: dict[str, None] = {}
    for source, folder in sources:
        own = source.class_names(folder)
        if own is None:
            raise UserError(
                f"the source '{source.name}' does not name its classes; set data.class_names"
            )
        names |= dict.fromkeys(map(one_form, own))
    return list(names)


def check_classes(data: Data, names: list[str]) -> None:
    """Refuse other classes than the parameters count: the splits are composed from that number."""
    if len(names) != data.classes:
        some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        raise UserError(
            f"data.classes is {data.classes} and the sources have {len(names)} classes ({some});"
            " correct data.classes in conf/benchmark, or the sources"
        )


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
    limit: Limit | None = None,
    validation: float = 0.0,
    seed: int = 0,
    duplicates: DuplicatePolicy = "warn",
) -> dict[str, Any]:
    """Pack what ``sources`` hold into ``out``; for ``limit``, … ``seed`` see ``restrict``.

    Returns the summary, which stands there as ``benchmark.json``.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / SUMMARY).unlink(missing_ok=True)
    samples, total = restricted(lambda: _read(sources, classes), limit, validation, seed)
    chunks = packed(_checked(samples, classes, domains), image_size, workers)
    progress = AmountProgress(f"build {name}", total or _size(sources), IN_IMAGES)
    try:
        with _partial(out / IMAGES).open("w+b") as file:
            index, digest = _write_images(file, chunks, image_size, domains, progress)
            if duplicates == "refuse":
                refuse_duplicates(find_duplicates(index), classes)
            dropped = to_drop(find_duplicates(index)) if duplicates == "drop" else []
            if dropped:
                index, digest = _cut_images(file, index, dropped, image_size)
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
    if duplicates == "drop":
        summary["dropped_duplicates"] = len(dropped)
    text = json.dumps(summary, indent=2, sort_keys=True, ensure_ascii=False)
    _partial(out / SUMMARY).write_text(text + "\n", encoding="utf-8")
    for file_name in (IMAGES, INDEX, SUMMARY):
        _partial(out / file_name).replace(out / file_name)
    return summary


def tell_counts(summary: Mapping[str, Any]) -> list[str]:
    """What was built, as lines: all images, those of a class in each domain, and their origin."""
    counts, classes, domains = summary["counts"], summary["classes"], summary["domains"]
    lines = [
        f"{summary['name']}: {counts['train']:,} images to train and {counts['test']:,} to test,"
        f" {len(classes)} classes × {len(domains)} domains ({SUMMARY} lists every pair)"
    ]
    for number, domain in enumerate(domains):
        pairs = [pair for pair in counts["pairs"] if pair["domain"] == number]
        spans = {part: _span([pair[part] for pair in pairs]) for part in ("train", "test")}
        lines.append(f"  {domain}: {spans['train']} to train and {spans['test']} to test per class")
    origins = summary["origins"].items()
    lines += [f"  source {name}: {facts['kind']}" for name, facts in origins]
    if dropped := summary.get("dropped_duplicates"):
        lines.append(f"  {dropped:,} images are left out as duplicates (data.duplicates: drop)")
    return lines


def tell_choice(origins: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What every rule that chooses classes would keep, beside the paper, where one chose them."""
    chosen = next((facts for facts in origins.values() if "class_choice" in facts), None)
    if chosen is None:
        return []
    lines = []
    for rule, figures in chosen["class_choice"].items():
        name = "the paper" if rule == "paper" else f"class_rule {rule}"
        mark = " (chosen)" if rule == chosen["class_rule"] else ""
        images, pair = figures["train_images"], figures["smallest_pair"]
        lines.append(f"  {name}{mark}: {images:,} training images, the smallest pair has {pair:,}")
    return lines


def tell_validation(data: Data) -> list[str]:
    """Which images the test part is made of, where it is not the sources' own."""
    if not data.validation:
        return []
    share = f"data.validation={data.validation:g}"
    return [f"  the images to test are held-out training images ({share}), not the test sets"]


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _read(sources: Sources, classes: list[str]) -> Iterator[Sample]:
    """All samples, each with its label among ``classes``.

    Classes that a source names are found by their names; otherwise its labels are taken as they
    are (digits, or classes that data.class_names renames).
    """
    for source, folder in sources:
        names = [one_form(name) for name in source.class_names(folder) or []]
        labels = [classes.index(name) for name in names] if set(names) <= set(classes) else []
        for sample in source.read(folder):
            label = labels[sample.label] if labels else sample.label
            yield replace(sample, label=label, domain=one_form(sample.domain))


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
    rows: list[tuple[int, int, str, str, str]] = []
    digest = hashlib.sha256()
    _write_header(file, 0, size)
    for samples, images in chunks:
        rows += [
            (s.label, domains.index(s.domain), s.part, s.source_id, pixels_hash(image))
            for s, image in zip(samples, images, strict=True)
        ]
        digest.update(images.data)
        file.write(images.data)
        progress.step(len(samples))
    file.seek(0)
    _write_header(file, len(rows), size)
    index = pd.DataFrame(rows, columns=list(COLUMNS)[1:])
    index.insert(0, "id", np.arange(len(rows)))
    return index, digest.hexdigest()


def _cut_images(
    file: BinaryIO, index: pd.DataFrame, dropped: list[int], size: int
) -> tuple[pd.DataFrame, str]:
    """images.npy without some of its rows."""
    file.seek(0)
    _write_header(file, len(index) - len(dropped), size)
    return cut(file, file.tell(), size * size * 3, index, dropped)


def _write_header(file: BinaryIO, n: int, size: int) -> None:
    """The header of images.npy. NumPy pads it so that a larger N takes no more bytes."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (n, size, size, 3)}
    np.lib.format.write_array_header_1_0(file, header)
