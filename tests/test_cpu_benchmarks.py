"""The benchmarks of real images for a CPU, and the mirror that they come from."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dacr.config import Params, load_params
from dacr.errors import UserError
from dacr.report.page import shares
from dacr.runtime.compose import compose
from stages import build, fetch
from tests.synthetic_run import SyntheticRun, make_report, rerun

ROOT = Path(__file__).parents[1]
DATASETS = ROOT.parent / "shared" / "datasets"
needs_datasets = pytest.mark.skipif(
    not DATASETS.is_dir(), reason="needs ../shared/datasets, real samples of the data sets"
)
DIGITS = ["mnist", "svhn", "mnist_m", "usps"]
TRAIN, TEST = 3, 2


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also what ``choose_mirror`` sets is gone after the test."""
    monkeypatch.setenv("DACR_MIRROR", "")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A sample of each set, with so few images that each count can be told from the others."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    parts = {"train": TRAIN, "test": TEST}
    for position, name in enumerate(DIGITS):
        arrays = {}
        for part, count in parts.items():
            labels = np.repeat(np.arange(10), count + position)
            arrays[f"{part}_x"] = np.full((len(labels), 28, 28), position, np.uint8)
            arrays[f"{part}_y"] = labels
        np.savez_compressed(folder / f"{name}.npz", **arrays)
    fine = {part: np.repeat(np.arange(100), count) for part, count in parts.items()}
    arrays = {f"{part}_fine": labels for part, labels in fine.items()}
    arrays |= {f"{part}_coarse": labels // 5 for part, labels in fine.items()}
    arrays |= {f"{p}_x": np.zeros((len(labels), 32, 32, 3), np.uint8) for p, labels in fine.items()}
    names = {f"{kind}_names": np.array([f"{kind} {i:02d}" for i in range(n)])
             for kind, n in (("fine", 100), ("coarse", 20))}  # fmt: skip
    np.savez_compressed(folder / "cifar100.npz", **arrays, **names)
    return folder


def prepare(folder: Path, *choice: str) -> Params:
    compose(list(choice), folder / "params.yaml")
    return load_params(folder / "params.yaml")


def run_fetch(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    monkeypatch.setattr(sys, "argv", ["fetch", source])
    with chdir(folder):
        fetch.main()


def built(
    monkeypatch: pytest.MonkeyPatch, folder: Path, mirror: Path, *choice: str
) -> dict[str, Any]:
    """``benchmark.json`` after fetch and build of what was chosen."""
    params = prepare(folder, *choice, f"fetch.mirror={mirror}")
    for source in params.data.sources:
        run_fetch(monkeypatch, folder, source)
    with chdir(folder):
        build.main()
    summary: dict[str, Any] = json.loads((folder / "data/benchmark/benchmark.json").read_text())
    return summary


@pytest.mark.parametrize("split", ["nc", "nd", "ncd"])
@pytest.mark.parametrize("name", ["idigits", "icifar20"])
def test_a_cpu_benchmark_has_the_sessions_of_the_papers(
    tmp_path: Path, name: str, split: str
) -> None:
    cpu, paper = (
        prepare(tmp_path, f"benchmark={b}", f"split={split}") for b in (f"{name}_cpu", name)
    )
    assert cpu.schedule == paper.schedule
    assert (cpu.data.classes, len(cpu.data.domains)) == (
        paper.data.classes,
        len(paper.data.domains),
    )
    assert cpu.train.threads == 2


def test_cpu_benchmarks_share_what_is_tuned_once_and_no_source(tmp_path: Path) -> None:
    names = ["idigits_mini", "idigits_cpu", "icifar20_cpu"]
    mini, digits, cifar = (prepare(tmp_path, f"benchmark={name}") for name in names)
    for section in ("mixture", "loss", "reduction"):
        assert getattr(mini, section) == getattr(digits, section) == getattr(cifar, section)
    assert mini.model == digits.model
    epochs = {"epochs": 1}
    trainings = [params.train.model_copy(update=epochs) for params in (mini, digits, cifar)]
    assert trainings[0] == trainings[1] == trainings[2]
    assert list(digits.data.sources) == digits.data.domains == DIGITS
    assert list(cifar.data.sources) == ["cifar100"]


def test_each_view_of_an_image_is_trained_on_equally_often(tmp_path: Path) -> None:
    params = prepare(tmp_path, "benchmark=icifar20_cpu")
    assert params.augmentation.views
    assert params.train.epochs % params.augmentation.views == 0


def test_the_memory_of_digits_is_the_papers(tmp_path: Path) -> None:
    cpu, paper = (prepare(tmp_path, f"benchmark={b}") for b in ("idigits_cpu", "idigits"))
    assert cpu.memory.size == paper.memory.size


def test_the_documented_benchmark_of_ones_own_has_its_own_source_alone(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/data.md").read_text(), re.DOTALL)
    (pets,) = (block for block in blocks if "benchmark: pets" in block)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "dacr").symlink_to(ROOT / "dacr")
    (tmp_path / "conf/benchmark/pets.yaml").write_text(pets)
    with chdir(tmp_path):
        for split in ("nc", "nd", "ncd"):
            params = prepare(tmp_path, "benchmark=pets", f"split={split}")
    assert list(params.data.sources) == ["folder"]


def test_digits_of_a_mirror_are_counted_by_class_and_domain(
    tmp_path: Path,
    mirror: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = built(monkeypatch, tmp_path, mirror, "benchmark=idigits_cpu")
    expected = [
        {"class": c, "domain": z, "train": TRAIN + z, "test": TEST + z}
        for c in range(10)
        for z in range(4)
    ]
    assert summary["counts"]["pairs"] == expected
    told = capsys.readouterr().out
    assert "idigits_cpu: 180 images to train and 140 to test, 10 classes × 4 domains" in told
    assert "  usps: 6 to train and 5 to test per class\n" in told
    assert "  source svhn: mirror sample, not the official split\n" in told


def test_subclasses_of_a_mirror_are_counted_and_limited(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = built(monkeypatch, tmp_path, mirror, "benchmark=icifar20_cpu", "data.per_pair=2")
    assert len(summary["counts"]["pairs"]) == 100
    assert {(pair["train"], pair["test"]) for pair in summary["counts"]["pairs"]} == {(2, TEST)}
    assert summary["origins"]["cifar100"]["kind"].startswith("mirror sample")


def test_a_validation_part_is_called_so(
    tmp_path: Path,
    mirror: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    choice = ("benchmark=icifar20_cpu", "data.validation=0.4")
    summary = built(monkeypatch, tmp_path, mirror, *choice)
    assert {(pair["train"], pair["test"]) for pair in summary["counts"]["pairs"]} == {(2, 1)}
    told = capsys.readouterr().out
    assert "the images to test are held-out training images (data.validation=0.4)" in told


@pytest.mark.parametrize("classes", [19, 21])
def test_other_classes_than_the_parameters_count_are_refused(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, classes: int
) -> None:
    choice = ("benchmark=icifar20_cpu", f"data.classes={classes}")
    complaint = rf"^data\.classes is {classes} and the sources have 20 classes \(coarse 00, .*, …\)"
    with pytest.raises(UserError, match=complaint):
        built(monkeypatch, tmp_path, mirror, *choice)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "train", "test"), [("idigits_cpu", 25_000, 6_000), ("icifar20_cpu", 10_000, 2_000)]
)
def test_the_real_mirror_has_every_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, train: int, test: int
) -> None:
    counts = built(monkeypatch, tmp_path, DATASETS, f"benchmark={name}")["counts"]
    assert (counts["train"], counts["test"]) == (train, test)
    assert min(pair["train"] for pair in counts["pairs"]) >= 100
    assert min(pair["test"] for pair in counts["pairs"]) >= 20


# The mirror as a parameter


def test_the_mirror_of_this_machine_goes_before_that_of_the_experiment(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, "benchmark=idigits_cpu", f"fetch.mirror={tmp_path / 'nowhere'}")
    monkeypatch.setenv("DACR_MIRROR", str(mirror))
    run_fetch(monkeypatch, tmp_path, "usps")
    copied = tmp_path / "data/raw/idigits_cpu/usps/usps.npz"
    assert copied.read_bytes() == (mirror / "usps.npz").read_bytes()


def test_a_relative_mirror_starts_at_the_project(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC runs some experiments in a copy of the project elsewhere."""
    prepare(tmp_path, "benchmark=idigits_cpu", "fetch.mirror=mirror")
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / "params.yaml", copy)
    run_fetch(monkeypatch, copy, "usps")
    assert (copy / "data/raw/idigits_cpu/usps/usps.npz").exists()


@pytest.mark.parametrize("source", ["mnist", "handwritten"])
def test_an_unknown_mirror_is_one_line_for_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    benchmark = "idigits_cpu" if source == "mnist" else "idigits_mini"
    prepare(tmp_path, f"benchmark={benchmark}", "fetch.mirror=nowhere")
    with pytest.raises(UserError, match=r"^the mirror nowhere is not a folder; .*fetch\.mirror$"):
        run_fetch(monkeypatch, tmp_path, source)


def test_only_fetch_asks_where_the_mirror_is() -> None:
    """Another place with the same files must not build or train anything again."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    listed = {name: stage.get("do", stage).get("params", []) for name, stage in stages.items()}
    asking = [name for name, params in listed.items() if {"fetch", "fetch.mirror"} & {*params}]
    assert asking == ["fetch"]
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["fetch"] == {"mirror": None}


def test_the_page_says_sample_and_not_where_the_mirror_was(tmp_path: Path) -> None:
    run = SyntheticRun()
    run.params["fetch"]["mirror"] = "/home/someone/mirror"
    page = make_report(run, tmp_path)
    assert "DACR_MIRROR" not in page.read_text()
    summary = tmp_path / "data/benchmark/benchmark.json"
    content = json.loads(summary.read_text())
    counts = {"train": 10_000, "test": 2_000}
    origin = {"kind": "mirror sample, not the official split", "counts": counts}
    origin |= {"published_counts": {"train": 60_000, "test": 10_000}}
    content["origins"] = {"mnist": origin, "svhn": {**origin, "published_counts": None}}
    summary.write_text(json.dumps(content))
    rerun(tmp_path)
    text = page.read_text()
    assert "mnist, svhn: mirror sample, not the official split" in text
    assert "official split (10,000 of 60,000 train images, 2,000 of 10,000 test images)" in text
    assert "the same mirror (<code>DACR_MIRROR</code>)" in text
    assert "/home/someone" not in text


def test_a_whole_set_is_no_share() -> None:
    counts = {"train": 5, "test": 3}
    assert shares({"counts": counts, "published_counts": counts}) == ""
    assert shares({"kind": "own images", "images": 5}) == ""


def test_nothing_of_this_machine_is_in_the_configuration() -> None:
    for file in [*(ROOT / "conf").rglob("*.yaml"), ROOT / "params.yaml"]:
        assert os.path.expanduser("~") + "/" not in file.read_text()  # noqa: PTH111
