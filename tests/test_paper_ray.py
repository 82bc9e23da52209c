"""A sweep on a Ray cluster of two nodes, interrupted once and killed once in the middle.

One sweep serves most of these tests: starting Ray, DVC and torch is most of its time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest

from dacr.data.session_table import read_session
from dacr.errors import UserError
from dacr.experiments import node, ray_engine
from dacr.experiments.engine import Project
from dacr.experiments.node import finished, perform_on_node, start_worker, unpacked
from dacr.experiments.ray_engine import RayEngine, address_of, slots
from dacr.experiments.records import Record
from dacr.experiments.sweep import adopt
from dacr.experiments.tables import Needs
from dacr.experiments.worker import OUTCOME, SET_ASIDE, Order, Outcome, free_clone
from tests.paper_project import ROOT, WIDE, run, tiny_project
from tests.tiny_project import answer, environment, warm_environment
from tests.warm import warm_path, warm_shell

EPOCHS = 3
HANGS = 900.0  # seconds after which nothing will happen any more
TABLE = f"""\
title: A sweep
splits: [one]
metrics: [final_accuracy]
rows:
  good: {{label: good, overrides: {{method: replay, train.epochs: {EPOCHS}}}}}
  bad: {{label: bad, overrides: {{method: icarl, memory.size: -1}}}}
"""
HELD = """
from pathlib import Path
import os, time
from dacr.learning.checkpoint import Checkpoint

save = Checkpoint.keep


def save_and_wait(*arguments):
    save(*arguments)
    hold = Path({hold!r})
    if hold.exists():
        hold.with_name("held").write_text(f"{{os.getpid()}}\\n")
    while hold.exists():
        time.sleep(0.05)


Checkpoint.keep = save_and_wait
"""
"""In front of the stage ``learn``: while the file is there, training waits after an epoch."""


@dataclass
class Nodes:
    """Two nodes, and a project whose training waits while ``hold`` exists."""

    address: str
    scratch: Path
    project: Path
    hold: Path

    @property
    def folder(self) -> Path:
        """Where both nodes, being on one machine, keep their clones."""
        return self.scratch / f"dacr-ray-{os.getuid()}"

    def command(self, *words: str) -> list[str]:
        # Warm, with a PATH that has no warm one: what Ray starts is to be killed.
        start = [f"{warm_path()}/python", "-m", "dacr", "paper", *words, "--benchmark", "tiny"]
        return [*start, "--engine", "ray", "--address", self.address] if "run" in words else start


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("ray")
    (folder / "project").mkdir()
    shell = warm_shell(kill_learn=True)
    scratch = Path(tempfile.mkdtemp(prefix="ray-"))  # Ray's sockets want a short path
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(scratch))
        patch.setattr(tempfile, "tempdir", None)
        patch.setenv("SHELL", shell)
        patch.setenv("RAY_worker_niceness", "0")  # else the other tests go first
        try:
            cluster = Cluster(
                initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
            )
        except Exception as error:  # whatever keeps Ray itself from starting is not ours to test
            pytest.skip(f"Ray does not start on this machine: {error}")
        try:
            cluster.add_node(num_cpus=1)
            project = tiny_project(folder / "project")
            hold = folder / "hold"
            patch_project(project, hold)
            yield Nodes(cluster.address, scratch, project, hold)
        finally:
            ray.shutdown()
            cluster.shutdown()
    shutil.rmtree(scratch, ignore_errors=True)


def patch_project(project: Path, hold: Path) -> None:
    stage = project / "stages/learn.py"
    stage.write_text(HELD.format(hold=str(hold)) + stage.read_text())
    (project / "conf/paper/sweep.yaml").write_text(TABLE)
    run(project, "git", "commit", "--quiet", "--all", "--message", "a table for Ray")


def committed(folder: Path) -> str:
    """The revision of a new repository of what is there."""
    for words in (
        ("init", "--quiet"), ("config", "user.email", "test@example.org"),
        ("config", "user.name", "test"), ("add", "--all"),
        ("commit", "--quiet", "--allow-empty", "-m", "start"),
    ):  # fmt: skip
        run(folder, "git", *words)
    return run(folder, "git", "rev-parse", "HEAD").strip()


def wait_for(what: Callable[[], object], sweep: subprocess.Popen[str] | None = None) -> None:
    """However slow the machine is, but no longer than the sweep lives."""
    until = time.monotonic() + HANGS
    while not what():
        if sweep is not None and sweep.poll() is not None:
            pytest.fail(sweep.communicate()[0])
        assert time.monotonic() < until
        time.sleep(0.05)


def at_work(folder: Path) -> list[int]:
    """The processes that work in a node's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str((entry / "cwd").readlink()).startswith(str(folder)):
                found.append(int(entry.name))
    return found


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def gone(process: int) -> bool:
    """Also where nobody has asked yet how an orphan ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def held(nodes: Nodes, sweep: subprocess.Popen[str]) -> int:
    """The process that trains, once it has finished an epoch and waits."""
    mark = nodes.hold.with_name("held")
    wait_for(lambda: mark.exists() and mark.read_text().endswith("\n"), sweep)
    process = int(mark.read_text())
    mark.unlink()
    return process


def start(command: list[str], project: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=project, env=environment(**WIDE), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


@dataclass
class Swept:
    interrupted: str
    """What the first command said when it was told to end."""
    said: str
    """What the second said, under which Ray's worker was killed."""
    left: list[int]
    """Processes that still worked in a clone afterwards."""


