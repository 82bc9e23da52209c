"""The embedded benchmark's four sources: exact, balanced, legible, and fair between the parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from dacr.data.sources import embedded, get_source
from dacr.data.sources.base import Part, Sample
from dacr.data.sources.embedded import EmbeddedSource, Pose, shrink, warp
from dacr.errors import UserError
from dacr.rng import numpy_generator

DOMAINS = ["handwritten", "blended", "rendered", "street"]


def source(domain: str) -> EmbeddedSource:
    found = get_source(domain)
    assert isinstance(found, EmbeddedSource)
    return found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PER_PAIR", {"train": 4, "test": 2})


def test_counts_of_the_whole_domain(tmp_path: Path) -> None:
    source("handwritten").fetch(tmp_path)
    samples = list(source("handwritten").read(tmp_path))
    counts: dict[tuple[int, Part], int] = {}
    for sample in samples:
        counts[sample.label, sample.part] = counts.get((sample.label, sample.part), 0) + 1
    assert counts == {(c, "train"): 240 for c in range(10)} | {(c, "test"): 60 for c in range(10)}
    assert len({sample.source_id for sample in samples}) == len(samples)
    assert len({np.asarray(sample.image).tobytes() for sample in samples}) == len(samples)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("domain", DOMAINS)
def test_fetch_writes_the_same_bytes_and_read_gives_them_back(domain: str, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        np.random.seed(seed)  # noqa: NPY002 (global state must not matter)
        folder.mkdir()
        source(domain).fetch(folder)
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert first == second
    samples = list(source(domain).read(folders[0]))
    assert len(samples) == 60
    for sample in reversed(samples):  # drawn alone and in another order, an image is the same
        i = int(sample.source_id.partition("#")[2])
        again = source(domain).sample(sample.label, sample.part, i)
        assert np.array_equal(sample.image, again.image)
        assert (sample.domain, sample.source_id) == (domain, again.source_id)
        assert isinstance(sample.image, np.ndarray)
        assert sample.image.dtype == np.uint8
        assert sample.image.shape in ((32, 32), (32, 32, 3))


def test_no_base_digit_is_in_the_training_part_and_in_the_test_part() -> None:
    bases: dict[Part, set[str]] = {"train": set(), "test": set()}
    for part, collected in bases.items():
        for domain in DOMAINS:
            for label in range(10):
                collected.update(source(domain).bases(label, part))
    assert not bases["train"] & bases["test"]
    handwritten = {int(base[-4:]) for base in bases["train"] | bases["test"] if "sklearn" in base}
    assert handwritten == set(range(1797))  # and none is wasted


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_sample_names_a_base_digit_of_its_part_and_label(domain: str) -> None:
    truth = load_digits().target
    for part in ("train", "test"):
        for label in range(10):
            base = source(domain).sample(label, part, 7).source_id.removesuffix("#7")
            assert base in source(domain).bases(label, part)
            name = base.removeprefix("sklearn-digit-")
            assert label == (truth[int(name)] if name.isdigit() else int(base.split("/")[1]))


def edges(samples: list[Sample]) -> NDArray[np.float64]:
    """How strong the edges of each of six directions are in each 4×4 block, colour and polarity
    left out: what a reader of digits goes by."""
    images = np.stack(
        [np.asarray(s.image, float).reshape(32, 32, -1)[..., [0, -1]] for s in samples]
    )
    dy, dx = np.gradient(ndimage.gaussian_filter(images, (0, 1, 1, 0)), axis=(1, 2))
    strength, angle = np.hypot(dy, dx), np.arctan2(dy, dx) % np.pi
    bins = np.eye(6)[np.minimum(angle / np.pi * 6, 5).astype(int)]
    blocks = (strength[..., None] * bins).sum(3).reshape(-1, 8, 4, 8, 4, 6).sum((2, 4))
    flat = blocks[:, 1:7, 1:7].reshape(len(samples), -1)
    return np.asarray(flat / np.linalg.norm(flat, axis=1, keepdims=True))


def test_each_domain_is_legible_and_differs_from_the_others() -> None:
    def drawn(domain: str, part: Part, n: int) -> tuple[NDArray[np.float64], list[int]]:
        samples = [source(domain).sample(c, part, i) for c in range(10) for i in range(n)]
        return edges(samples), [sample.label for sample in samples]

    test = {domain: drawn(domain, "test", 8) for domain in DOMAINS}
    accuracy = {}
    for domain in DOMAINS:
        reader = KNeighborsClassifier(1).fit(*drawn(domain, "train", 20))
        accuracy[domain] = {other: reader.score(*test[other]) for other in DOMAINS}
    for domain in DOMAINS:
        assert accuracy[domain][domain] > 0.6, accuracy
    for written in ("handwritten", "blended"):
        for typed in ("rendered", "street"):
            assert accuracy[written][typed] < accuracy[typed][typed] - 0.15, accuracy
            assert accuracy[typed][written] < accuracy[written][written] - 0.15, accuracy


def test_warp_without_freedom_only_enlarges_about_the_centre() -> None:
    image = np.arange(16.0).reshape(4, 4)
    fixed = Pose(zoom=(3, 3), degrees=0, shear=0, shift=0)
    view = warp(image, 12, fixed, 1, numpy_generator(0))
    assert np.allclose(view[1::3, 1::3], image)  # the middles of the 3×3 blocks
    assert view[4, 5] == pytest.approx((2 * image[1, 1] + image[1, 2]) / 3)


def test_warp_keeps_to_its_bounds() -> None:
    point = np.zeros((33, 33))
    point[16, 16] = 1
    still = Pose(zoom=(1, 1), degrees=180, shear=1, shift=0)
    moving = Pose(zoom=(1, 1), degrees=0, shear=0, shift=3)
    for draw in range(50):
        about_centre = warp(point, 33, still, 1, numpy_generator(draw))
        assert ndimage.center_of_mass(about_centre) == pytest.approx((16, 16))
        moved = np.array(ndimage.center_of_mass(warp(point, 33, moving, 1, numpy_generator(draw))))
        assert (abs(moved - 16) <= 3 * 33 / 32 + 1e-9).all()
        assert (abs(moved - 16) > 0).all()


def test_shrink_averages_blocks() -> None:
    image = np.arange(4 * 4 * 3, dtype=float).reshape(4, 4, 3)
    assert np.allclose(shrink(image, 2)[1, 0], image[2:4, 0:2].mean((0, 1)))
    assert shrink(image, 2).shape == (2, 2, 3)


def test_an_unknown_source_is_one_line_that_names_the_known() -> None:
    for name in ("hand", "embedded", "base", "../handwritten", ""):
        with pytest.raises(UserError, match=rf"no source called '{name}'.*blended.*handwritten"):
            get_source(name)


def test_adding_a_source_is_adding_a_file_and_only_that_file_is_imported(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text("SOURCE = 'a source'")
    code = (
        "import sys, dacr.data.sources as s\n"
        "s.__path__.append(sys.argv[1])\n"
        "assert s.get_source('tiny') == 'a source'\n"
        "found = [name for name, m in sys.modules.items() if name.startswith(s.__name__ + '.')"
        " and hasattr(m, 'SOURCE')]\n"
        "assert found == [s.__name__ + '.tiny'], found\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
