"""How long a table takes on a device, and how experiments share GPUs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from dacr.__main__ import main
from dacr.cli.paper import _needs
from dacr.errors import UserError
from dacr.experiments import engine
from dacr.experiments.devices import device_called, read_measured, write_measured
from dacr.experiments.plan import Choice, Experiment, Task, cells, on_device, tasks
from dacr.experiments.ray_engine import slots
from dacr.experiments.records import Store
from dacr.experiments.tables import Needs, Paper
from dacr.report.table_terminal import show_plan, summary
from tests.earlier_work import SPLITS, cell, counted
from tests.paper_records import record_of

MINI = "idigits_mini"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def planned(paper: Paper, benchmark: str, store: Store, *methods: str) -> list[Task]:
    choice = Choice(methods=methods, splits=["nc"], seeds=[1, 2])
    table = paper.table("main")
    return tasks(table, cells(paper, table, benchmark, choice), store)


# -- devices ----------------------------------------------------------------------------------


def test_counted_work_gives_every_experiment_a_time(paper: Paper, store: Store) -> None:
    before = planned(paper, "icifar20", store, "replay", "der_dacr")
    assert all(task.seconds is None for task in before)
    found = {}
    for name in ("a100", "t4"):
        after = on_device(before, device_called(name, paper), store)
        assert [task.experiment for task in after] == [task.experiment for task in before]
        found[name] = {task.experiment.name: task.seconds for task in after}
        replay, ours = after[:2]
        assert replay.work is not None
        assert ours.work is not None
        assert ours.work.flops > replay.work.flops > 1e16
        assert 0.5e9 < replay.work.memory < ours.work.memory < 4e9
        assert ours.work.disk == replay.work.disk == pytest.approx(6 * 44.8e6, rel=0.01)
        assert after[2].seconds == replay.seconds  # seeds do the same work
    assert found["t4"] == pytest.approx({n: 6 * s for n, s in found["a100"].items() if s})


def test_overrides_count(paper: Paper, store: Store) -> None:
    short = Experiment("icifar20", "nc", "replay", 1, (("train.epochs", "20"),))
    full = Experiment("icifar20", "nc", "replay", 1, ())
    device = device_called("a100", paper)
    both = on_device([Task(own, None, False, None, None) for own in (short, full)], device, store)
    few, all_of_them = (task.work.flops for task in both if task.work)
    assert few == pytest.approx(all_of_them / 10, rel=0.03)  # predictions stay


def test_the_plan_on_a_device_is_readable(paper: Paper, store: Store) -> None:
    device = device_called("a100", paper)
    found = on_device(planned(paper, "icifar20", store, "replay"), device, store)
    console = Console(record=True, width=90)
    show_plan(found, None, 3, console, device)
    text = console.export_text()
    assert "PFLOP" in text
    assert "–" not in text
    words = " ".join(text.split())
    assert "77.5 PFLOP, about 86 min on one A100, at an assumed rate" in words
    assert "of 40 GB of its memory per experiment" in words
    assert "GB of disk for the models." in words
    assert "earlier" not in words


def test_without_a_device_the_plan_says_how_to_ask(paper: Paper, store: Store) -> None:
    assert summary(planned(paper, "icifar20", store, "replay"), None, 1).endswith(
        "--device counts it."
    )


def test_images_are_those_of_an_earlier_experiment(
    paper: Paper, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded benchmark has no published counts, and here it is not built."""
    monkeypatch.setattr("dacr.experiments.work.BENCHMARK", tmp_path)
    waiting = planned(paper, MINI, store, "replay")
    device = device_called("a100", paper)
    with pytest.raises(UserError, match=f"^nobody knows how many images {MINI} has; `dvc exp run"):
        on_device(waiting, device, store)
    store.add(record_of(Experiment(MINI, "nd", "der", 1, ())))
    (one, _) = on_device(waiting, device, store)
    assert one.work is not None
    flops = one.work.flops
    twice = {"counts": {"train": 19200, "test": 4800}}
    store.add(record_of(Experiment(MINI, "nd", "der", 1, ()), data=twice, started="2027"))
    (one, _) = on_device(waiting, device, store)
    assert one.work is not None
    assert 1.9 * flops < one.work.flops < 2.1 * flops