@pytest.fixture(scope="module")
def swept(nodes: Nodes) -> Swept:
    """One good and one bad experiment; the good one has an epoch in each of three lives."""
    nodes.hold.touch()
    command = nodes.command("run", "sweep")
    sweep = start([*command, "--methods", "replay"], nodes.project)
    try:
        held(nodes, sweep)
        sweep.terminate()
        interrupted, _ = sweep.communicate(timeout=HANGS)
        assert sweep.returncode == 130, interrupted
        wait_for(lambda: not at_work(nodes.folder))
        sweep = start(command, nodes.project)
        stage = held(nodes, sweep)
        os.kill(parent(os.getpgid(stage)), signal.SIGKILL)  # Ray's worker, of which ours is a child
        wait_for(lambda: gone(stage))
        nodes.hold.unlink()
        said, _ = sweep.communicate(timeout=HANGS)
        assert sweep.returncode == 1, said
    finally:
        sweep.kill()
    return Swept(interrupted, said, at_work(nodes.folder))


def record(nodes: Nodes) -> Record:
    (file,) = (nodes.project / ".dacr/paper/done").glob("*.json")
    return Record.model_validate_json(file.read_text())


def test_a_lost_worker_costs_a_retry_and_not_the_experiment(nodes: Nodes, swept: Swept) -> None:
    own = record(nodes)
    assert f"{own.name}: average accuracy" in swept.said
    assert own.setting["epochs"] == EPOCHS
    assert own.revision == run(nodes.project, "git", "rev-parse", "HEAD").strip()
    assert not own.whole
    assert swept.left == []


def test_an_interrupt_says_how_to_go_on(swept: Swept) -> None:
    last = swept.interrupted.strip().splitlines()[-1]
    assert last.startswith("dacr: interrupted; run the same command again")
    assert "Traceback" not in swept.interrupted


def test_the_retry_goes_on_where_the_killed_one_was(nodes: Nodes, swept: Swept) -> None:
    log = (nodes.project / f".dacr/paper/logs/{record(nodes).name}.log").read_text()
    for stage in ("fetch@handwritten", "build", "schedule", "split@01", "start"):
        assert f"Running stage '{stage}'" not in log
    for stage in ("learn@01", "consolidate@01", "evaluate", "report"):
        assert f"Running stage '{stage}'" in log
    (note,) = nodes.folder.glob("clones/*/runs/01/provenance-learn.json")  # of one clone only
    losses = json.loads((note.parent / "learned/losses.json").read_text())
    assert len(losses) == EPOCHS
    session = read_session(note.parents[2] / "data/split/session-01.csv")
    an_epoch = int((session["part"] == "train").sum())
    assert json.loads(note.read_text())["images"] == EPOCHS * an_epoch  # of all lives together
    trained = re.findall(r" epoch (\d+)/", log)
    assert trained == [str(EPOCHS)], "the last life trained the last epoch, and no other"


