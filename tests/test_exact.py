"""Every method on every split gives the same bytes twice, whatever ran in the process before."""

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from dacr.data.building import build_benchmark
from dacr.data.sources.base import Sample
from dacr.sessions import consolidate
from tests.learning import THIN, pictures
from tests.tiny_pipeline import CLASSES, DOMAINS, TinySource, make_data, run, tiny_params

METHODS = sorted(file.stem for file in Path("conf/method").glob("*.yaml"))
SPLITS = ("nc", "nd", "ncd")
pytestmark = pytest.mark.usefixtures("no_epoch_kept")


def outs(folder: Path) -> dict[str, bytes]:
    """Everything that stages declare as outs, by path: the notes of machine and time are none."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for name in ("data", "runs")
        for file in sorted((folder / name).rglob("*"))
        if file.is_file() and not file.name.startswith("provenance-")
    }


def disturb_global_state(seed: int) -> None:
    """What a run must not depend on: the generators that everybody shares."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


DRAWN = ("replay", "der_dacr")
"""Whose features t-SNE draws, in both runs; elsewhere the picture is the features themselves."""


def undrawn(features: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    return features[:, :2].astype(np.float64)


@contextmanager
def filling_new_memory(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> Iterator[None]:
    """Whether deterministic mode fills every new tensor (NaN, largest integer), whoever asks."""
    module = torch.utils.deterministic
    before = module.fill_uninitialized_memory
    module.fill_uninitialized_memory = wanted
    with monkeypatch.context() as patch:
        patch.setattr(torch._C, "_set_deterministic_fill_uninitialized_memory", lambda _: None)
        yield
        assert module.fill_uninitialized_memory == wanted
        assert not wanted or torch.empty(3).isnan().all()
    module.fill_uninitialized_memory = before


@pytest.mark.parametrize(
    ("split", "augmentation"), [*((split, "none") for split in SPLITS), ("ncd", "crop_flip_jitter")]
)
@pytest.mark.parametrize("method", METHODS)
def test_twice_the_same_bytes(tmp_path, monkeypatch, method, split, augmentation):
    """Whatever the shared generators hold, and whatever lies in memory that nothing was written to.

    Deterministic mode fills new memory, and ``make_deterministic`` turns that off: the first run
    has it filled all the same, so that a number read from there would differ from the second's.
    """
    chosen = (f"method={method}", f"split={split}", f"augmentation.name={augmentation}")
    params = tiny_params(THIN, *chosen)
    if method not in DRAWN:
        monkeypatch.setattr(consolidate, "embed", undrawn)
    results = []
    for number, filled in ((1, True), (2, False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setenv("DVC_ROOT", str(folder))
        disturb_global_state(number)
        with filling_new_memory(monkeypatch, filled):
            run(folder, params)
        results.append(outs(folder))
    first, second = results
    weights = [name for name in first if name.endswith(".safetensors")]
    assert len(weights) > (8 if split == "ncd" else 4)
    assert len(first) > 20
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.parametrize("split", SPLITS)
def test_the_data_of_a_split_are_made_the_same_twice(tmp_path, split):
    """The runs of the other tests share them."""
    results = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        disturb_global_state(number)
        make_data(folder, tiny_params("method=replay", f"split={split}"))
        results.append(outs(folder))
    assert len(results[0]) > 5
    assert results[0] == results[1]


def test_another_seed_gives_other_bytes(tmp_path, monkeypatch):
    """The comparison above would see a difference if there was one."""
    results = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.setenv("DVC_ROOT", str(folder))
        run(folder, tiny_params("method=replay", "split=nd", f"seed={seed}"))
        results.append(outs(folder))
    different = {name for name in results[0] if results[0][name] != results[1].get(name)}
    assert "runs/02/state/state.safetensors" in different
    assert "data/benchmark/images.npy" not in different


class EncodedSource(TinySource):
    """The same pictures as files, which worker processes decode."""

    def read(self, folder):
        for number in range(70):  # more than two chunks
            stream = io.BytesIO()
            label = number % len(CLASSES)
            Image.fromarray(pictures([label], [0], number)[0]).save(stream, "PNG")
            part = "train" if number % 3 else "test"
            yield Sample(stream.getvalue(), label, DOMAINS[number % 2], part, str(number))


def test_the_number_of_data_workers_changes_nothing(tmp_path):
    results = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        source = [(EncodedSource(), tmp_path)]
        build_benchmark("tiny", CLASSES, DOMAINS, source, image_size=8, out=out, workers=workers)
        results.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert results[0] == results[1]
