"""What others see of a training while it runs, and that it leaves no trace in the run."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from dacr.errors import UserError
from dacr.runtime.live import Live, live
from dacr.runtime.progress import TrainingProgress
from tests.warm import warm_path


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_STAGE", "learn@01")
    for name in ("DACR_LIVE", "DACR_TENSORBOARD"):
        monkeypatch.delenv(name, raising=False)
    Path("params.yaml").write_text("seed: 1")
    return tmp_path


def trained(session: int, *epochs: tuple[str, int, float]) -> Live:
    own = Live(session, 4)
    for phase, epoch, loss in epochs:
        own.epoch(phase, epoch, 3, {"inter": loss}, 100.0)
    return own


def curve(term: str = "inter") -> list[tuple[int, float]]:
    with open(f"dvclive/plots/metrics/loss/{term}.tsv") as file:
        return [
            (int(row["step"]), float(row[term])) for row in csv.DictReader(file, delimiter="\t")
        ]


def test_an_epoch_is_seen_at_once() -> None:
    progress = TrainingProgress(2, 4)
    progress.plan(100)
    progress.epoch("train", 1, 3, {"inter": 0.5, "reg": -0.1})
    told = json.loads(Path("dvclive/metrics.json").read_text())
    assert {k: told[k] for k in ("session", "sessions", "phase", "epoch", "epochs", "step")} == {
        "session": 2, "sessions": 4, "phase": "train", "epoch": 1, "epochs": 3, "step": 1,
    }  # fmt: skip
    assert told["loss"] == {"inter": 0.5, "reg": -0.1}
    assert Path("dvclive/dvc.yaml").exists()
    progress.close()
    assert not Path("dvclive/dvc.yaml").exists()


def test_curves_go_on_over_sessions_and_phases() -> None:
    trained(1, ("train", 1, 3.0), ("train", 2, 2.0), ("second", 1, 1.0))
    trained(2, ("train", 1, 4.0))
    assert curve() == [(1, 3.0), (2, 2.0), (3, 1.0), (4, 4.0)]


def test_a_resumed_training_replaces_what_it_does_again() -> None:
    """Killed after the third epoch, its last checkpoint was after the first."""
    trained(1, ("train", 1, 3.0), ("train", 2, 2.0), ("train", 3, 1.0))
    trained(1, ("train", 2, 2.5))
    assert curve() == [(1, 3.0), (2, 2.5)]
    trained(1, ("train", 1, 9.0))  # from the beginning
    assert curve() == [(1, 9.0)]


def test_other_parameters_are_another_run() -> None:
    trained(1, ("train", 1, 3.0))
    Path("params.yaml").write_text("seed: 2")
    trained(2, ("train", 1, 4.0))
    assert curve() == [(1, 4.0)]


def test_a_damaged_file_is_begun_anew() -> None:
    trained(1, ("train", 1, 3.0))
    Path("dvclive/rows.json").write_text("{")
    trained(2, ("train", 1, 4.0))
    assert curve() == [(1, 4.0)]


@pytest.mark.parametrize(
    ("name", "value"), [("DVC_STAGE", ""), ("DVC_STAGE", "evaluate"), ("DACR_LIVE", "0")]
)
def test_nothing_is_written_elsewhere(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    progress = TrainingProgress(1, 4)
    progress.epoch("train", 1, 3, {"inter": 0.5})
    progress.close()
    assert not Path("dvclive").exists()


def test_a_folder_that_cannot_be_written_stops_no_training() -> None:
    Path("dvclive").write_text("a file")
    trained(1, ("train", 1, 3.0)).close()


def test_without_tensorboard_it_is_one_line_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DACR_TENSORBOARD", "events")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="tensorboard is not installed"):
        live(1, 4)


def test_tensorboard_has_the_same_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("DACR_TENSORBOARD", "events")
    trained(1, ("train", 1, 3.0), ("train", 2, 2.0)).close()
    events = EventAccumulator("events")
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("loss/inter")]
    assert found == curve() == [(1, 3.0), (2, 2.0)]


def installed(package: str) -> bool:
    """A folder of this name, which a training leaves, is no package."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def test_dvclive_reads_its_own_layout() -> None:
    if not installed("dvclive"):
        pytest.skip("dvclive is not installed")
    import dvclive

    trained(1, ("train", 1, 3.0), ("train", 2, 2.0))
    theirs = dvclive.Live(resume=True, save_dvc_exp=False, dvcyaml=None)
    assert theirs.step == 3
    theirs.log_metric("loss/inter", 1.5)
    theirs.next_step()
    assert curve() == [(1, 3.0), (2, 2.0), (3, 1.5)]


def test_dvc_shows_a_training_that_runs(project: Path) -> None:
    """And git has nothing to say once the session has ended."""
    ignored = (Path(__file__).parents[1] / ".gitignore").read_text(encoding="utf-8")
    Path(".gitignore").write_text(ignored)

    def run(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    dvc = (f"{warm_path()}/dvc",)
    run("git", "init", "-q")
    run(*dvc, "init", "-q")
    run("git", "add", "-A")
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "start")
    own = trained(1, ("train", 1, 3.0))
    shown = json.loads(run(*dvc, "exp", "show", "--json"))
    metrics = next(e for e in shown if e["rev"] == "workspace")["data"]["metrics"]
    assert metrics["dvclive/metrics.json"]["data"]["loss"] == {"inter": 3.0}
    assert "inter.tsv" in run(*dvc, "plots", "show", "--json")
    own.close()
    assert run("git", "status", "--short") == ""
    shown = json.loads(run(*dvc, "exp", "show", "--json"))
    assert not any("dvclive" in str(entry) for entry in shown)
