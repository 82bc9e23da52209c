"""A sweep as a user runs it: real clones, real DVC, a tiny table in a copy of the project."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dacr.errors import UserError
from dacr.experiments import engine as engines
from dacr.experiments.engine import LocalEngine, Project
from dacr.experiments.images import images_digest
from dacr.experiments.node import start_worker, stop
from dacr.experiments.plan import Experiment
from dacr.experiments.records import Store
from dacr.experiments.sweep import Ended, adopt, keep, only_sweep, sweep
from dacr.experiments.worker import BEGUN, Order, Outcome, error_line, free_clone
from dacr.runtime.git import git
from tests.paper_project import WIDE, run, tiny_project
from tests.paper_records import record_of
from tests.tiny_project import environment

GOOD, BAD = "tiny-one-replay-2a90e0-s1993", "tiny-one-replay-d73319-s1993"
SWEEP = ["python", "-m", "dacr", "paper"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def swept(project: Path) -> str:
    """Two experiments at a time, one of which cannot work."""
    return run(project, *SWEEP, "run", "sweep", "--benchmark", "tiny", "--jobs", "2", code=1)


def wait_for(what: Callable[[], bool], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_one_failure_does_not_stop_the_others(project: Path, swept: str) -> None:
    assert f"{GOOD}: average accuracy" in swept
    assert f"failed: {BAD}: params.yaml: memory.size" in swept.replace("\n", " ")
    assert swept.strip().splitlines()[-1] == (
        "dacr: 1 of 2 experiments failed; the same command runs only them"
    )
    assert "Traceback" not in swept


def test_its_results_stand_in_files(project: Path, swept: str) -> None:
    folder = project / "reports/paper"
    with (folder / "sweep-tiny.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["experiment"] for row in rows] == [GOOD]
    record = Store(project / ".dacr/paper", project / "nothing").find(GOOD, [])
    assert record is not None
    assert record.setting["threads"] == 1
    assert record.revision == run(project, "git", "rev-parse", "HEAD").strip()
    assert record.whole
    summary = next((project / ".dacr/paper/clones").glob("*/data/benchmark/benchmark.json"))
    content = json.loads(summary.read_text(encoding="utf-8"))
    assert record.data["images"] == images_digest(content, restricted=True)  # tiny is limited
    page = (folder / "sweep-tiny.html").read_text(encoding="utf-8")
    assert f"dvc exp apply {GOOD}" in page
    assert record.command in page


def test_an_experiment_comes_home(project: Path, swept: str) -> None:
    assert GOOD in run(project, "dvc", "exp", "list")
    assert BAD not in run(project, "dvc", "exp", "list")
    run(project, "dvc", "exp", "apply", GOOD)
    assert (project / "runs/01/results/predictions.parquet").exists()  # from the shared cache
    run(project, "git", "checkout", "--quiet", "--force", "HEAD")


def test_a_rerun_takes_only_what_failed(project: Path, swept: str) -> None:
    plan = run(project, *SWEEP, "plan", "sweep", "--benchmark", "tiny", "--jobs", "2")
    assert "1 of 2 experiments there, 1 to run" in plan
    assert "failed before" in " ".join(plan.split())


def test_a_fresh_clone_shows_the_committed_results(
    project: Path, swept: str, tmp_path: Path
) -> None:
    run(project, "git", "add", "reports/paper")
    run(project, "git", "commit", "--quiet", "--message", "results")
    clone = tmp_path / "clone"
    run(project, "git", "clone", "--quiet", str(project), str(clone))
    for folder in (project, clone):  # DVC's apply removes what git ignores, as the page
        run(folder, *SWEEP, "show", "sweep", "--benchmark", "tiny")
    name = "reports/paper/sweep-tiny.html"
    assert (clone / name).read_bytes() == (project / name).read_bytes()
    assert run(clone, "git", "status", "--porcelain") == ""
    plan = run(clone, *SWEEP, "plan", "sweep", "--benchmark", "tiny")
    assert "1 of 2 experiments there, 1 to run" in plan  # a commit of results changes no code


def test_what_is_not_committed_is_refused(project: Path) -> None:
    file = project / "dacr/model/scratch.py"
    file.write_text("")
    try:
        said = run(project, *SWEEP, "run", "sweep", "--benchmark", "tiny", code=1)
    finally:
        file.unlink()
    assert said.startswith("dacr: dacr/model/scratch.py is not committed, and experiments run at")
    assert len(said.strip().splitlines()) == 1


def test_wrong_words_are_one_line(project: Path) -> None:
    for words, answer in (
        (["run", "tabel"], "there is no table 'tabel'"),
        (["run", "sweep", "--benchmark", "mnist"], "unknown benchmark 'mnist'"),
        (["plan", "sweep", "--benchmark", "tiny", "--splits", "nd"], "unknown split 'nd'"),
        (["plan", "sweep", "--benchmark", "tiny", "--methods", "derr"], "unknown method 'derr'"),
        (["plan", "sweep", "--benchmark", "tiny", "--jobs", "0"], "--jobs 0"),
        (["plan", "sweep", "--benchmark", "tiny", "--methods", ","], "--methods names nothing"),
    ):
        said = run(project, *SWEEP, *words, code=1)
        assert said.startswith(f"dacr: {answer}")
        assert len(said.strip().splitlines()) == 1


def busy(project: Path) -> subprocess.Popen[str]:
    """A sweep in the middle of an experiment."""
    # Tests in the background of a shell inherit an ignored ^C, and would hand it on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [*SWEEP, "run", "long", "--benchmark", "tiny"]
    process = subprocess.Popen(
        command, cwd=project, env=environment(**WIDE), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    logs = project / ".dacr/paper/logs"
    wait_for(lambda: any("$ dvc" in f.read_text() for f in logs.glob("tiny-one-icarl-*.log")))
    wait_for(lambda: bool(children(project)))
    return process


def children(project: Path) -> list[int]:
    """Processes that work in a clone of the project."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            here = str((entry / "cwd").readlink())
        except OSError:
            continue
        if here.startswith(str(project / ".dacr/paper/clones")):
            found.append(int(entry.name))
    return found


