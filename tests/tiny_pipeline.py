"""The stages from a packed benchmark to the last session, on four classes in two domains."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import yaml

from dacr.config import Params
from dacr.data import benchmark
from dacr.data.benchmark import Benchmark
from dacr.data.building import build_benchmark
from dacr.data.sources.base import Part, Sample, Source
from dacr.runtime import code, provenance
from dacr.sessions.consolidate import consolidate
from dacr.sessions.learn import learn
from dacr.sessions.places import BENCHMARK
from stages import schedule, split, start
from tests.learning import pictures, small_params

REPOSITORY = Path(__file__).parents[1]
CLASSES, DOMAINS = ["a", "b", "c", "d"], ["x", "y"]
EACH: dict[Part, int] = {"train": 5, "test": 2}
TINY = (
    "model.backbone=resnet8",
    f"data.classes={len(CLASSES)}",
    f"data.class_names=[{','.join(CLASSES)}]",
    f"data.domains=[{','.join(DOMAINS)}]",
    "facts.nc_sessions=2",
    "facts.ncd_new_classes=[2,1,1,0]",
    "facts.vil_groups=2",
    "facts.mixed_sessions=4",
    "train.epochs=1",
)


class TinySource(Source):
    """Pictures of every pair, made on the spot."""

    name = "tiny"

    def fetch(self, folder: Path) -> None:
        """There is nothing to fetch."""

    def read(self, folder: Path) -> Iterator[Sample]:
        for domain, name in enumerate(DOMAINS):
            for part, count in EACH.items():
                labels = np.repeat(range(len(CLASSES)), count).tolist()
                seed = 2 * domain + (part == "test")
                images = pictures(labels, [domain] * len(labels), seed)
                for number, (image, label) in enumerate(zip(images, labels, strict=True)):
                    yield Sample(image, label, name, part, f"{name}/{part}/{number}")


def tiny_params(*overrides: str) -> Params:
    return small_params(*TINY, *overrides)


def prepare(folder: Path, params: Params) -> None:
    """Everything in ``folder`` that the first session needs."""
    key = params.model_dump_json(include={"data", "schedule", "facts"})
    if key not in _data:
        _data[key] = Path(tempfile.mkdtemp(dir=_scratch.name))
        make_data(_data[key], params)
    shutil.copytree(_data[key] / "data", folder / "data")
    write_params(folder, params)
    with chdir(folder):
        start.main()


_scratch = tempfile.TemporaryDirectory(prefix="tiny-")
_data: dict[str, Path] = {}
"""All methods learn the same images and splits: they are made once per process."""


def write_params(folder: Path, params: Params) -> None:
    content = params.model_dump(mode="json", by_alias=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def make_data(folder: Path, params: Params) -> None:
    """The benchmark and the tables of all sessions."""
    write_params(folder, params)
    build_benchmark(
        "tiny",
        CLASSES,
        DOMAINS,
        [(TinySource(), folder)],
        image_size=params.data.image_size,
        out=folder / BENCHMARK,
    )
    with chdir(folder):
        schedule.main()
        for key in params.schedule.sessions:
            with patch.object(sys, "argv", ["split", key]):
                split.main()


def run_sessions(folder: Path, params: Params) -> None:
    """All sessions of ``params``, in a folder that is prepared.

    Nobody edits the code or the images, or commits, meanwhile: what they are is asked once.
    """
    with (
        chdir(folder),
        patch.object(code, "_follow", followed),
        patch.object(benchmark, "read_index", cache(benchmark.read_index)),
        patch.object(provenance, "git_or_nothing", cache(provenance.git_or_nothing)),
    ):
        for key in params.schedule.sessions:
            learn(params, key)
            consolidate(params, key)


followed = cache(code._follow)
"""Notes name the code of each stage, which stays what it is."""


def run(folder: Path, params: Params) -> Benchmark:
    prepare(folder, params)
    run_sessions(folder, params)
    return Benchmark.open(folder / BENCHMARK)