def test_what_was_measured_here_is_a_device_too(paper: Paper, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"device.json is missing or damaged; `dacr doctor`"):
        device_called("here", paper)
    write_measured("a card", {"resnet32": 3e12}, 24.0)
    found = device_called("here", paper)
    assert found.rate("resnet32", "tf32") == 3e12
    assert found.words == "a card, at the rate that `dacr doctor` measured"
    with pytest.raises(UserError, match="measured resnet32 here, not resnet8; name another"):
        found.rate("resnet8", "tf32")
    (tmp_path / ".dacr/device.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        read_measured()


def test_a_precision_that_a_device_has_not_is_one_line(paper: Paper) -> None:
    assert device_called("a100", paper).rate("resnet32", "tf32") == 15e12 * 0.25
    with pytest.raises(UserError, match=r"^t4 has no bf16; train.precision may be fp32, tf32$"):
        device_called("t4", paper).rate("resnet18_32", "bf16")


def test_an_unknown_device_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "plan", "purity", "--benchmark", "icifar20", "--device", "abacus"
    monkeypatch.setattr(sys, "argv", ["dacr", "paper", *words])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err
    known = "a100, v100, rtx3090, rtx4090, t4, here"
    assert told == f"dacr: unknown device 'abacus'; choose from {known}\n"


def test_the_page_has_the_counted_work() -> None:
    """One row of it; ``python -m tests.earlier_work --check`` compares all."""
    page = Path("docs/gpu.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| DER w/ ours |"))
    found = [counted(Experiment("icifar20", split, "der_dacr", 1993, ())) for split in SPLITS]
    assert row.split(" | ")[2] == cell(found)


# -- sharing GPUs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "gpus", "expected"),
    [(3, 1, "000"), (5, 2, "01010"), (2, 4, "01"), (4, 4, "0123")],
)
def test_jobs_are_spread_evenly_over_gpus(
    jobs: int, gpus: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "DACR_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(engine, "gpus_here", lambda: [str(n) for n in range(gpus)])
    found = [engine.gpu(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(jobs)]
    assert "".join(found) == expected
    each = Counter(found).values()
    assert max(each) - min(each) <= 1


def test_jobs_are_spread_over_the_gpus_that_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DACR_DEVICE", raising=False)
    monkeypatch.setattr(engine, "gpus_here", lambda: ["0", "1", "2", "3"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-ab")
    found = [engine.gpu(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(3)]
    assert found == ["2", "GPU-ab", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert engine.gpu(0) == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("DACR_DEVICE", "cpu")
    assert engine.gpu(0) == {}


def test_no_gpu_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(engine, "gpus_here", list)
    assert engine.gpu(2) == {}


@pytest.mark.parametrize("each", range(1, 33))
def test_so_many_tasks_of_ray_fit_on_a_gpu(each: int) -> None:
    needs = Needs(cpus=0.1, gpus=0, retries=0).sharing(each)
    node = {"Alive": True, "Resources": {"CPU": 64.0, "GPU": 2.0}}
    assert slots([node], needs) == 2 * each
    assert round(needs.gpus * 10_000) * each <= 10_000, "Ray counts in ten-thousandths"


def test_jobs_per_gpu_become_a_share_of_one(paper: Paper) -> None:
    assert _needs(paper, Namespace(engine="ray", jobs_per_gpu=None)) == paper.ray
    assert _needs(paper, Namespace(engine="ray", jobs_per_gpu=4)).gpus == 0.25


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--engine ray --jobs-per-gpu 0", "--jobs-per-gpu 0: at least one experiment on a GPU"),
        ("--jobs-per-gpu 3", "--jobs-per-gpu is for --engine ray; here --jobs are spread over"),
    ],
)
def test_wrong_jobs_per_gpu_are_one_line(
    words: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dacr", "paper", "run", "purity", *words.split()])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err
    assert told.startswith(f"dacr: {line}")
    assert len(told.splitlines()) == 1


def test_measured_rates_are_text_that_survives(tmp_path: Path) -> None:
    file = write_measured("a card", {"resnet32": 3e12}, None)
    assert json.loads(file.read_text())["rates"] == {"resnet32": 3e12}
    assert read_measured().memory is None
