"""Images that stand twice: counted, named, refused or left out; a clean build stays as it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from dacr.config import Data
from dacr.data.benchmark import Benchmark
from dacr.data.building import build as build_from_parameters
from dacr.data.building import build_benchmark
from dacr.data.sources.base import Part, Sample
from dacr.data.sources.npz import KEYS
from dacr.errors import UserError
from tests.test_benchmark import CLASSES, DOMAINS, HERE, Listed, files, picture

ROWS: list[tuple[str, int, str, Part, bool]] = [  # name, label, domain, part, kept by drop
    ("leaked", 0, "photo", "train", False),
    ("a", 1, "photo", "train", True),
    ("inside", 2, "photo", "train", True),
    ("inside", 2, "sketch", "train", True),  # a copy in the same part, of the same class: harmless
    ("torn", 1, "photo", "train", False),
    ("torn", 2, "photo", "train", False),
    ("leaked", 0, "sketch", "test", True),
    ("b", 1, "photo", "test", True),
    ("both", 0, "photo", "train", False),
    ("both", 1, "photo", "test", False),
]


def samples() -> list[Sample]:
    return [
        Sample(picture(name), label, domain, part, f"{part}/{number}")
        for number, (name, label, domain, part, _) in enumerate(ROWS)
    ]


def make(out: Path, own: list[Sample], **options: object) -> dict[str, object]:
    sources = [(Listed(lambda: own), HERE)]
    return build_benchmark(
        "toy", CLASSES, DOMAINS, sources, image_size=8, out=out, workers=1, **options
    )  # type: ignore[arg-type]


def test_a_warning_changes_no_byte(tmp_path: Path) -> None:
    """The format as it was before duplicates were looked for, written out."""
    make(tmp_path / "warn", samples(), duplicates="warn")
    make(tmp_path / "default", samples())
    assert files(tmp_path / "warn") == files(tmp_path / "default")
    summary = json.loads((tmp_path / "warn/benchmark.json").read_text())
    assert sorted(summary) == [
        "classes", "counts", "domains", "image_size", "name", "origins", "paper", "pixels_sha256",
    ]  # fmt: skip
    images = np.stack([picture(name) for name, *_ in ROWS])
    assert summary["pixels_sha256"] == hashlib.sha256(images.tobytes()).hexdigest()
    assert (np.load(tmp_path / "warn/images.npy") == images).all()


def test_refused_images_are_counted_and_named_and_nothing_is_built(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        make(tmp_path, samples(), duplicates="refuse")
    said = str(error.value)
    assert said.startswith("2 images are both to train and to test, 2 have two labels (")
    assert "train/0 (train, cat) = test/6 (test, cat)" in said
    assert "train/4 (train, dog) = train/5 (train, owl)" in said
    assert "train/2" not in said, "a copy within the training part is harmless"
    assert not (tmp_path / "benchmark.json").exists()
    clean = [own for own, row in zip(samples(), ROWS, strict=True) if row[-1]]
    make(tmp_path, clean, duplicates="refuse")
    assert (tmp_path / "benchmark.json").exists()


def test_a_line_stays_short_however_many_copies_there_are(tmp_path: Path) -> None:
    blank = [
        Sample(np.zeros((8, 8, 3), np.uint8), number % 3, "photo", "train", f"blank/{number}")
        for number in range(60)
    ]
    with pytest.raises(UserError, match=r"blank/2 \(train, owl\) = …; ") as error:
        make(tmp_path, [*blank, *samples()], duplicates="refuse")
    assert len(str(error.value)) < 400


def test_dropped_images_leave_the_benchmark_that_the_others_make(tmp_path: Path) -> None:
    """The reference is a build of the images that are kept, which knows of no duplicates."""
    summary = make(tmp_path / "drop", samples(), duplicates="drop")
    clean = [own for own, row in zip(samples(), ROWS, strict=True) if row[-1]]
    make(tmp_path / "clean", clean)
    dropped, kept = files(tmp_path / "drop"), files(tmp_path / "clean")
    assert summary["dropped_duplicates"] == len(samples()) - len(clean) == 5
    assert json.loads(dropped.pop("benchmark.json")) == {
        **json.loads(kept.pop("benchmark.json")),
        "dropped_duplicates": 5,
    }
    assert dropped.keys() == kept.keys()
    assert dropped["images.npy"] == kept["images.npy"]
    found, expected = (Benchmark.open(tmp_path / name) for name in ("drop", "clean"))
    pd.testing.assert_frame_equal(found.index, expected.index)


@pytest.fixture
def own_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npz with one image under two labels, in a project of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    raw = tmp_path / "raw/npz"
    raw.mkdir(parents=True)
    images = [picture(number) for number in range(12)]
    images[8] = images[0]
    # One file system composes é, another does not: they are one class and one domain.
    y = ["caf\u00e9", "cafe\u0301", "dog"] * 4
    domain = ["pos\u00e9", "pose\u0301"] * 6
    np.savez(raw / "images.npz", **dict(zip(KEYS, (np.stack(images), y, domain), strict=True)))
    return tmp_path


def data(**changes: object) -> Data:
    """With the name of the domain spelled apart, as the user's editor may do."""
    options = {"npz": {"path": "images.npz"}}
    named = {"benchmark": "idigits_mini", "sources": ["npz"], "source_options": options}
    sizes = {"classes": 2, "domains": ["pose\u0301"], "image_size": 8}
    return Data.model_validate(named | sizes | changes)


def test_a_build_names_duplicates_and_lists_all_of_them(own_array: Path) -> None:
    lines = build_from_parameters(data(), 0, own_array / "raw", own_array / "out")
    summary = json.loads((own_array / "out/benchmark.json").read_text())
    assert summary["classes"] == ["caf\u00e9", "dog"]
    assert summary["domains"] == ["pos\u00e9"]
    (warning,) = [line for line in lines if "warning" in line]
    assert "1 have two labels" in warning
    assert "npz/00000000" in warning
    assert "data.duplicates: drop" in warning
    assert ".dacr/duplicates/idigits_mini.csv lists all" in warning
    listed = pd.read_csv(".dacr/duplicates/idigits_mini.csv")
    assert listed["source_id"].tolist() == ["npz/00000000", "npz/00000008"]
    assert listed["class"].tolist() == ["caf\u00e9", "dog"]
    assert listed["domain"].unique().tolist() == ["pos\u00e9"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"domains": ["pos\u00e9", "pose\u0301"]}, "twice in domains"),
        ({"class_names": ["caf\u00e9", "cafe\u0301"]}, "twice in class_names"),
    ],
)
def test_two_names_that_look_the_same_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        data(**change)


def test_a_limit_of_a_domain_finds_it_in_either_form(own_array: Path) -> None:
    limit = data(per_pair={"pos\u00e9": 1})
    build_from_parameters(limit, 0, own_array / "raw", own_array / "out")
    index = pd.read_parquet(own_array / "out/index.parquet")
    assert (index[index["part"] == "train"].groupby("label").size() == 1).all()


def test_a_build_without_duplicates_tells_none(own_array: Path) -> None:
    lines = build_from_parameters(data(duplicates="drop"), 0, own_array / "raw", own_array / "out")
    assert "  2 images are left out as duplicates (data.duplicates: drop)" in lines
    assert not any("warning" in line for line in lines)
    assert not Path(".dacr").exists()
