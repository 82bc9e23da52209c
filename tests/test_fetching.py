"""What ``fetch`` looks at before a source's bytes come, and what it leaves behind."""

from __future__ import annotations

import shutil
import sys
import zipfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dacr.data.download import scratch_folder
from dacr.data.fetching import fetch_source
from dacr.data.mirror_samples import check_cifar, check_digits
from dacr.data.sources import get_source, upstream
from dacr.data.sources.domainnet import DOMAINS
from dacr.data.sources.origin import write_origin
from dacr.data.sources.svhn import Svhn
from dacr.data.sources.syn import Syn
from dacr.errors import UserError
from dacr.runtime.compose import compose
from stages import build, fetch, params
from tests.loopback import Server
from tests.test_sources import (
    DATASETS,
    digits,
    domainnet_files,
    encoded,
    mnist_files,
    needs_datasets,
    publish,
    svhn_files,
    syn_matlab,
    syn_zip,
    zipped,
)

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("DACR_MIRROR", "")
    monkeypatch.setattr("dacr.data.download.ATTEMPTS", 1)


def emptied(folder: Path) -> Path:
    """As DVC leaves an out before it runs the stage."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


# Files of a release ------------------------------------------------------------------------------


def test_finished_files_of_a_release_are_not_fetched_again(server: Server, tmp_path: Path) -> None:
    source = Svhn(publish(server, (23, 11), svhn_files(digits((32, 32, 3)))))
    server.pages["/0/test_32x32.mat"].cuts = [1000]
    server.requests.clear()
    with pytest.raises(UserError, match="broke off"):
        source.fetch(emptied(tmp_path / "raw"))
    source.fetch(emptied(tmp_path / "raw"))
    asked = [(request.path, request.start) for request in server.requests]
    assert asked == [
        ("/0/train_32x32.mat", None),
        ("/0/test_32x32.mat", None),
        ("/0/test_32x32.mat", 1000),
    ]


def test_nothing_is_kept_when_a_source_is_there(server: Server, tmp_path: Path) -> None:
    content = digits((32, 32, 3))
    source = Syn(publish(server, (23, 11), syn_matlab(content), syn_zip(content)))
    del server.pages["/0/synth_test_32x32.mat"]  # half of a release that is then given up
    source.fetch(emptied(tmp_path / "raw"))
    left = {path.suffix for path in scratch_folder().iterdir()}
    assert left <= {".lock"}


# Samples of a mirror -----------------------------------------------------------------------------


def zeros(*shape: int, kind: type = np.uint8) -> NDArray[Any]:
    return np.zeros(shape, kind)


FINE = np.arange(100)
GOOD: dict[str, Arrays] = {
    "mnist": {
        "train_x": zeros(10, 28, 28),
        "train_y": np.arange(10),
        "test_x": zeros(10, 28, 28, 3),
        "test_y": np.arange(10)[:, None],
    },
    "cifar100": {
        **{f"{part}_x": zeros(100, 32, 32, 3) for part in ("train", "test")},
        **{f"{part}_fine": FINE for part in ("train", "test")},
        **{f"{part}_coarse": FINE // 5 for part in ("train", "test")},
        "fine_names": np.array([f"f{i:02d}" for i in range(100)]),
        "coarse_names": np.array([f"c{i:02d}" for i in range(20)]),
    },
}
IMAGES = r"is uint8 of shape \(.*\); it must be uint8 of N×H×W"
BAD: list[tuple[str, Arrays, str]] = [
    ("mnist", {"train_x": zeros(10, 28, 28, 1)}, f"train_x {IMAGES}"),
    ("mnist", {"train_x": zeros(10, 28, 28, 2)}, f"train_x {IMAGES}"),
    ("mnist", {"test_x": zeros(10, 28, 28, 5)}, f"test_x {IMAGES}"),
    ("mnist", {"train_x": zeros(10, 3, 28, 28)}, f"train_x {IMAGES}"),
    ("mnist", {"train_x": zeros(10, 0, 0)}, f"train_x {IMAGES}"),
    ("mnist", {"train_x": zeros(0, 28, 28), "train_y": np.arange(0)}, f"train_x {IMAGES}"),
    ("mnist", {"train_x": np.array(3, np.uint8)}, f"train_x {IMAGES}"),
    ("mnist", {"train_x": zeros(10, 28, 28, kind=np.float32)}, "train_x is float32"),
    ("mnist", {"train_y": np.arange(10) * 0.9}, "train_y is float64 .* must be 10 integers"),
    ("mnist", {"train_y": np.array(list("0123456789"))}, "train_y is <U1"),
    ("mnist", {"train_y": np.eye(10, dtype=int)}, r"train_y is int64 of shape \(10, 10\)"),
    ("mnist", {"train_y": np.ones(10, bool)}, "train_y is bool"),
    ("mnist", {"train_y": np.array(3)}, r"train_y is int64 of shape \(\)"),
    ("mnist", {"test_y": np.arange(10) + 1}, "test_y goes from 1 to 10; .* 0 to 9"),
    ("cifar100", {"train_x": zeros(100, 32, 32, 3, kind=np.float32)}, "train_x is float32"),
    ("cifar100", {"train_x": zeros(100, 3072)}, f"train_x {IMAGES}"),
    ("cifar100", {"train_x": zeros(100, 32, 32)}, f"train_x {IMAGES}"),
    ("cifar100", {"test_x": zeros(100, 3, 32, 32)}, f"test_x {IMAGES}"),
    ("cifar100", {"train_fine": FINE + 50}, "train_fine goes from 50 to 149; .* 0 to 99"),
    ("cifar100", {"train_fine": FINE - 1}, "train_fine goes from -1"),
    ("cifar100", {"train_fine": FINE + 0.5}, "train_fine is float64"),
    ("cifar100", {"train_fine": FINE.astype(str)}, "train_fine is <U"),
    ("cifar100", {"train_coarse": FINE}, "train_coarse goes from 0 to 99; .* 0 to 19"),
    ("cifar100", {"fine_names": np.array(["a", "b"])}, "train_fine goes from 0 to 99; .* 0 to 1"),
    ("cifar100", {"coarse_names": np.arange(20)}, "coarse_names is int64 .* list of strings"),
    ("cifar100", {"train_coarse": np.r_[1, FINE[1:] // 5]}, "'f00' belongs to more than one"),
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_sample_is_taken(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / f"{name}.npz", **GOOD[name])
    monkeypatch.setenv("DACR_MIRROR", str(tmp_path))
    fetch_source(name, {}, emptied(tmp_path / "raw"))
    assert (tmp_path / "raw" / f"{name}.npz").exists()


@pytest.mark.parametrize(("name", "change", "complaint"), BAD)
def test_a_wrong_sample_is_one_line_that_names_the_array(
    name: str, change: Arrays, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / f"{name}.npz", **GOOD[name] | change)
    monkeypatch.setenv("DACR_MIRROR", str(tmp_path))
    with pytest.raises(UserError, match=rf"{name}\.npz: .*{complaint}") as error:
        fetch_source(name, {}, emptied(tmp_path / "raw"))
    assert "\n" not in str(error.value)
    assert list((tmp_path / "raw").iterdir()) == []


def test_a_sample_that_is_not_taken_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = digits((28, 28))
    files = mnist_files(content)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    np.savez(tmp_path / "mnist.npz", train_x=zeros(1))
    monkeypatch.setenv("DACR_MIRROR", str(tmp_path))
    entry = {name: {"addresses": [], "size": None, "checksum": None} for name in files}
    published = upstream.parse_published({"counts": None, "releases": [{"files": entry}]})
    type(get_source("mnist"))(published).fetch(emptied(tmp_path / "raw"))
    assert not (tmp_path / "raw" / "mnist.npz").exists()


@needs_datasets
def test_the_real_samples_are_good() -> None:
    for name in ("mnist", "svhn", "mnist_m", "usps"):
        check_digits(DATASETS / f"{name}.npz")
    check_cifar(DATASETS / "cifar100.npz")


# The table and the options -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (b"sources: {mnist: caf\xe9}", "sources.yaml is not UTF-8 .* at byte 20.*git restore"),
        (b"sources: {}", "sources.yaml has no entry 'mnist'; .*git restore"),
        (b"other: {}", "sources.yaml is not a table of sources"),
    ],
)
def test_a_spoilt_table_of_sources_is_one_line(
    table: bytes, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sources.yaml").write_bytes(table)
    monkeypatch.setattr(upstream, "TABLE", tmp_path / "sources.yaml")
    upstream.published_sources.cache_clear()
    try:
        with pytest.raises(UserError, match=complaint):
            fetch_source("mnist", {}, emptied(tmp_path / "raw"))
    finally:
        upstream.published_sources.cache_clear()


WRONG_RULE = "data.read_options.domainnet.class_rule=best"


def test_a_wrong_rule_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose(["benchmark=idomainnet", WRONG_RULE], tmp_path / "params.yaml")
    monkeypatch.setattr(sys, "argv", ["fetch", "domainnet_real"])
    with chdir(tmp_path), pytest.raises(UserError, match=r"^data\.read_options\..*class_rule: "):
        fetch.main()
    assert not (tmp_path / "data").exists()


def test_a_wrong_rule_does_not_become_a_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("params.yaml").read_bytes()
    monkeypatch.setattr(sys, "argv", ["params", "benchmark=idomainnet", WRONG_RULE])
    with pytest.raises(UserError, match=r"^data\.read_options\..*class_rule: "):
        params.main()
    assert Path("params.yaml").read_bytes() == before


# What build tells --------------------------------------------------------------------------------


def test_build_tells_what_each_rule_keeps_beside_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "data/raw/idomainnet"
    for domain in DOMAINS:
        (raw / f"domainnet_{domain}").mkdir(parents=True)
        files = domainnet_files(domain)
        for name, data in files.items():
            (raw / f"domainnet_{domain}" / name).write_bytes(data)
        write_origin(raw / f"domainnet_{domain}", {"kind": "published set"})
        whole = zipfile.ZipFile(raw / f"domainnet_{domain}" / f"{domain}.zip")
        pictures = zipped(dict.fromkeys(whole.namelist(), encoded("RGB", "png")))
        (raw / f"domainnet_{domain}" / f"{domain}.zip").write_bytes(pictures)
    choice = ["data.classes=2", "data.read_options.domainnet.classes=2", "data.image_size=8"]
    compose(["benchmark=idomainnet", *choice], tmp_path / "params.yaml")
    with chdir(tmp_path):
        build.main()
    told = capsys.readouterr().out.splitlines()
    start = told.index("  the paper: 132,673 training images, the smallest pair has 52")
    assert told[start + 1 : start + 4] == [
        "  class_rule first_with_50 (chosen): 85 training images, the smallest pair has 5",
        "  class_rule smallest_domain: 85 training images, the smallest pair has 5",
        "  class_rule total: 181 training images, the smallest pair has 1",
    ]
    assert all(line.startswith("  class_rule ") for line in told[start + 1 : start + 9])
