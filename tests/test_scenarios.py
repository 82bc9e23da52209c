"""The benchmarks as a library: names, cache, sessions, bad input, exports without peers.

It needs nothing but the library, so that .ci/lowest can run it against the wheel alone.
"""

from __future__ import annotations

import errno
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import dacr
from dacr.__main__ import parse
from dacr.data.benchmark import Benchmark
from dacr.data.sources import get_source
from dacr.data.sources.upstream import published_sources
from dacr.data.sources.usps import Usps
from dacr.errors import UserError
from dacr.scenarios import making, places
from dacr.scenarios.cache import built
from dacr.scenarios.catalogue import Choice, download_size, offers
from dacr.scenarios.composition import benchmarks, compose, splits
from dacr.scenarios.exports.writing import export
from dacr.scenarios.places import conf_folder, schedules_folder
from dacr.scenarios.stream import Scenario

Settings = dict[str, Any]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of its own, which the tests of this file share."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(places.HOME, str(folder))
        patch.delenv("DACR_MIRROR", raising=False)
        yield folder


@pytest.fixture(scope="module")
def ncd(home: Path) -> Scenario:
    return dacr.scenario("idigits_mini", "ncd")


def command(*words: str) -> None:
    arguments = parse(["scenario", *words])
    arguments.run(arguments)


# -- sessions ---------------------------------------------------------------------------------


def test_sessions_are_those_of_the_committed_schedule(ncd: Scenario) -> None:
    committed = pd.read_csv(schedules_folder() / "idigits_mini_ncd.csv")
    index = Benchmark.open(ncd.folder.parent / "benchmark").index
    seen: set[int] = set()
    assert len(ncd) == committed["session"].max()
    for t, session in enumerate(ncd, start=1):
        pairs = committed.loc[committed["session"] == t, ["class", "domain"]]
        expected = {tuple(row) for row in pairs.to_numpy().tolist()}
        assert session.index == t
        assert set(session.pairs) == expected
        assert session.classes == sorted({label for label, _ in expected})
        assert session.new_classes == sorted({label for label, _ in expected} - seen)
        seen |= {label for label, _ in expected}
        assert session.seen_classes == sorted(seen)
        here = [pair in expected for pair in zip(index["label"], index["domain"], strict=True)]
        train = index[np.array(here) & (index["part"] == "train")]
        assert session.train().ids.tolist() == train["id"].tolist()


def test_test_images_are_of_the_seen_pairs_or_of_the_sessions_own(ncd: Scenario) -> None:
    so_far: set[int] = set()
    for session in ncd:
        own = session.test(seen=False, domains=True)
        assert own.domains is not None
        pairs = set(zip(own.labels.tolist(), own.domains.tolist(), strict=True))
        assert pairs == set(session.pairs)
        so_far |= set(own.ids.tolist())
        assert set(session.test().ids.tolist()) == so_far
        assert not so_far & set(session.train().ids.tolist())
    assert len(so_far) == 2400


def test_an_item_is_the_image_of_the_benchmark_with_its_label(ncd: Scenario) -> None:
    benchmark = Benchmark.open(ncd.folder.parent / "benchmark")
    images = ncd[3].train(domains=True)
    for number in (0, 17, len(images) - 1):
        image, label, domain = images[number]
        row = benchmark.index.iloc[int(images.ids[number])]
        assert (label, domain) == (row["label"], row["domain"])
        pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        assert np.array_equal(pixels, benchmark.images[images.ids[number]])
        assert np.array_equal(pixels, images.pixels[number])
    assert image.dtype == torch.float32
    assert images.targets == images.labels.tolist()


def test_domains_are_given_only_where_they_are_asked_for(ncd: Scenario) -> None:
    assert len(ncd[0].train()[0]) == len(ncd[0].test()[0]) == 2
    assert ncd[0].train().domains is None
    assert len(ncd[0].test(domains=True)[0]) == 3


def test_a_transform_gets_a_pil_image(ncd: Scenario) -> None:
    image, _ = ncd[0].train(transform=lambda image: image)[0]
    assert isinstance(image, Image.Image)
    assert image.size == (ncd.image_size, ncd.image_size)


def test_workers_get_a_file_name_and_not_the_images(ncd: Scenario) -> None:
    images = ncd[0].train()
    sent = pickle.dumps(images)
    assert len(sent) < ncd.pixels.nbytes / 100
    received = pickle.loads(sent)
    assert all(torch.equal(received[i][0], images[i][0]) for i in range(0, len(images), 97))