def test_an_interrupt_stops_everything_and_says_how_to_go_on(project: Path) -> None:
    process = busy(project)
    refused = run(project, *SWEEP, "run", "long", "--benchmark", "tiny", code=1)
    assert refused.startswith(f"dacr: another sweep is running here (process {process.pid})")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert said.strip().splitlines()[-1].startswith("dacr: interrupted; run the same command again")
    assert "Traceback" not in said
    assert children(project) == []
    with only_sweep(project / ".dacr/paper"):
        pass  # the lock is free again


def test_a_killed_sweep_takes_its_workers_along(project: Path) -> None:
    process = busy(project)
    process.kill()
    process.communicate(timeout=300)
    wait_for(lambda: not children(project))
    wait_for(lambda: is_free(project / ".dacr/paper"))  # a process lets go of it when it is gone


def is_free(scratch: Path) -> bool:
    try:
        with only_sweep(scratch):
            return True
    except UserError:
        return False


def test_a_worker_that_lives_on_keeps_the_lock(tmp_path: Path) -> None:
    """Where the system cannot tell a worker that its sweep is gone."""
    with only_sweep(tmp_path) as lock:
        worker = subprocess.Popen(["sleep", "300"], pass_fds=(lock,))
    try:
        with pytest.raises(UserError, match="its last experiments still are"), only_sweep(tmp_path):
            pass
    finally:
        worker.kill()
        worker.wait()
    with only_sweep(tmp_path):
        pass


# -- pieces -----------------------------------------------------------------------------------


class Answers:
    """An engine that has its outcomes ready."""

    jobs = 1

    def __init__(self, *errors: str | None) -> None:
        self.errors, self.asked = errors, 0

    def run(self, orders: list[Order]):  # type: ignore[no-untyped-def]
        for order, error in zip(orders, self.errors, strict=True):
            self.asked += 1
            yield Outcome(order.name, error=error)


def test_a_full_disk_ends_the_sweep(tmp_path: Path) -> None:
    engine = Answers("it is wrong", "[Errno 28] No space left on device: 'x'", "never asked")
    orders = [Order(name, [], "", "") for name in ("a", "b", "c")]
    told: list[int] = []
    store = Store(tmp_path, tmp_path / "results")

    def tell(outcome: Outcome, ended: Ended) -> None:
        told.append(len(ended.failed))

    with pytest.raises(UserError, match=r"the disk is full \(in b\); free some space"):
        sweep(engine, orders, store, tell)
    assert engine.asked == 2
    assert told == [1, 2]
    assert store.failure("a") == "it is wrong"


