"""``dacr verify`` on a real run, broken in every way that a run can break."""

import json
import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import yaml

from dacr.errors import UserError
from dacr.experiments import verification
from tests.tiny_project import commit, make_project, make_repository, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "project"
    make_project(folder)
    return folder


@pytest.fixture
def project(finished, tmp_path):
    """A copy that a test may break; times stay, so that DVC's own records still hold."""
    shutil.copytree(finished, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def verify(folder, ok):
    """What is wrong and what is right, line by line; in this process, which has torch loaded."""
    with chdir(folder):
        report = verification.verify()
    assert report.ok == ok, report.lines
    faults = [f"{subject} {text}" for subject, text, fault in report.lines if fault]
    good = [f"{subject} {text}" for subject, text, fault in report.lines if not fault]
    return faults, good


def test_the_command_says_it_and_its_exit_code_too(project):
    output = run(project, "python", "-m", "dacr", "verify")
    assert output.splitlines()[-1] == "verified"
    (project / "runs/01/state/memory.csv").unlink()
    output = run(project, "python", "-m", "dacr", "verify", ok=False)
    assert output.splitlines()[-1] == "NOT verified: 1 fault"
    (line,) = (line for line in output.splitlines() if line.startswith("FAULT"))
    assert "runs/01/state/memory.csv of consolidate@01 is missing" in line


def silently(path: Path, content: bytes) -> None:
    """Other bytes in a file that keeps its time, as a failing disk would have it."""
    times = path.stat()
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    silently(path, bytes(content))


def test_a_whole_run_is_the_committed_one(project):
    faults, good = verify(project, ok=True)
    assert faults == []
    subjects = [line.split()[0] for line in good]
    assert subjects == ["run", "code", "workspace", "cache", "chain", "metrics", "reference"]
    assert "16 of 16 stages" in good[0]
    assert "equal to the committed run" in good[-1]


def test_a_run_that_was_never_made(tmp_path):
    make_repository(tmp_path / "new")
    (tmp_path / "new/params.yaml").write_bytes(Path("params.yaml").read_bytes())
    commit(tmp_path / "new", "start")
    faults, _ = verify(tmp_path / "new", ok=False)
    assert len(faults) == 1
    assert "never made" in faults[0]


def test_half_a_run_names_the_first_stage_that_is_missing(project):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for name in ("consolidate@02", "evaluate", "measure", "budget", "report"):
        del lock["stages"][name]
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    faults, good = verify(project, ok=False)
    assert "11 of 16 stages are recorded, consolidate@02 is not" in faults[0]
    assert not any(line.startswith("metrics") for line in good), "nothing to derive them from"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("runs/01/learned/extractors/01.safetensors", "of learn@01 is not what the run made"),
        ("runs/02/results/predictions.parquet", "of consolidate@02 is not what the run made"),
        ("data/benchmark/images.npy", "of build is not what the run made"),
        ("reports/plots/confusion.csv", "of evaluate is not what the run made; `git restore"),
        ("reports/measures.json", "of measure is not what the run made; `git restore"),
    ],
)
def test_one_bit_that_dvc_does_not_see_is_named(project, file, said):
    flip(project / file)
    faults, _ = verify(project, ok=False)
    assert any(said in line and file in line for line in faults), faults


def test_files_that_are_missing_or_do_not_belong_are_named(project):
    (project / "runs/01/learned/losses.json").unlink()
    (project / "runs/01/results/more.csv").write_text("id\n")
    faults, _ = verify(project, ok=False)
    assert any("runs/01/learned/losses.json of learn@01 is missing" in line for line in faults)
    stray = "runs/01/results/more.csv of consolidate@01 does not belong"
    assert any(stray in line for line in faults)


def test_a_damaged_cache_is_named_while_the_workspace_is_whole(project):
    lock = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    cache = project / ".dvc/cache/files/md5"
    (out,) = (o for o in lock["consolidate@01"]["outs"] if o["path"] == "runs/01/state")
    listed = json.loads((cache / out["md5"][:2] / out["md5"][2:]).read_text())
    (file,) = (row["md5"] for row in listed if row["relpath"] == "memory.csv")
    flip(cache / file[:2] / file[2:])
    faults, good = verify(project, ok=False)
    assert len(faults) == 1
    assert "runs/01/state/memory.csv of consolidate@01 is damaged in the cache" in faults[0]
    assert any(line.startswith("workspace") for line in good)


def test_metrics_that_do_not_follow_from_the_predictions(project):
    """Someone improved a number and recorded it: every hash is right, and still it is false."""
    path = project / "reports/metrics.json"
    metrics = json.loads(path.read_text())
    metrics["final_accuracy"] = 99.9
    path.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    run(project, "dvc", "commit", "-f", "-q")
    commit(project, "a better number")
    faults, _ = verify(project, ok=False)
    assert any("reports/metrics.json does not follow from the predictions" in f for f in faults)


def test_changed_parameters_and_code_are_named(project):
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["train"]["lr"] = 0.06
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    code = project / "dacr/evaluation/metrics.py"
    code.write_text(code.read_text() + "\nANOTHER = 1\n")
    faults, _ = verify(project, ok=False)
    assert any("params.yaml changed since the run (train.lr)" in line for line in faults)
    assert any("dacr/evaluation/metrics.py changed since the run" in line for line in faults)


def test_a_comment_makes_no_other_run(project):
    code = project / "dacr/evaluation/metrics.py"
    code.write_text(code.read_text() + "\n# another line\n")
    faults, _ = verify(project, ok=True)
    assert faults == []
    code.unlink()
    faults, _ = verify(project, ok=False)
    assert any("dacr/evaluation/metrics.py is missing" in line for line in faults)


def rewrite_lock(project, change):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    change(lock["stages"])
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


def test_the_first_difference_to_the_committed_run_is_named(project):
    """The committed run is made another one, as if it came from another machine."""

    def elsewhere(stages):
        for name in ("consolidate@01", "learn@02", "consolidate@02"):
            for out in stages[name]["outs"]:
                out["md5"] = "0" * 32 + (".dir" if out["md5"].endswith(".dir") else "")

    ours = (project / "dvc.lock").read_text()
    metrics = (project / "reports/metrics.json").read_text()
    rewrite_lock(project, elsewhere)
    theirs = json.loads(metrics)
    theirs["accuracy_by_session"][1] = 12.5
    (project / "reports/metrics.json").write_text(json.dumps(theirs))
    commit(project, "from elsewhere")
    (project / "dvc.lock").write_text(ours)
    (project / "reports/metrics.json").write_text(metrics)
    faults, _ = verify(project, ok=False)
    assert len(faults) == 1
    assert "first differs in consolidate@01 (session 1): the same inputs gave another" in faults[0]
    assert "accuracy from session 2 on" in faults[0]
    assert "instead of 12.5" in faults[0]


def test_a_damaged_lock_is_one_line(project):
    (project / "dvc.lock").write_text("schema: '2.0'\nstages: [")
    with chdir(project), pytest.raises(UserError, match=r"dvc\.lock|dvc\.yaml"):
        verification.verify()