def test_a_scenario_is_indexed_like_a_list(ncd: Scenario) -> None:
    assert [session.index for session in ncd[2:4]] == [3, 4]
    assert ncd[-1].index == len(ncd)
    with pytest.raises(IndexError):
        ncd[len(ncd)]


def test_a_plain_loop_trains_on_a_session(ncd: Scenario) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        for images, labels in DataLoader(ncd[0].train(), batch_size=64, shuffle=True):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


# -- what a user may change -------------------------------------------------------------------


def test_another_seed_is_another_order(ncd: Scenario) -> None:
    other = dacr.scenario("idigits_mini", "ncd", seed=7)
    assert not other.schedule.equals(ncd.schedule)
    assert other.folder.parent == ncd.folder.parent  # the same images
    again = dacr.scenario("idigits_mini", "ncd", seed=1993)
    assert again.schedule.equals(ncd.schedule)


def test_validation_tests_on_training_images(ncd: Scenario) -> None:
    tuning = dacr.scenario("idigits_mini", "nd", validation=0.2)
    assert tuning.folder.parent != ncd.folder.parent
    tested = set(tuning[-1].test().ids.tolist())
    names = tuning.table["source_id"] + tuning.table["domain"].astype(str)
    all_names = ncd.table["source_id"] + ncd.table["domain"].astype(str)
    really_tested = set(all_names[ncd.table["part"] == "test"])
    assert len(tested) == 40 * 48  # a fifth of 240
    assert not set(names[sorted(tested)]) & really_tested
    assert [len(session.train()) for session in tuning] == [10 * 192] * 4


def test_per_pair_limits_the_training_images_alone(ncd: Scenario) -> None:
    small = dacr.scenario("idigits_mini", "nd", per_pair=20)
    assert [len(session.train()) for session in small] == [200] * 4
    assert len(small[-1].test()) == len(ncd[-1].test())


def test_the_examples_of_the_documentation_run(home: Path) -> None:
    """The blocks that README.md and docs/library.md mark as run here."""
    root = conf_folder().parent
    if not (root / "docs/library.md").is_file():
        pytest.skip("not in a clone of the project")
    names: dict[str, Any] = {}
    marked = r"<!-- run by tests/test_scenarios.py -->\n```python\n(.*?)```"
    for page in ("README.md", "docs/library.md"):
        examples = re.findall(marked, (root / page).read_text(encoding="utf-8"), re.DOTALL)
        assert examples
        for example in examples:
            exec(example, names)
    assert names["session"].index == 1
    assert sum(map(len, names["right"].values())) == len(names["per_domain"])
    assert len(names["small"][0].train()) == 200


# -- the cache --------------------------------------------------------------------------------


def test_what_is_built_is_not_built_again(ncd: Scenario) -> None:
    file = ncd.folder.parent / "benchmark" / "images.npy"
    before = file.stat().st_mtime_ns
    dacr.scenario("idigits_mini", "nd")
    assert file.stat().st_mtime_ns == before
    assert built(compose("idigits_mini", "nc")) == file.parent
    assert built(compose("icifar20", "nc")) is None


def test_an_interrupted_build_is_begun_again(ncd: Scenario) -> None:
    """A folder without benchmark.json, which is written last, is no benchmark."""
    folder = ncd.folder.parent / "benchmark"
    digest = (folder / "benchmark.json").read_text()
    (folder / "benchmark.json").unlink()
    (folder / "images.npy").unlink()  # this process has it mapped
    (folder / "images.npy").write_bytes(b"half")
    dacr.scenario("idigits_mini", "ncd")
    assert (folder / "benchmark.json").read_text() == digest


UNGUARDED = """
from pathlib import Path
from dacr.config import Data
from dacr.scenarios.cache import _make_benchmark
from dacr.scenarios.composition import Composed, compose

found = compose("idigits_mini", "nd")
folder = {"path": str(Path("pets").absolute()), "test_fraction": 0.5, "broken": "refuse"}
data = dict(benchmark="pets", sources=["folder"], source_options={"folder": folder}, classes=2)
data = Data(**data, domains=["photo"], image_size=8)
_make_benchmark(Composed(data=data, schedule=found.schedule), Path("made").absolute())
print("once")
"""


