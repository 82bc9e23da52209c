"""Do the benchmark and its sessions follow from the parameters?

The tables of schedule and sessions are made again. The images are packed again where the fetched
files are here and few; otherwise what ``benchmark.json`` says is held against the parameters, and
the pixels against the index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dacr.config import Data, Params
from dacr.data.benchmark import IMAGES, INDEX, SUMMARY, Benchmark, check_pixels, read_index
from dacr.data.building import build
from dacr.data.restriction import limit_of
from dacr.data.sources import get_source
from dacr.data.sources.embedded import EmbeddedSource
from dacr.data.splits import make_schedule, write_schedule, write_session
from dacr.errors import UserError
from dacr.experiments.verification.findings import Report
from dacr.names import one_form
from dacr.sessions.places import BENCHMARK, SPLIT

FEW = 100_000_000
"""Bytes of fetched files that are packed again in a few seconds."""


def check_data(report: Report, params: Params, everything: bool = False) -> None:
    """All of ``data/``; with ``everything`` also images that take long to pack are packed."""
    with report.guard("data"):
        faults = [*unlike_parameters(params.data), *other_pixels()]
        faults += other_sources(params) if everything else []
        tables, count = other_tables(params)
        told = f"{count} tables follow from the parameters; "
        if reason := _not_packed(params, everything):
            report.add("data", faults + tables, f"{told}images were not packed again ({reason})")
        else:
            faults += other_images(params)
            report.add("data", faults + tables, f"{told}images packed again are the same")


def other_tables(params: Params) -> tuple[list[str], int]:
    """The tables of schedule and sessions that have other bytes when they are made again."""
    summary, index = read_index(BENCHMARK)
    with TemporaryDirectory() as name:
        folder = Path(name)
        table = make_schedule(params.schedule, summary["classes"], summary["domains"])
        write_schedule(table, index, folder)
        for key in params.schedule.sessions:
            write_session(folder, key, index)
        again = sorted(folder.iterdir())
        faults = [
            f"{SPLIT / file.name} does not follow from the parameters; run `dvc repro -f "
            f"{'schedule' if file.stem == 'schedule' else 'split@' + file.stem[-2:]}`"
            for file in again
            if not _same(file, SPLIT / file.name)
        ]
    return faults, len(again)


def unlike_parameters(data: Data) -> list[str]:
    """What ``benchmark.json`` says and the parameters do not."""
    summary, _ = read_index(BENCHMARK)
    wanted: dict[str, Any] = {
        "name": data.benchmark,
        "domains": [one_form(name) for name in data.domains],
        "image_size": data.image_size,
        "paper": data.paper,
    } | ({"classes": [one_form(name) for name in data.class_names]} if data.class_names else {})
    wrong = [name for name, value in wanted.items() if summary.get(name) != value]
    wrong += ["classes"] * (len(summary["classes"]) != data.classes)
    wrong += ["sources"] * (not {*summary.get("origins", {})} <= {*data.sources})
    wrong += ["per_pair"] * any(_too_many(data, summary))
    return [
        f"{BENCHMARK / SUMMARY} has other {name} than the parameters; run `dvc repro -f build`"
        for name in dict.fromkeys(wrong)
    ]


def _too_many(data: Data, summary: dict[str, Any]) -> Iterator[bool]:
    """Of each class-domain pair: whether it has more training images than data.per_pair."""
    limit = limit_of(data)
    if limit is None:
        return
    for pair in summary["counts"]["pairs"]:
        most = limit(summary["domains"][pair["domain"]])
        yield most is not None and pair["train"] > most


def other_pixels() -> list[str]:
    """Images that are not those of the index, or of the digest of all."""
    benchmark = Benchmark.open(BENCHMARK)
    digest = hashlib.sha256()
    for start in range(0, len(benchmark.images), 1024):
        digest.update(benchmark.images[start : start + 1024].tobytes())
    try:
        check_pixels(benchmark.images, benchmark.index, str(BENCHMARK / INDEX))
    except UserError as error:
        return [str(error)]
    if read_index(BENCHMARK)[0].get("pixels_sha256") != digest.hexdigest():
        return [f"{BENCHMARK / SUMMARY} has another digest of all pixels; run `dvc repro -f build`"]
    return []


def other_sources(params: Params) -> list[str]:
    """Sources that are drawn here, without a download, and have other bytes when drawn again."""
    faults = []
    for name in params.data.sources:
        source, raw = get_source(name, params.data.source_options), raw_folder(params) / name
        if not isinstance(source, EmbeddedSource):
            continue
        with TemporaryDirectory() as folder:
            source.fetch(Path(folder))
            same = all(_same(file, raw / file.name) for file in Path(folder).iterdir())
        if not same:
            faults.append(f"{raw} is not what its code draws; run `dvc repro -f fetch@{name}`")
    return faults


def _not_packed(params: Params, everything: bool) -> str | None:
    """Why the images are not packed again; None if they are."""
    raw = raw_folder(params)
    if not all((raw / name).is_dir() for name in params.data.sources):
        return f"{raw} is not here"
    size = sum(file.stat().st_size for file in raw.rglob("*") if file.is_file())
    if size > FEW and not everything:
        return f"{raw} has {size / 1e9:.1f} GB; `--replay all` packs them"
    return None


def raw_folder(params: Params) -> Path:
    return Path("data/raw") / params.benchmark


def other_images(params: Params) -> list[str]:
    """The files of the benchmark that have other bytes when the fetched files are packed again."""
    with TemporaryDirectory() as name, redirect_stdout(StringIO()):
        out = Path(name)
        build(params.data, params.schedule.seed, raw_folder(params), out)
        return [
            f"{BENCHMARK / file} does not follow from {raw_folder(params)} and the parameters; "
            "run `dvc repro -f build`"
            for file in (SUMMARY, INDEX, IMAGES)
            if not _same(out / file, BENCHMARK / file)
        ]


def _same(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    if not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        while block := left.read(1 << 20):
            if block != right.read(1 << 20):
                return False
    return True