def test_an_interrupted_experiment_goes_on_where_its_checkpoints_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted ones are started first, and each takes the clone that it was in."""
    for clone, name in (("0000", "b"), ("0001", "a")):
        (tmp_path / "clones" / clone / ".git").mkdir(parents=True)
        (tmp_path / "clones" / clone / ".git" / BEGUN).write_text(name)
        (tmp_path / "clones" / f"{clone}.lock").touch()
    started: list[tuple[str, str]] = []

    def start_worker(job: str, *_: object) -> subprocess.Popen[bytes]:
        name = json.loads(job)["order"]["name"]
        with free_clone(tmp_path, name) as (clone, _):
            started.append((name, clone.name))
            (clone / ".git" / BEGUN).unlink(missing_ok=True)
        Path(json.loads(job)["place"]["outcome"]).write_text(json.dumps({"name": name}))
        return subprocess.Popen(["true"], start_new_session=True)

    monkeypatch.setattr(engines, "start_worker", start_worker)
    engine = LocalEngine(Project(tmp_path, "", tmp_path, tmp_path), 1, 0)
    ended = [o.name for o in engine.run([Order(name, [], "", "") for name in ("c", "a", "b")])]
    assert started == [("a", "0001"), ("b", "0000"), ("c", "0000")]
    assert ended == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["the worker is killed", "the engine is gone"])
def test_a_worker_never_leaves_its_children(tmp_path: Path, how: str) -> None:
    script = (
        "import os, subprocess, sys, time\nfrom dacr.experiments.worker import end_together\n"
        "sys.stdin.buffer.readline()\nend_together()\nchild = subprocess.Popen(['sleep', '300'])\n"
        "print(child.pid, flush=True)\ntime.sleep(300)\n"
    )
    log = tmp_path / "log"
    worker = start_worker("", Path.cwd(), log, command=[sys.executable, "-c", script])
    wait_for(lambda: log.read_text().endswith("\n"))
    child = Path("/proc") / log.read_text().strip()
    assert child.exists()
    if how == "the worker is killed":
        worker.kill()
    else:
        assert worker.stdin
        worker.stdin.close()
    worker.wait()
    wait_for(lambda: not child.exists() or ") Z " in (child / "stat").read_text())


def test_a_worker_that_leaves_no_result_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["bash", "-c", "echo for this reason; kill -9 $$"]
    start = partial(engines.start_worker, command=command)
    monkeypatch.setattr(engines, "start_worker", start)
    with only_sweep(tmp_path) as lock:
        engine = LocalEngine(Project(tmp_path, "", tmp_path, tmp_path), 2, lock)
        (outcome,) = engine.run([Order("a", [], "", "")])
    assert outcome == Outcome("a", error="its process ended without a result: for this reason")


def test_a_commit_that_cannot_come_home_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another git process holds the lock of a ref, as it is left behind by one that was killed."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm", "one")
    done = Experiment("icifar20", "nd", "der", 1, ())
    ref = f"refs/exps/ab/cdef/{done.name}"
    git("update-ref", ref, "HEAD")
    (tmp_path / ".git" / f"{ref}.lock").touch()
    store = Store(tmp_path / "scratch", tmp_path / "results")
    kept = keep(Outcome(done.name, record=record_of(done), bundle=b""), store)
    assert kept.record is None
    assert (kept.error or "").startswith("done, but its commit could not be brought home: git ")
    assert store.failure(done.name) == kept.error
    assert git("rev-parse", ref) == git("rev-parse", "HEAD"), "the older one is still there"


def test_an_experiment_takes_the_place_of_an_older_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    for message in ("one", "two"):
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-qm", message)
    new, old, other = (f"refs/exps/{rest}" for rest in ("bb/b/exp", "aa/a/exp", "aa/a/my-exp"))
    git("update-ref", new, "HEAD")
    git("bundle", "create", "--quiet", "exp.bundle", new)
    git("update-ref", "-d", new)
    for ref in (old, other):
        git("update-ref", ref, "HEAD~1")
    adopt(Outcome("exp", bundle=Path("exp.bundle").read_bytes()), tmp_path / "scratch")
    found = git("for-each-ref", "--format=%(refname)", "refs/exps").split()
    assert set(found) == {new, other}


def test_the_line_that_a_person_should_read_first() -> None:
    log = "$ dvc\nRunning stage\n\x1b[31mERROR\x1b[39m: failed to run\ndacr: the cause\nmore\n"
    assert error_line(log, 1) == "the cause"
    assert error_line("x\nERROR: failed: y\nlast\n", 1) == "failed: y"
    assert error_line("x\nlast\n\n", 1) == "last"
    assert error_line("", 255) == "dvc ended with exit code 255"


def test_stopping_reaches_grandchildren_that_ignore_it() -> None:
    script = "trap '' TERM; sleep 300 & echo deaf; wait; sleep 300"
    command = ["bash", "-c", script]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"deaf\n"
    stop([process])
    assert process.poll() is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
