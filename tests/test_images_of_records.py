"""Results on different images of one benchmark are never taken for one another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.serialize import dumps_yaml
from rich.console import Console

from dacr.experiments import plan
from dacr.experiments.images import (
    DIGEST,
    SUMMARY,
    Built,
    Images,
    TodaysImages,
    built_here,
    facts_of,
    images_digest,
    measured_on,
    unlimited,
)
from dacr.experiments.plan import Choice, Experiment, cells, composed, tasks, to_run
from dacr.experiments.records import Record, Store, read_results
from dacr.experiments.results import commit_results, results_of
from dacr.experiments.tables import Paper
from dacr.report.table_terminal import show_plan, show_results
from dacr.runtime.hashes import file_md5
from tests.paper_records import record_of

MINI = "idigits_mini"
MIRROR, PUBLIC = {"mnist": "mirror sample"}, {"mnist": "fixed sample"}


def on(
    experiment: Experiment,
    images: str | None,
    started: str = "2026-01-01",
    origins: dict[str, str] | None = None,
    **setting: Any,
) -> Record:
    """A record of an experiment on images of this digest."""
    own = record_of(experiment, code=experiment.code, started=started)
    data = own.data | {"origins": origins or {}} | ({DIGEST: images} if images else {})
    return own.model_copy(update={"data": data, "setting": own.setting | setting})


def experiment(seed: int, method: str = "der", *overrides: tuple[str, str]) -> Experiment:
    return Experiment(MINI, "nd", method, seed, overrides)


# -- the digest -------------------------------------------------------------------------------


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "name": MINI,
        "classes": ["0"],
        "domains": ["pen"],
        "image_size": 32,
        "counts": {"train": 8, "test": 2, "pairs": []},
        "origins": {"mnist": {"kind": "sample", "files": {"a.npz": {"sha256": "12"}}}},
        "pixels_sha256": "ab",
    } | changes


def test_other_pixels_are_other_images() -> None:
    origin = {"mnist": {"kind": "sample", "files": {"a.npz": {"sha256": "34"}}}}
    assert images_digest(summary(), False) != images_digest(summary(pixels_sha256="cd"), False)
    assert images_digest(summary(), False) == images_digest(summary(origins=origin), False)


def test_where_the_seed_chooses_images_their_files_tell() -> None:
    """Every seed has other pixels there, and they are no other images."""
    origin = {"mnist": {"kind": "sample", "files": {"a.npz": {"sha256": "34"}}}}
    assert images_digest(summary(), True) == images_digest(summary(pixels_sha256="cd"), True)
    assert images_digest(summary(), True) != images_digest(summary(origins=origin), True)


def test_a_benchmark_from_before_digests_has_none() -> None:
    old = {key: value for key, value in summary().items() if key != "pixels_sha256"}
    assert DIGEST not in facts_of(old, False)
    assert facts_of(summary(), False)["origins"] == {"mnist": "sample"}


# -- which images count -----------------------------------------------------------------------


def test_the_images_of_the_last_record_count() -> None:
    old, new = on(experiment(1), "a", "2026-01-01"), on(experiment(2), "b", "2026-01-02")
    today = TodaysImages([new, old])
    assert [today.include(own) for own in (old, new)] == [False, True]


def test_records_without_a_digest_count_until_other_images_are_known() -> None:
    unknown = on(experiment(1), None)
    assert TodaysImages([unknown]).include(unknown)
    same = on(experiment(2), "a")
    assert TodaysImages([unknown, same]).include(unknown)
    other = on(experiment(3), "b", "2026-01-02")
    assert not TodaysImages([unknown, same, other]).include(unknown)  # of 'a' or of 'b'
    assert not TodaysImages([unknown, on(experiment(2), "a", origins=PUBLIC)]).include(unknown)


def test_other_data_are_no_other_mirror() -> None:
    """Fewer images by a parameter are another lot, in which every digest may be another."""
    whole, limited = on(experiment(1), "a"), on(experiment(1), "b", "2026-01-02", per_pair=10)
    chosen = on(experiment(1, "der", ("data.image_size", "16")), "c", "2026-01-03")
    today = TodaysImages([whole, limited, chosen])
    assert all(map(today.include, (whole, limited, chosen)))


def test_a_bound_is_of_the_same_images() -> None:
    assert measured_on(on(experiment(1), "a"), "a")
    assert measured_on(on(experiment(1), None), "a")
    assert not measured_on(on(experiment(1), "a"), "b")


# -- plan and show ----------------------------------------------------------------------------


def planned(paper: Paper, store: Store) -> list[plan.Task]:
    choice = Choice(methods=["der"], splits=["nd"], seeds=[1, 2])
    return tasks(paper.table("main"), cells(paper, paper.table("main"), MINI, choice), store)


def text_of(plan: list[plan.Task]) -> str:
    console = Console(record=True, width=200)
    show_plan(plan, None, 1, console)
    return console.export_text()


def test_what_was_measured_on_other_images_is_run_again(paper: Paper, store: Store) -> None:
    first, second = (task.experiment for task in planned(paper, store))
    store.add(on(first, "a", "2026-01-01"))
    assert [task.experiment for task in to_run(planned(paper, store), None)] == [second]
    store.add(on(second, "b", "2026-01-02"))
    again = planned(paper, store)
    assert [task.experiment for task in to_run(again, None)] == [first]
    assert "to run (at 01234567 it was measured on other images)" in text_of(again)
    assert "1 measured on other images than those of today: they do not count" in text_of(again)
    store.add(on(first, "b", "2026-01-03"))
    assert not to_run(planned(paper, store), None)
    assert "other images" not in text_of(planned(paper, store))


def test_the_benchmark_that_was_built_here_decides_what_is_there(
    paper: Paper, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = (task.experiment for task in planned(paper, store))
    record = on(first, "a")
    store.add(record)
    data = unlimited(composed(MINI, "nd", "der")["data"])
    facts = Images.of(record).facts
    for digest, own, runs in (("b", data, 2), ("a", data, 1), ("b", data | {"image_size": 1}, 1)):
        built = Built(MINI, Images((MINI, False), digest, facts), own)
        monkeypatch.setattr(plan, "built_here", lambda built=built: built)
        assert len(to_run(planned(paper, store), None)) == runs


def test_a_table_shows_one_set_of_images_and_keeps_the_others(
    paper: Paper, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = paper.table("main")
    first, second = (task.experiment for task in planned(paper, store))
    store.add(on(first, "a", "2026-01-01"))
    for folder in ("conf", "data"):
        (tmp_path / folder).symlink_to(Path(folder).resolve())
    monkeypatch.chdir(tmp_path)
    commit_results(results_of(paper, table, MINI, store))
    store.add(on(second, "b", "2026-01-02"))
    results = results_of(paper, table, MINI, store)
    assert [record.name for record in results.all_records] == [second.name]
    assert results.elsewhere == {first.name}
    console = Console(record=True, width=300)
    show_results(results, console)
    assert "1 experiment of this table was measured on other images" in console.export_text()
    commit_results(results)
    kept = read_results(tmp_path / f"reports/paper/main-{MINI}.json")
    assert {record.name for record in kept} == {first.name, second.name}


# -- the workspace ----------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose build DVC has recorded."""
    monkeypatch.chdir(tmp_path)
    path = Path(SUMMARY)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(summary()), encoding="utf-8")
    data = {"benchmark": MINI, "per_pair": None, "validation": 0.0, "image_size": 32}
    outs = [{"path": SUMMARY, "md5": file_md5(path)}]
    stage = {"params": {"params.yaml": {"data": data}}, "outs": outs}
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": {"build": stage}}), encoding="utf-8")
    return tmp_path


