"""The packed benchmark: what goes in comes out, in bounded memory, and damage is never silent."""

from __future__ import annotations

import io
import json
import multiprocessing
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from dacr.config import Data
from dacr.data.benchmark import Benchmark, check_pixels
from dacr.data.building import build_benchmark, names_of_classes
from dacr.data.contact_sheet import CELL, EMPTY, GAP, LINE, contact_sheet
from dacr.data.packing import CHUNK, IN_FLIGHT, pack_image, packed
from dacr.data.restriction import limit_of
from dacr.data.sources import get_source
from dacr.data.sources.base import Part, Sample, Source
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError
from dacr.rng import numpy_generator
from tests.learning import small_params

CLASSES, DOMAINS = ["cat", "dog", "owl"], ["photo", "sketch"]
HERE = Path()


class Listed(Source):
    """A source that yields what it was given; a function is asked anew at every reading."""

    name = "listed"

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self.samples = samples

    def fetch(self, folder: Path) -> None:
        raise NotImplementedError

    def read(self, folder: Path) -> Iterator[Sample]:
        yield from self.samples()


def picture(*name: str | int, size: int = 8) -> NDArray[np.uint8]:
    return numpy_generator(0, *name).integers(0, 256, (size, size, 3), np.uint8)


def make_samples(train: int = 10, test: int = 4) -> list[Sample]:
    counts: dict[Part, int] = {"train": train, "test": test}
    return [
        Sample(picture(domain, c, part, i), c, domain, part, f"{c}/{part}/{i}")
        for domain in DOMAINS
        for part, n in counts.items()
        for i in range(n)
        for c in range(3)
    ]


def build(samples: list[Sample], out: Path, image_size: int = 8, **options: Any) -> Benchmark:
    sources = [(Listed(lambda: samples), HERE)]
    build_benchmark("toy", CLASSES, DOMAINS, sources, image_size=image_size, out=out, **options)
    return Benchmark.open(out)


def encode(image: NDArray[np.uint8], mode: str, kind: str) -> bytes:
    file = io.BytesIO()
    picture = Image.fromarray(image)
    if mode in ("RGBA", "LA"):
        picture.putalpha(Image.fromarray(image[..., 0]))
    picture.convert(mode).save(file, kind)
    return file.getvalue()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# What goes in comes out


def test_every_sample_is_where_the_index_says(tmp_path: Path) -> None:
    samples = make_samples()
    benchmark = build(samples, tmp_path, paper={"train": 7})
    assert benchmark.images.shape == (len(samples), 8, 8, 3)
    assert benchmark.index.columns.tolist() == [
        "id",
        "label",
        "domain",
        "part",
        "source_id",
        "pixels",
    ]
    assert np.array_equal(benchmark.images, np.stack([sample.image for sample in samples]))
    assert benchmark.index["id"].tolist() == list(range(len(samples)))
    assert benchmark.index["label"].tolist() == [sample.label for sample in samples]
    assert [DOMAINS[z] for z in benchmark.index["domain"]] == [sample.domain for sample in samples]
    assert benchmark.index["part"].tolist() == [sample.part for sample in samples]
    assert benchmark.index["source_id"].tolist() == [sample.source_id for sample in samples]
    summary = json.loads((tmp_path / "benchmark.json").read_text())
    assert {key: summary[key] for key in ("name", "classes", "domains", "image_size", "paper")} == {
        "name": "toy",
        "classes": CLASSES,
        "domains": DOMAINS,
        "image_size": 8,
        "paper": {"train": 7},
    }
    assert summary["counts"]["pairs"] == [
        {"class": c, "domain": z, "train": 10, "test": 4} for c in range(3) for z in range(2)
    ]
    assert (summary["counts"]["train"], summary["counts"]["test"]) == (60, 24)
    assert sorted(files(tmp_path)) == ["benchmark.json", "images.npy", "index.parquet"]