def test_a_script_without_a_guard_builds_encoded_images(tmp_path: Path) -> None:
    """The build decodes images in processes that import the main module: never the user's."""
    for name in ("cat", "dog"):
        folder = tmp_path / "pets/photo" / name
        folder.mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (9, 9), (number, 0, 0)).save(folder / f"{number}.png")
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=here(DACR_HOME=str(tmp_path / "home")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["once"], done.stderr
    assert len(Benchmark.open(tmp_path / "made/benchmark").index) == 8
    assert not list(tmp_path.glob(".dacr"))  # nothing is left where the script ran


def here(**settings: str) -> dict[str, str]:
    """The environment of a process that finds the same packages as this one."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | settings


def test_a_mirror_is_used_and_told_apart_from_the_published_data(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for name in ("mnist", "svhn", "mnist_m", "usps"):
        arrays = {}
        for part, count in (("train", 30), ("test", 20)):
            arrays[f"{part}_x"] = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
            arrays[f"{part}_y"] = np.arange(count) % 10
        np.savez(mirror / f"{name}.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DACR_MIRROR", "mirror")  # relative to where the user is
    opened = dacr.scenario("idigits_cpu", "nd")
    assert [len(session.train()) for session in opened] == [30] * 4
    assert built(compose("idigits_cpu", "nd"))
    monkeypatch.delenv("DACR_MIRROR")
    assert built(compose("idigits_cpu", "nd")) is None


# -- a project's data -------------------------------------------------------------------------


@pytest.fixture
def project(ncd: Scenario, tmp_path: Path) -> Path:
    """A project whose pipeline has run as far as the tables."""
    shutil.copytree(ncd.folder, tmp_path / "data" / "split")
    shutil.copytree(ncd.folder.parent / "benchmark", tmp_path / "data" / "benchmark")
    return tmp_path


@pytest.mark.parametrize("place", [".", "data", "data/split"])
def test_the_tables_of_a_project_are_a_scenario(project: Path, ncd: Scenario, place: str) -> None:
    opened = dacr.scenario(project / place)
    assert opened.benchmark == "idigits_mini"
    for own, expected in zip(opened, ncd, strict=True):
        assert np.array_equal(own.train().ids, expected.train().ids)
        assert np.array_equal(own.test().ids, expected.test().ids)


def test_tables_of_another_benchmark_are_refused(project: Path) -> None:
    file = project / "data/split/session-01.csv"
    table = pd.read_csv(file, dtype=str)
    table["pixels"] = "0" * 16
    table.to_csv(file, index=False)
    with pytest.raises(UserError, match="lists other images than the benchmark beside it"):
        dacr.scenario(project)[0].train()


def test_a_missing_table_is_told_at_once(project: Path) -> None:
    (project / "data/split/session-07.csv").unlink()
    with pytest.raises(UserError, match=r"session-07\.csv is missing; run `dvc repro split`"):
        dacr.scenario(project)


# -- bad input --------------------------------------------------------------------------------

WRONG: list[tuple[tuple[str, ...], Settings, str]] = [
    (("nothing", "nd"), {}, "there is no benchmark 'nothing'; known are cifar100, icifar20"),
    (("idigits_mini", "abc"), {}, "there is no split 'abc'; known are .*nc, ncd, nd"),
    (("idigits", "nd3"), {}, "idigits has no split nd3: .* whose sum is 4"),
    (("idigits",), {}, "name a split of idigits, too: .*nc, ncd, nd"),
    (("no/such/folder",), {}, "no/such/folder is no folder, and no benchmark either"),
    (("idigits", "nd"), {"seed": -1}, "schedule.seed: input should be greater than or equal to 0"),
    (("idigits", "nd"), {"validation": 1.5}, "data.validation: input should be less than 1"),
    (("idigits", "nd"), {"per_pair": 0}, "data.per_pair.*: input should be greater than 0"),
]


@pytest.mark.parametrize(("names", "settings", "told"), WRONG)
def test_bad_input_is_one_line_before_any_download(
    home: Path, names: tuple[str, ...], settings: Settings, told: str
) -> None:
    with pytest.raises(UserError, match=told) as caught:
        dacr.scenario(*names, **settings)
    assert "\n" not in str(caught.value)
    assert not (home / "raw" / "published" / "mnist").exists()


def test_a_source_that_only_a_mirror_has_is_missed_before_others_are_fetched(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = published_sources()["usps"].model_copy(update={"releases": ()})
    monkeypatch.setattr(making, "get_source", lambda *_: Usps(published))
    data = compose("idigits_cpu", "nd").data
    with pytest.raises(UserError, match=r"no public address; put usps\.npz in a folder and name"):
        making.make(data, 0, home, tmp_path / "out")


def test_a_folder_without_tables_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no schedule\.csv; name the folder data/split"):
        dacr.scenario(tmp_path)
    with pytest.raises(UserError, match="seed, per_pair and validation are of a named benchmark"):
        dacr.scenario(tmp_path, seed=1)


def test_an_installation_without_its_data_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PACKAGE", tmp_path / "dacr")
    with pytest.raises(UserError, match="this installation of dacr has no conf; install a wheel"):
        dacr.scenario("idigits_mini", "nd")


def test_a_home_that_is_a_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(places.HOME, str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"DACR_HOME is .*file, which is a file; name a folder"):
        dacr.scenario("idigits_mini", "nd")


# -- names ------------------------------------------------------------------------------------


def test_import_dacr_is_cheap() -> None:
    code = "import dacr, sys; print('torch' in sys.modules, 'pandas' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], env=here(), capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = dacr.nothing  # type: ignore[attr-defined]


def test_the_catalogue_has_the_papers_numbers_of_sessions() -> None:
    sessions = {offer.composed.data.benchmark: offer.sessions for offer in offers()}
    assert {name: sessions["idigits"][name] for name in ("nc", "nd", "ncd")} == {
        "nc": 5, "nd": 4, "ncd": 10,
    }  # fmt: skip
    assert sessions["icifar20"]["nd3"] == 3
    assert "nd3" not in sessions["idomainnet"]


def test_downloads_are_counted_once() -> None:
    cifar, domainnet = (compose(name, "nd").data for name in ("icifar20", "idomainnet"))
    assert download_size(cifar) == 169_001_437
    assert 18.4e9 < (download_size(domainnet) or 0) < 18.5e9  # docs/data.md
    assert download_size(compose("idigits_mini", "nd").data) == 0
    assert (download_size(compose("idigits_cpu", "nd").data) or 0) > 250e6


def test_the_composition_is_that_of_hydra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every benchmark and every split, as ``dvc exp run -S`` composes them."""
    pytest.importorskip("dvc", reason="the pipeline is not installed")
    root = conf_folder().parent
    if not (root / "params.yaml").is_file():
        pytest.skip("not in a clone of the project")
    from dacr.config import load_params
    from dacr.runtime.compose import compose as by_hydra

    monkeypatch.chdir(root)
    pairs = [*((own, "ncd") for own in benchmarks()), *(("icifar20", own) for own in splits())]
    for benchmark, split in pairs:
        by_hydra([f"benchmark={benchmark}", f"split={split}"], tmp_path / "params.yaml")
        expected, found = load_params(tmp_path / "params.yaml"), compose(benchmark, split)
        assert found.data == expected.data
        assert found.schedule == expected.schedule


def test_committed_schedules_are_those_of_the_rules() -> None:
    for file in schedules_folder().glob("*.csv"):
        benchmark, _, split = file.stem.rpartition("_")
        committed = Choice(benchmark, split)
        ruled = Choice(benchmark, split, seed=1993)
        composed = ruled.composed()
        pd.testing.assert_frame_equal(committed.schedule(composed), ruled.schedule(composed))


# -- the command ------------------------------------------------------------------------------


def test_list_names_every_benchmark(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("list")
    said = capsys.readouterr().out
    assert all(name in said for name in benchmarks())
    assert "169 MB" in said


def test_show_draws_without_data(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("show", "idomainnet", "ncd")
    said = capsys.readouterr().out
    assert "10 sessions, 600 class-domain pairs of 100 classes and 6 domains" in said
    assert "6 sketch" in said
    assert not list(home.glob("idomainnet*"))


def test_show_draws_the_tables_of_a_project(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("show", str(project))
    assert "idigits_mini, " in capsys.readouterr().out
    with pytest.raises(UserError, match="--seed is for a named benchmark"):
        command("show", str(project), "--seed", "1")


def test_export_to_csv_names_every_image(ncd: Scenario, tmp_path: Path) -> None:
    command("export", "idigits_mini", "ncd", "--to", "csv", "--out", str(tmp_path / "out"))
    rows = pd.read_csv(tmp_path / "out/images.csv", dtype={"pixels": str})
    for session in ncd:
        own = rows[rows["session"] == session.index]
        assert own.loc[own["part"] == "train", "id"].tolist() == session.train().ids.tolist()
        assert own.loc[own["part"] == "test", "id"].tolist() == session.test().ids.tolist()
    source = ncd.table.set_index("id")["source_id"]
    assert rows["source_id"].tolist() == source[rows["id"]].tolist()
    assert (tmp_path / "out/schedule.csv").read_bytes() == (
        ncd.folder / "schedule.csv"
    ).read_bytes()


READ_STREAM = """
import sys
sys.modules["dacr"] = None  # as where dacr is not installed
from stream import Images, load
stream = load(".")
for part in ("train", "test", "seen"):
    for rows in stream[part]:
        images = Images(stream, rows)
        assert len(images) == len(images.ids)
        print(part, sum(images.ids), sum(images.targets), sum(images.domains), sep=",")
image, label = Images(stream, stream["train"][9])[5]
print((image * 255).round().int().sum().item(), label)
"""


def test_an_export_to_torch_is_read_without_dacr(ncd: Scenario, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(ncd, "torch", out, domains=True)
    done = subprocess.run(
        [sys.executable, "-c", READ_STREAM], cwd=out, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = []
    for part, images_of in (
        ("train", lambda session: session.train(domains=True)),
        ("test", lambda session: session.test(seen=False, domains=True)),
        ("seen", lambda session: session.test(domains=True)),
    ):
        for session in ncd:
            images = images_of(session)
            sums = (images.ids.sum(), images.labels.sum(), images.domains.sum())
            expected.append(",".join([part, *map(str, sums)]))
    image, label = ncd[9].train()[5]
    expected.append(f"{int((image * 255).round().sum())} {label}")
    assert done.stdout.splitlines() == expected


def test_an_export_without_domains_has_none(ncd: Scenario, tmp_path: Path) -> None:
    export(ncd, "torch", tmp_path / "out")
    content = torch.load(tmp_path / "out/stream.pt", weights_only=True)
    assert "domains" not in content


def test_an_export_overwrites_nothing(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="exists and is not empty; name another folder"):
        command("export", "icifar20", "nd", "--to", "csv", "--out", str(tmp_path))
    assert not list(home.glob("icifar20*"))


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_an_export_that_is_cut_short_leaves_nothing(
    ncd: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: bool,
    error: BaseException,
) -> None:
    """What is half written would look like an export, and refuse the same command afterwards."""
    out = tmp_path / "deep/out"
    if there:
        out.mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", Mock(side_effect=error))
        with pytest.raises((KeyboardInterrupt, UserError)):
            export(ncd, "torch", out)
    assert not list(tmp_path.rglob("*.*"))
    export(ncd, "torch", out)
    assert sorted(file.name for file in out.iterdir()) == ["images.npy", "stream.pt", "stream.py"]
    assert [place.name for place in out.parent.iterdir()] == ["out"]


def test_an_export_maps_no_file_that_it_writes(ncd: Scenario, tmp_path: Path) -> None:
    """Whoever writes to a mapped file on a full disk is ended by SIGBUS, without a word."""
    with patch.object(np.lib.format, "open_memmap", side_effect=AssertionError):
        export(ncd, "torch", tmp_path / "out")
    images = np.load(tmp_path / "out/images.npy")
    assert images.dtype == np.uint8
    assert images.shape[1:] == ncd.pixels.shape[1:]


@pytest.mark.parametrize("peer", ["avalanche", "continuum"])
def test_an_export_to_what_is_not_installed_is_one_line(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    monkeypatch.setattr("dacr.scenarios.exports.writing.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"{peer} is not installed; `pip install 'dacr\[peers\]'`"):
        command("export", "icifar20", "nd", "--to", peer, "--out", str(tmp_path / "out"))
    assert not list(home.glob("icifar20*"))


def test_the_carried_sources_are_used(home: Path) -> None:
    """The addresses come from where this installation has conf/."""
    from dacr.data.sources import upstream
    from dacr.scenarios.catalogue import use_carried_sources

    use_carried_sources()
    assert upstream.TABLE.is_file()
    assert get_source("cifar100").name == "cifar100"