def test_a_failure_is_told_with_its_log(nodes: Nodes, swept: Swept) -> None:
    said = " ".join(swept.said.split())
    assert "failed: tiny-one-icarl-" in said
    assert "params.yaml: memory.size: input should be greater than or equal to 0" in said
    log = Path(said.partition("(log: ")[2].partition(")")[0])
    assert "memory.size" in (nodes.project / log).read_text()
    assert swept.said.strip().splitlines()[-1] == (
        "dacr: 1 of 2 experiments failed; the same command runs only them"
    )
    assert "Traceback" not in swept.said


def test_the_experiment_comes_home(nodes: Nodes, swept: Swept) -> None:
    name = record(nodes).name
    assert name in run(nodes.project, "dvc", "exp", "list")
    run(nodes.project, "dvc", "exp", "apply", name)
    assert (nodes.project / "runs/01/results/predictions.parquet").exists()  # from the shared cache
    run(nodes.project, "git", "checkout", "--quiet", "--force", "HEAD")


def test_what_is_done_is_not_done_again(nodes: Nodes, swept: Swept) -> None:
    said = run(nodes.project, *nodes.command("run", "sweep"), "--methods", "replay")
    assert "1 of 1 experiments there" in said
    shown = run(nodes.project, *nodes.command("show", "sweep"))
    assert f"{record(nodes).metrics['final_accuracy']:.1f}" in shown


KILLED = """
import json, os, pathlib, sys
count = pathlib.Path({count!r})
count.write_text(count.read_text() + "x" if count.exists() else "x")
if len(count.read_text()) < {enough}:
    os.kill(os.getpid(), 9)
place = json.loads(sys.stdin.readline())["place"]
outcome = {{"name": "dies", "record": None, "error": "the end"}}
pathlib.Path(place["outcome"]).write_text(json.dumps(outcome))
"""


@pytest.mark.parametrize(
    ("enough", "error"),
    [(2, "the end"), (9, r"lost by Ray: ChildProcessError: the experiment on .* ended by SIGKILL")],
)
def test_a_killed_experiment_is_tried_again(
    nodes: Nodes, tmp_path: Path, enough: int, error: str
) -> None:
    """A project whose worker does nothing but die a few times, as for want of memory."""
    project, count = tmp_path / "project", tmp_path / "count"
    (project / "dacr/experiments").mkdir(parents=True)
    (project / "dacr/__init__.py").touch()
    (project / "dacr/experiments/__init__.py").touch()
    (project / "dacr/experiments/worker.py").write_text(
        KILLED.format(count=str(count), enough=enough)
    )
    revision = committed(project)
    own = Project(project, revision, tmp_path / "cache", tmp_path / "scratch")
    engine = RayEngine(own, nodes.address, Needs(cpus=1, gpus=0, retries=1))
    assert engine.jobs == 2
    (outcome,) = engine.run([Order("dies", [], "", "")])
    assert re.fullmatch(error, str(outcome.error))
    assert len(count.read_text()) == 2
    assert (tmp_path / "scratch/logs/dies.log").exists()


def test_a_cluster_without_room_is_one_line(nodes: Nodes, tmp_path: Path) -> None:
    project = Project(tmp_path, "", tmp_path, tmp_path)
    with pytest.raises(UserError, match=r"no node of the Ray cluster has 1 CPUs and 0\.5 GPUs"):
        RayEngine(project, nodes.address, Needs(cpus=1, gpus=0.5, retries=0))


# -- pieces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_no_cluster_is_one_line(tmp_path: Path, address: str) -> None:
    pytest.importorskip("ray")
    project = Project(tmp_path, "", tmp_path, tmp_path)
    with pytest.raises(UserError, match=f"no Ray cluster at '{address}'"):
        RayEngine(project, address, Needs(cpus=1, gpus=0, retries=0))