def test_images_are_read_only_and_stay_on_disk(tmp_path: Path) -> None:
    benchmark = build(make_samples(), tmp_path)
    assert isinstance(benchmark.images, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        benchmark.images[0] = 0


def test_two_builds_are_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    samples = [
        Sample(encode(picture(i, size=11), "RGB", "PNG"), i % 3, "photo", "train", str(i))
        for i in range(3 * CHUNK + 5)
    ]
    for workers in (1, 2):
        build(samples, tmp_path / str(workers), workers=workers)
    build(samples, tmp_path / "1")  # over an old one, and with a worker a core
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_the_summary_tells_other_pixels_apart_and_where_they_came_from(tmp_path: Path) -> None:
    samples = make_samples()
    build(samples, tmp_path / "a")
    images = [np.asarray(sample.image) for sample in samples]
    images[-1] = images[-1] ^ 1
    changed = [
        Sample(image, s.label, s.domain, s.part, s.source_id)
        for image, s in zip(images, samples, strict=True)
    ]
    write_origin(tmp_path, {"kind": "a sample"})
    sources = [(Listed(lambda: changed), tmp_path)]
    build_benchmark("toy", CLASSES, DOMAINS, sources, image_size=8, out=tmp_path / "b")
    a, b = (json.loads((tmp_path / x / "benchmark.json").read_text()) for x in "ab")
    assert a.pop("pixels_sha256") != b.pop("pixels_sha256")
    assert (a.pop("origins"), b.pop("origins")) == ({}, {"listed": {"kind": "a sample"}})
    assert a == b


# Decoding


MODES = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA"],
    "JPEG": ["L", "RGB", "CMYK"],
    "WEBP": ["RGB", "RGBA"],
    "BMP": ["1", "L", "P", "RGB"],
}


@pytest.mark.parametrize(
    ("kind", "mode"), [(k, mode) for k, modes in MODES.items() for mode in modes]
)
def test_encoded_images_are_what_pillow_decodes_and_resizes(kind: str, mode: str) -> None:
    data = encode(picture(size=40)[:, :30], mode, kind)
    expected = (
        Image.open(io.BytesIO(data)).convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
    )
    assert np.array_equal(pack_image(data, 16), np.asarray(expected))


def test_arrays_are_resized_only_when_they_must_be() -> None:
    colour = picture(size=28)
    grey = colour[..., 0]
    assert pack_image(colour, 28) is colour
    assert np.array_equal(pack_image(grey, 28), np.repeat(grey[..., None], 3, 2))
    larger = Image.fromarray(grey).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(pack_image(grey, 32), np.repeat(np.asarray(larger)[..., None], 3, 2))


def test_making_an_image_smaller_averages_all_of_it() -> None:
    chequers = np.indices((64, 64)).sum(0) % 2 * np.uint8(255)
    small = pack_image(chequers.astype(np.uint8), 8)
    assert 120 < small.min() <= small.max() < 136


@pytest.mark.parametrize("workers", [1, 2])
def test_an_image_that_cannot_be_decoded_is_named(workers: int, tmp_path: Path) -> None:
    good = encode(picture(), "RGB", "PNG")
    samples = [
        Sample(good, 0, "photo", "train", "good"),
        Sample(good[:60], 0, "photo", "train", "cut"),
    ]
    with pytest.raises(UserError, match=r"^image cut of photo cannot be decoded \(.*\); remove"):
        build(samples, tmp_path, workers=workers)
    assert not (tmp_path / "benchmark.json").exists()


# Memory


