"""CPU benchmarks of the published files: a fixed sample, the same for everybody."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dacr.config import Params, load_params
from dacr.data.sources import Sample, get_source, upstream
from dacr.data.sources.cifar100 import Cifar100, CifarOptions
from dacr.data.sources.mnist import Mnist
from dacr.data.sources.sampled import SampleOptions, SampleSize, fixed_sample
from dacr.errors import UserError
from dacr.experiments.work import images_of
from dacr.runtime.compose import compose
from stages import build, fetch
from tests.loopback import Server
from tests.test_sources import (
    cifar_files,
    digits,
    mnist_files,
    mnist_m_pickle,
    publish,
    svhn_files,
    usps_files,
)

SIZE = SampleSize(train=2, test=1)
GOLDEN = [f"mnist/train/{number:06d}" for number in (471, 532, 413, 566, 525)]
CPU = ("idigits_cpu", "icifar20_cpu")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("DACR_MIRROR", "")


def sample(number: int, label: int, part: str = "train", domain: str = "mnist") -> Sample:
    return Sample(np.zeros((1, 1), np.uint8), label, domain, part, f"mnist/{part}/{number:06d}")


# The rule ----------------------------------------------------------------------------------------


def test_the_rule_will_never_change() -> None:
    """These ids are the sample: another choice would make all published numbers void."""
    images = [sample(number, 0) for number in range(1000)]
    images += [sample(number, 0, "test") for number in range(1000)]
    taken = fixed_sample(images, SampleSize(train=5, test=2))
    train, test = ([i for i, own in taken.items() if own == part] for part in ("train", "test"))
    hashes = {own.source_id: hashlib.sha256(own.source_id.encode()).hexdigest() for own in images}
    assert train == sorted((i for i in hashes if "train" in i), key=hashes.get)[:5]
    assert test == sorted((i for i in hashes if "test" in i), key=hashes.get)[:2]
    assert train == GOLDEN


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"])), max_size=60))
def test_every_pair_has_its_share_and_no_other_pair_matters(pairs: list[tuple[int, str]]) -> None:
    images = [sample(i, label, domain=domain) for i, (label, domain) in enumerate(pairs)]
    counts = Counter(pairs)
    if counts and min(counts.values()) < SIZE.train:
        with pytest.raises(UserError, match=r"class \d of [ab] has 1 train images, fewer than"):
            fixed_sample(images, SIZE)
        return
    taken = fixed_sample(images, SIZE)
    for pair in counts:
        own = [image for image in images if (image.label, image.domain) == pair]
        alone = fixed_sample(own[::-1], SIZE)
        assert set(alone) == {image.source_id for image in own} & set(taken)
        assert len(alone) == SIZE.train


# Sources -----------------------------------------------------------------------------------------


def test_a_sample_of_the_published_files_is_read_and_called_so(server: Server, raw: Path) -> None:
    content = digits((28, 28), train=40, test=30)
    published = publish(server, (40, 30), mnist_files(content))
    source = Mnist(published, SampleOptions(sample=SIZE))
    source.fetch(raw)
    samples = list(source.read(raw))
    assert Counter((own.label, own.part) for own in samples) == {
        (label, part): number for label in range(10) for part, number in (("train", 2), ("test", 1))
    }
    everything = {own.source_id: own for own in Mnist(published).read(raw)}
    assert [own.source_id for own in samples] == [
        identity for identity in everything if identity in {own.source_id for own in samples}
    ]
    for own in samples:
        np.testing.assert_array_equal(own.image, everything[own.source_id].image)
    assert source.size(raw) == 30
    facts = source.facts(raw)
    assert facts["kind"] == "fixed sample of the published set"
    assert facts["counts"] == {"train": 20, "test": 10}
    assert facts["published_counts"] == {"train": 40, "test": 30}


def test_subclasses_are_pairs_of_their_own(server: Server, raw: Path) -> None:
    files, _ = cifar_files()
    source = Cifar100(publish(server, (24, 12), files), CifarOptions(sample=SIZE))
    source.fetch(raw)
    counts = Counter((own.label, own.domain, own.part) for own in source.read(raw))
    assert len(counts) == 2 * 3 * 2
    assert all(number == getattr(SIZE, part) for (*_, part), number in counts.items())


def test_the_sample_of_a_mirror_is_read_whole_and_said_to_be_other_images(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = digits((28, 28), train=40, test=30)
    arrays = {
        f"{part}_{key}": array
        for part, pair in content.items()
        for key, array in zip("xy", pair, strict=True)
    }
    np.savez(tmp_path / "usps.npz", **arrays)
    monkeypatch.setenv("DACR_MIRROR", str(tmp_path))
    source = get_source("usps", {"usps": {"sample": {"train": 2, "test": 1}}})
    source.fetch(raw)
    assert len(list(source.read(raw))) == source.size(raw) == 70
    assert source.facts(raw)["kind"] == "mirror sample, not the official split"
    told = capsys.readouterr().out
    assert told.startswith(
        "usps: a mirror's sample, 40 / 30 (train / test); these are other images"
    )


# The benchmarks ----------------------------------------------------------------------------------


def params_of(folder: Path, *choice: str) -> Params:
    compose(list(choice), folder / "params.yaml")
    return load_params(folder / "params.yaml")


def test_a_stranger_fetches_the_public_files_of_the_digits_and_builds_their_sample(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = {"train": 40, "test": 30}
    grey, colour = digits((28, 28), **numbers), digits((32, 32, 3), **numbers)
    table = {
        "mnist": publish(server, (40, 30), mnist_files(grey)),
        "svhn": publish(server, (40, 30), svhn_files(colour)),
    }
    small = digits((28, 28, 3), **numbers)
    # MNIST-M's first release is gone: the second one has MNIST's labels.
    table["mnist_m"] = publish(server, (40, 30), {"gone.pt": b""}, mnist_m_pickle(small))
    del server.pages["/0/gone.pt"]
    table["usps"] = publish(server, (40, 30), usps_files(digits((16, 16), **numbers)))
    monkeypatch.setattr(upstream, "published_sources", lambda: table)
    monkeypatch.setattr("dacr.data.download.ATTEMPTS", 1)
    sizes = {f"data.read_options.{name}.sample.{part}={number}" for name in table
             for part, number in (("train", 2), ("test", 1))}  # fmt: skip
    params = params_of(tmp_path, "benchmark=idigits_cpu", *sizes)
    with chdir(tmp_path):
        for name in params.data.sources:
            monkeypatch.setattr(sys, "argv", ["fetch", name])
            fetch.main()
        build.main()
    summary: dict[str, Any] = json.loads((tmp_path / "data/benchmark/benchmark.json").read_text())
    assert {(own["train"], own["test"]) for own in summary["counts"]["pairs"]} == {(2, 1)}
    assert {own["kind"] for own in summary["origins"].values()} == {
        "fixed sample of the published set"
    }
    told = capsys.readouterr().out
    assert "idigits_cpu: 80 images to train and 40 to test" in told
    assert "  source usps: fixed sample of the published set\n" in told


@pytest.mark.parametrize(
    ("name", "train", "test"), [("idigits_cpu", 25_000, 6_000), ("icifar20_cpu", 39_500, 9_000)]
)
def test_the_work_of_a_sample_is_known_before_anything_is_fetched(
    tmp_path: Path, name: str, train: int, test: int
) -> None:
    images = images_of(params_of(tmp_path, f"benchmark={name}").data, [])
    assert (sum(images.train.values()), sum(images.test.values())) == (train, test)


def test_only_the_benchmarks_for_a_cpu_are_samples(tmp_path: Path) -> None:
    for file in sorted(Path("conf/benchmark").glob("*.yaml")):
        params = params_of(tmp_path, f"benchmark={file.stem}")
        sampled = [name for name, own in params.data.read_options.items() if "sample" in own]
        assert sampled == (list(params.data.sources) if file.stem in CPU else [])