def test_experiments_fit_into_nodes_one_by_one() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 3.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    assert slots(nodes, Needs(cpus=1, gpus=0, retries=0)) == 6
    assert slots(nodes, Needs(cpus=2, gpus=0, retries=0)) == 2
    assert slots(nodes, Needs(cpus=0.1, gpus=0.2, retries=0)) == 5
    assert slots(nodes, Needs(cpus=1, gpus=2, retries=0)) == 0


def test_a_clone_is_used_by_one_and_found_again(tmp_path: Path) -> None:
    with free_clone(tmp_path, "a") as (first, _), free_clone(tmp_path, "b") as (second, _):
        assert first != second
        (first / ".git").mkdir(parents=True)
        (first / ".git/dacr-experiment").write_text("a")
    with free_clone(tmp_path, "a") as (again, _):
        assert again == first
    with free_clone(tmp_path, "c") as (other, _), free_clone(tmp_path, "d") as (last, _):
        assert other == second  # and not the one that "a" may come back to
        assert last not in (first, second)


def test_clones_that_nobody_comes_back_to_are_not_kept_for_ever(tmp_path: Path) -> None:
    clones = set()
    for number in range(4 * SET_ASIDE):
        with free_clone(tmp_path, f"killed-{number}") as (clone, _):
            (clone / ".git").mkdir(parents=True, exist_ok=True)
            (clone / ".git/dacr-experiment").write_text(f"killed-{number}")
            clones.add(clone)
    assert len(clones) == SET_ASIDE + 1


def test_a_clone_is_waited_for_while_its_killed_experiment_ends(tmp_path: Path) -> None:
    with free_clone(tmp_path, "a") as (clone, lock):
        (clone / ".git").mkdir(parents=True)
        (clone / ".git/dacr-experiment").write_text("a")
        dying = subprocess.Popen(["sleep", "1"], pass_fds=(lock.fileno(),))
    with free_clone(tmp_path, "a") as (again, _):
        assert again == clone
        assert dying.wait(timeout=60) == 0


def test_an_experiment_leaves_no_process_behind(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/child; kill -9 $$"
    worker = start_worker("", tmp_path, tmp_path / "log", command=["bash", "-c", script])
    assert finished(worker) == -9
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: gone(child))


def test_a_half_unpacked_project_is_unpacked_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    revision = committed(source)
    bundle = ray_engine.project_bundle(source)
    (tmp_path / "code" / revision / ".git").mkdir(parents=True)
    (tmp_path / "code" / revision / ".git/index.lock").touch()
    code = unpacked(tmp_path, bundle, revision)
    assert run(code, "git", "rev-parse", "HEAD").strip() == revision
    assert unpacked(tmp_path, b"not read again", revision) == code