def test_building_needs_little_memory_however_many_images(tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        for i in range(1500):
            yield Sample(np.full((64, 64, 3), i % 251, np.uint8), 0, "photo", "train", str(i))

    sources = [(Listed(samples), HERE)]
    tracemalloc.start()
    try:
        build_benchmark("toy", CLASSES, DOMAINS, sources, image_size=64, out=tmp_path, workers=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    images = Benchmark.open(tmp_path).images
    assert peak < images.nbytes / 3
    assert images[:, 5, 7, 1].tolist() == [i % 251 for i in range(1500)]


def test_four_times_as_many_encoded_images_need_no_more_memory(tmp_path: Path) -> None:
    data = encode(picture(size=64), "RGB", "PNG")

    def peak(count: int) -> int:
        def samples() -> Iterator[Sample]:
            for i in range(count):
                yield Sample(bytes(bytearray(data)), 0, "photo", "train", str(i))

        out = tmp_path / str(count)
        tracemalloc.start()
        try:
            build_benchmark(
                "toy",
                CLASSES,
                DOMAINS,
                [(Listed(samples), HERE)],
                image_size=64,
                out=out,
                workers=2,
            )
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(CHUNK)  # what is imported only once
    few, many = peak(400), peak(1600)
    assert many < few + 400 * len(data) / 4  # 1200 more images, and not the room of 100 of them


def test_encoded_images_are_decoded_by_other_processes() -> None:
    data = encode(picture(), "RGB", "PNG")
    samples = (Sample(data, 0, "photo", "train", str(i)) for i in range(4 * CHUNK))
    chunks = packed(samples, 8, workers=2)
    next(chunks)
    try:
        assert multiprocessing.active_children()
    finally:
        chunks.close()


def test_no_more_encoded_images_are_read_than_the_workers_can_take() -> None:
    data = encode(picture(), "RGB", "PNG")
    read = 0

    def samples() -> Iterator[Sample]:
        nonlocal read
        for i in range(12 * CHUNK):
            read += 1
            yield Sample(data, 0, "photo", "train", str(i))

    done = 0
    for chunk, _ in packed(samples(), 8, workers=2):
        assert read - done <= IN_FLIGHT * 2 * CHUNK
        done += len(chunk)
    assert done == 12 * CHUNK


# What has no place


def test_a_sample_that_has_no_place_is_named(tmp_path: Path) -> None:
    def one(label: int, domain: str) -> list[Sample]:
        return [Sample(picture(), label, domain, "train", "x7")]

    with pytest.raises(UserError, match=r"^image x7 of photo has label 3, but there are 3 classes"):
        build(one(3, "photo"), tmp_path)
    with pytest.raises(UserError, match=r"^image x7 of photo has label -1"):
        build(one(-1, "photo"), tmp_path)
    with pytest.raises(
        UserError, match=r"'oil', which is not among data.domains \(photo, sketch\)"
    ):
        build(one(0, "oil"), tmp_path)
    with pytest.raises(UserError, match=r"^the sources of toy hold no images"):
        build([], tmp_path)


# Restricting


def chosen(benchmark: Benchmark, part: Part) -> set[tuple[int, str]]:
    rows = benchmark.index[benchmark.index["part"] == part]
    return set(zip(rows["domain"], rows["source_id"], strict=True))


def per_pair_counts(benchmark: Benchmark, part: Part) -> set[int]:
    rows = benchmark.index[benchmark.index["part"] == part]
    return set(Counter(zip(rows["label"], rows["domain"], strict=True)).values())


def test_per_pair_keeps_so_many_training_images_and_all_test_images(tmp_path: Path) -> None:
    samples = make_samples()
    whole = build(samples, tmp_path / "0")
    five = build(samples, tmp_path / "5", limit=lambda _: 5)
    three = build(samples, tmp_path / "3", limit=lambda _: 3)
    assert per_pair_counts(five, "train") == {5}
    assert per_pair_counts(three, "train") == {3}
    assert chosen(three, "train") < chosen(five, "train") < chosen(whole, "train")
    assert chosen(three, "test") == chosen(five, "test") == chosen(whole, "test")
    assert chosen(build(samples, tmp_path / "99", limit=lambda _: 99), "train") == chosen(
        whole, "train"
    )
    by_name = {(DOMAINS.index(s.domain), s.source_id): s.image for s in samples}
    names = zip(five.index["domain"], five.index["source_id"], strict=True)
    assert np.array_equal(five.images, np.stack([by_name[name] for name in names]))


def test_one_domain_alone_is_limited(tmp_path: Path) -> None:
    samples = make_samples()
    whole = build(samples, tmp_path / "0")
    first, other = DOMAINS[0], DOMAINS[1]
    few = build(samples, tmp_path / "few", limit={first: 3}.get)
    every = build(samples, tmp_path / "3", limit=lambda _: 3)
    for domain, like in ((0, every), (1, whole)):
        assert {own for own in chosen(few, "train") if own[0] == domain} == {
            own for own in chosen(like, "train") if own[0] == domain
        }
    assert first != other
    assert chosen(few, "test") == chosen(whole, "test")


def test_a_limit_of_an_unknown_domain_is_one_line() -> None:
    data = small_params().data.model_dump()
    with pytest.raises(ValidationError, match="limits per_pair of oil, but its domains are hand"):
        Data.model_validate(data | {"per_pair": {"oil": 3}})
    limits = [{"street": 3}, 5, None]
    found = [limit_of(Data.model_validate(data | {"per_pair": own})) for own in limits]
    assert found[0] is not None
    assert found[1] is not None
    assert found[2] is None
    assert [found[0](name) for name in ("street", "blended")] == [3, None]
    assert [found[1](name) for name in ("street", "blended")] == [5, 5]


def test_the_choice_depends_on_the_seed_and_not_on_the_order(tmp_path: Path) -> None:
    samples = make_samples()
    first = chosen(build(samples, tmp_path / "a", limit=lambda _: 5, seed=1), "train")
    assert chosen(build(samples[::-1], tmp_path / "b", limit=lambda _: 5, seed=1), "train") == first
    assert chosen(build(samples, tmp_path / "c", limit=lambda _: 5, seed=2), "train") != first


def test_validation_images_come_from_the_training_part_alone(tmp_path: Path) -> None:
    samples = make_samples()
    whole = build(samples, tmp_path / "0")
    tuning = build(samples, tmp_path / "v", validation=0.3)
    assert per_pair_counts(tuning, "test") == {3}
    assert per_pair_counts(tuning, "train") == {7}
    assert not chosen(tuning, "test") & chosen(tuning, "train")
    assert chosen(tuning, "test") | chosen(tuning, "train") == chosen(whole, "train")
    both = build(samples, tmp_path / "vp", validation=0.3, limit=lambda _: 4)
    assert chosen(both, "test") == chosen(tuning, "test")
    assert chosen(both, "train") < chosen(tuning, "train")
    assert per_pair_counts(both, "train") == {4}


@pytest.mark.parametrize(("n", "fraction", "held_out"), [(1, 0.5, 0), (2, 0.01, 1), (3, 0.99, 2)])
def test_validation_leaves_something_to_train_on(
    n: int, fraction: float, held_out: int, tmp_path: Path
) -> None:
    tuning = build(make_samples(train=n), tmp_path, validation=fraction)
    assert per_pair_counts(tuning, "train") == {n - held_out}
    assert per_pair_counts(tuning, "test") == ({held_out} if held_out else set())


# Damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    build(make_samples(), folder)
    return folder


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def change_index(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Path], None]:
    return lambda path: change(pd.read_parquet(path)).to_parquet(path, index=False)


def change_summary(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        summary = json.loads(path.read_text())
        change(summary)
        path.write_text(json.dumps(summary))

    return apply


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("benchmark.json", Path.unlink, "is missing"),
    ("benchmark.json", cut, "is damaged"),
    ("benchmark.json", lambda p: p.write_text("[]"), "is damaged"),
    ("benchmark.json", change_summary(lambda s: s.pop("classes")), "is damaged"),
    ("benchmark.json", change_summary(lambda s: s.update(counts={})), "is damaged"),
    ("images.npy", Path.unlink, "is missing"),
    ("images.npy", cut, "is truncated or no array"),
    ("images.npy", lambda p: p.write_bytes(b""), "is truncated or no array"),
    ("images.npy", lambda p: p.write_bytes(b"x" * p.stat().st_size), "is truncated or no array"),
    (
        "images.npy",
        lambda p: p.write_bytes(p.read_bytes() + b"x"),
        "is longer than its header says",
    ),
    (
        "images.npy",
        lambda p: np.save(p, np.load(p).astype(np.float32)),
        "has values of type float32, not uint8",
    ),
    (
        "images.npy",
        lambda p: np.save(p, np.load(p)[:-1]),
        "has shape (83, 8, 8, 3), not (84, 8, 8, 3)",
    ),
    ("index.parquet", Path.unlink, "is missing"),
    ("index.parquet", cut, "is truncated or no parquet file"),
    ("index.parquet", lambda p: p.write_text("id,label\n"), "is truncated or no parquet file"),
    (
        "index.parquet",
        change_index(lambda t: t.drop(columns="part")),
        "does not have the columns id, label, domain, part, source_id, pixels",
    ),
    (
        "index.parquet",
        change_index(lambda t: t.astype({"label": float})),
        "does not have the columns id, label, domain, part, source_id, pixels",
    ),
    ("index.parquet", change_index(lambda t: t[:-1]), "does not list the images 0 to 83 in order"),
    ("index.parquet", change_index(lambda t: t[::-1]), "does not list the images 0 to 83 in order"),
    (
        "index.parquet",
        change_index(lambda t: t.assign(label=t["label"] + 1)),
        "has a label outside 0 to 2",
    ),
    (
        "index.parquet",
        change_index(lambda t: t.assign(domain=t["domain"] - 1)),
        "has a domain outside 0 to 1",
    ),
    (
        "index.parquet",
        change_index(lambda t: t.assign(label=(t["label"] + (t["id"] == 0)) % 3)),
        "does not have the counts of benchmark.json",
    ),
    (
        "index.parquet",
        change_index(lambda t: t.assign(part="tset")),
        "does not have the counts of benchmark.json",
    ),
]


@pytest.mark.parametrize(("name", "damage", "problem"), DAMAGE)
def test_damage_is_one_clear_line(
    name: str, damage: Callable[[Path], object], problem: str, whole: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(whole, tmp_path / "benchmark")
    Benchmark.open(folder)
    damage(folder / name)
    with pytest.raises(UserError) as error:
        Benchmark.open(folder)
    assert str(error.value) == f"{folder / name} {problem}; run `dvc repro build` to make it again"


def test_a_build_that_breaks_off_is_never_taken_for_whole(tmp_path: Path) -> None:
    def broken() -> Iterator[Sample]:
        yield from make_samples()
        raise KeyboardInterrupt

    build(make_samples(), tmp_path)  # an older, whole one is there
    sources = [(Listed(broken), HERE)]
    with pytest.raises(KeyboardInterrupt):
        build_benchmark("toy", CLASSES, DOMAINS, sources, image_size=8, out=tmp_path, workers=1)
    with pytest.raises(UserError, match=r"benchmark\.json is missing"):
        Benchmark.open(tmp_path)
    build(make_samples(), tmp_path)
    assert sorted(files(tmp_path)) == ["benchmark.json", "images.npy", "index.parquet"]


# The contact sheet


def test_the_contact_sheet_shows_each_pair_in_its_place(tmp_path: Path) -> None:
    colour = {(c, z): (20 + 70 * c, 90 + 100 * z, 40) for c in range(3) for z in range(2)}
    samples = [
        Sample(np.full((8, 8, 3), rgb, np.uint8), c, DOMAINS[z], "train", f"{i}")
        for (c, z), rgb in colour.items()
        for i in range(5)
        if (c, z) != (2, 0)
    ]
    benchmark = build(samples, tmp_path / "benchmark")
    contact_sheet(benchmark, tmp_path / "sheet.png")
    contact_sheet(benchmark, tmp_path / "again.png")
    assert (tmp_path / "sheet.png").read_bytes() == (tmp_path / "again.png").read_bytes()
    with Image.open(tmp_path / "sheet.png") as image:
        sheet = np.asarray(image)
    right = sheet.shape[1]
    for (c, z), rgb in colour.items():
        x = right - 18 - (3 - c) * (CELL + GAP) + GAP + CELL // 4
        y = LINE + z * (CELL + GAP) + CELL // 4
        empty = tuple(bytes.fromhex(EMPTY[1:]))
        assert tuple(sheet[y, x]) == (empty if (c, z) == (2, 0) else rgb)


def test_of_many_classes_the_contact_sheet_shows_ten_and_long_names_fit(tmp_path: Path) -> None:
    def width(n: int, name: str) -> int:
        samples = [Sample(picture(c), c, "photo", "train", str(c)) for c in range(n)]
        sources = [(Listed(lambda: samples), HERE)]
        classes = [f"{name} {c}" for c in range(n)]
        build_benchmark("toy", classes, DOMAINS, sources, image_size=8, out=tmp_path, workers=1)
        contact_sheet(Benchmark.open(tmp_path), tmp_path / "sheet.png")
        with Image.open(tmp_path / "sheet.png") as sheet:
            return sheet.width

    assert width(9, "c") < width(10, "c") == width(37, "c") == width(10, "c" * 60)


# Progress


def test_outside_a_terminal_a_build_tells_now_and_then_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = iter(range(0, 10_000, 6))
    monkeypatch.setattr("dacr.runtime.progress.time.monotonic", lambda: next(ticks))
    build(make_samples(train=30, test=0), tmp_path, workers=1, limit=lambda _: 20)
    told = capsys.readouterr().out.splitlines()
    assert [line.split(" images")[0] for line in told] == [
        f"build toy: {done} of 120" for done in (32, 64, 96, 120)
    ]


def test_in_a_terminal_a_build_shows_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    build(make_samples(train=30, test=0), tmp_path, workers=1)
    assert "build toy" in screen.getvalue()
    assert "180 images" in screen.getvalue()


# Several sources ---------------------------------------------------------------------------------


class Named(Listed):
    """A source that names its classes."""

    def __init__(self, samples: list[Sample], names: list[str]) -> None:
        super().__init__(lambda: samples)
        self.names = names

    def class_names(self, folder: Path) -> list[str]:
        return self.names


def of_labels(*labels: int, domain: str = DOMAINS[0]) -> list[Sample]:
    return [
        Sample(np.full((8, 8, 3), 10 * i + label, np.uint8), label, domain, "train", f"{i}")
        for i, label in enumerate(labels)
    ]


def test_a_further_source_adds_its_classes_and_moves_nothing(tmp_path: Path) -> None:
    first = Named(of_labels(0, 1, 1), ["cat", "emu"])
    further = Named(of_labels(0, 1, 2), ["ape", "cat", "dog"])
    made = []
    for sources in ([first], [first, further]):
        pairs = [(source, tmp_path) for source in sources]
        names = names_of_classes(pairs)
        build_benchmark("toy", names, DOMAINS, pairs, image_size=8, out=tmp_path, workers=1)
        made.append(Benchmark.open(tmp_path))
    before, after = made
    assert after.classes == ["cat", "emu", "ape", "dog"]
    assert after.index["label"].tolist() == [0, 1, 1, 2, 0, 3]
    kept = after.index.iloc[: len(before.index)]
    assert kept.equals(before.index)


def test_names_that_the_benchmark_does_not_have_are_renamed_in_order(tmp_path: Path) -> None:
    pairs = [(Named(of_labels(0, 1), ["n01", "n02"]), tmp_path)]
    build_benchmark("toy", ["cat", "emu"], DOMAINS, pairs, image_size=8, out=tmp_path, workers=1)
    assert Benchmark.open(tmp_path).index["label"].tolist() == [0, 1]


def test_a_source_without_names_of_classes_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not name its classes; set data\.class_names"):
        names_of_classes([(Listed(lambda: of_labels(0)), tmp_path)])


def test_own_images_may_come_from_several_places(tmp_path: Path) -> None:
    options = {"npz": {"path": "a.npz"}, "npz_late": {"path": "b.npz"}}
    late = get_source("npz_late", options)
    assert late.name == "npz_late"
    with pytest.raises(UserError, match="no source called 'handwritten_late'"):
        get_source("handwritten_late")


def test_pixels_tell_images_apart(tmp_path: Path) -> None:
    pairs = [(Listed(lambda: of_labels(0, 1, 1)), tmp_path)]
    build_benchmark("toy", CLASSES, DOMAINS, pairs, image_size=8, out=tmp_path, workers=1)
    made = Benchmark.open(tmp_path)
    check_pixels(made.images, made.index, "the table")
    assert made.index["pixels"].is_unique
    other = made.images.copy()
    other[1, 0, 0, 0] ^= 1
    check_pixels(other, made.index.drop(index=1), "the table")
    for images, number in ((other, 1), (made.images[:2], 2)):
        with pytest.raises(UserError, match=rf"^image {number} .* the table .*dvc repro build"):
            check_pixels(images, made.index, "the table")