def test_the_benchmark_in_data_is_known_by_the_lock(workspace: Path) -> None:
    built = built_here()
    assert built is not None
    assert built.images.digest == images_digest(summary(), False)
    assert (built.name, built.data) == (MINI, {"benchmark": MINI, "image_size": 32})


def test_the_lock_is_read_as_dvc_wrote_it(workspace: Path) -> None:
    """DVC writes the name of a domain as a plain ``no``, which other readers take for false."""
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    lock["stages"]["build"]["params"]["params.yaml"]["data"]["domains"] = ["no"]
    Path("dvc.lock").write_text(dumps_yaml(lock))
    built = built_here()
    assert built is not None
    assert built.data["domains"] == ["no"]


@pytest.mark.parametrize("damage", ["lock", "summary", "edited", "broken"])
def test_a_benchmark_that_dvc_did_not_record_decides_nothing(workspace: Path, damage: str) -> None:
    match damage:
        case "lock":
            Path("dvc.lock").unlink()
        case "summary":
            Path(SUMMARY).unlink()
        case "edited":
            Path(SUMMARY).write_text(json.dumps(summary(pixels_sha256="cd")), encoding="utf-8")
        case _:
            Path("dvc.lock").write_text("stages: [1", encoding="utf-8")
    assert built_here() is None