def test_a_node_needs_no_copy_of_the_project(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    cloudpickle.register_pickle_by_value(node)
    try:
        task = tmp_path / "task"
        task.write_bytes(cloudpickle.dumps(perform_on_node))
    finally:
        cloudpickle.unregister_pickle_by_value(node)
    script = (
        "import sys, pathlib; sys.modules['dacr'] = None; import ray.cloudpickle as pickle; "
        f"print(pickle.loads(pathlib.Path({str(task)!r}).read_bytes()).__name__)"
    )
    assert run(tmp_path, sys.executable, "-c", script).strip() == "perform_on_node"


WITHOUT_RAY = """
import importlib, pkgutil, sys, dacr
assert "ray" not in sys.modules
sys.modules["ray"] = None
for one in pkgutil.walk_packages(dacr.__path__, "dacr."):
    # Exports are read where peers are installed.
    if not one.name.endswith("__main__") and "scenarios.exports." not in one.name:
        importlib.import_module(one.name)
from dacr.errors import UserError
from dacr.experiments.ray_engine import connect
try:
    connect("auto")
except UserError as error:
    print(error)
"""


def test_ray_is_imported_by_nobody_who_does_not_ask_for_it(tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/__init__.py").touch()
    (tmp_path / "stages/all.py").write_text(WITHOUT_RAY)  # by its name, its Python is warm
    where = {"PYTHONPATH": str(ROOT)}
    ended, said = answer(tmp_path, "python", "-m", "stages.all", env=where)
    assert said.startswith("Ray is not installed; `pip install"), said
    assert ended == 0


# -- machines that share no cache ---------------------------------------------------------------


def on_a_node(
    project: Path, temporary: Path, order: Order, patch: pytest.MonkeyPatch, push: str = ""
) -> tuple[Outcome, str]:
    """The experiment on a machine that sees nothing of the project but a bundle and the remotes."""
    temporary.mkdir(exist_ok=True)
    patch.setattr(tempfile, "tempdir", str(temporary))
    revision = run(project, "git", "rev-parse", "HEAD").strip()
    bundle = ray_engine.project_bundle(project)
    text, log = perform_on_node(asdict(order), bundle, revision, "/nowhere/cache", push)
    return OUTCOME.validate_json(text), log


def test_models_travel_over_the_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in warm_environment().items():
        monkeypatch.setenv(name, value)
    warm = ("python", *node.WORKER[1:])
    monkeypatch.setattr(node, "start_worker", partial(start_worker, command=warm))
    (tmp_path / "project").mkdir()
    project = tiny_project(tmp_path / "project")
    run(project, "dvc", "remote", "add", "--default", "team", str(tmp_path / "remote"))
    run(project, "git", "commit", "--quiet", "--all", "--message", "a remote")
    run(project, "git", "init", "--quiet", "--bare", "../team.git")
    run(project, "git", "remote", "add", "team", "../team.git")
    run(project, "git", "push", "--quiet", "team", "HEAD:main")
    order = Order("away", ["benchmark=tiny", "split=one", "method=replay"], "dvc exp run …", "")

    team = address_of("team", project)
    outcome, log = on_a_node(project, tmp_path / "one", order, monkeypatch, team)
    assert outcome.error is None, log
    assert "Running stage 'learn@01'" in log

    run(tmp_path, "git", "clone", "--quiet", "--branch", "main", "team.git", "colleague")
    run(tmp_path / "colleague", "dvc", "exp", "pull", "origin", "away")
    run(tmp_path / "colleague", "dvc", "exp", "apply", "away")
    assert (tmp_path / "colleague/runs/01/results/predictions.parquet").exists()

    monkeypatch.chdir(project)
    adopt(outcome, tmp_path)
    assert "Checkout failed" in run(project, "dvc", "exp", "apply", "away", code=255)
    assert not (project / "runs/01/results/predictions.parquet").exists()
    run(project, "dvc", "pull")
    assert (project / "runs/01/results/predictions.parquet").exists()
    run(project, "git", "checkout", "--quiet", "--force", "HEAD")

    again, log = on_a_node(project, tmp_path / "two", order, monkeypatch)
    assert again.error is None, log
    assert "Running stage 'learn@01'" not in log, "another node has done it"
    assert again.record.metrics == outcome.record.metrics

    shutil.rmtree(tmp_path / "remote")
    (tmp_path / "remote").write_text("no folder")
    third, log = on_a_node(project, tmp_path / "one", order, monkeypatch)
    assert third.record is None
    assert "remote" in third.error, log


def test_a_cache_at_the_same_path_is_not_the_same_cache(tmp_path: Path) -> None:
    mark = ray_engine.leave_mark(tmp_path / "cache")
    assert mark.parent == tmp_path / "cache"
    assert mark != ray_engine.leave_mark(tmp_path / "cache")  # another project's, another sweep's


def test_a_git_remote_has_an_address_that_a_node_understands(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for folder in (project, tmp_path / "team.git"):
        folder.mkdir()
    committed(project)
    for name, address in (("near", "../team.git"), ("far", "https://example.org/team.git")):
        run(project, "git", "remote", "add", name, address)
    assert address_of("near", project) == str(tmp_path / "team.git")
    assert address_of("far", project) == "https://example.org/team.git"
    assert address_of("git@example.org:team.git", project) == "git@example.org:team.git"
    with pytest.raises(UserError, match="push: nobody is neither a git remote of the project"):
        address_of("nobody", project)
