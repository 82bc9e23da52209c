"""A training that is killed at any moment, by any signal, however started, ends in equal bytes."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import chdir, suppress
from itertools import cycle
from pathlib import Path

import psutil
import pytest
import yaml

from dacr.config import load_params
from dacr.sessions import learn as sessions_learn
from dacr.sessions.learn import learn, work_name
from tests.tiny_pipeline import REPOSITORY, prepare, tiny_params
from tests.tiny_project import commit, environment, make_project, run, warm_environment
from tests.warm import warm_path, warm_shell

KILLS = 20
EPOCHS = 40
RUNNING = 2  # in DVC's notes of a queue's experiments
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def content(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    params = tiny_params("method=der_dacr", "split=nd", f"train.epochs={EPOCHS}")
    prepare(folder, params)
    shutil.copytree(folder, folder.parent / "before", symlinks=True, dirs_exist_ok=True)
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(folder))
        learn(params, "01")
    return folder


@pytest.fixture
def fresh(undisturbed, tmp_path):
    """The same work, not yet begun."""
    shutil.copytree(undisturbed.parent / "before", tmp_path / "work", symlinks=True)
    return tmp_path / "work"


@pytest.fixture(scope="module")
def nursery():
    command = [f"{warm_path()}/python", "-m", "tests.nursery"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        yield process
        process.stdin.close()


def a_life(nursery, folder, until=None, how=signal.SIGKILL, between=0):
    """Learn until this is true, or to the end, keeping an epoch every ``between`` seconds; its end.

    However fast the machine is, what was started is ended and its end is read: the next life begins
    with a nursery that has nothing left to say.
    """
    print(folder, "01", between, file=nursery.stdin, flush=True)
    pid = int(nursery.stdout.readline())
    if until is not None:
        while not until() and psutil.pid_exists(pid):
            time.sleep(0.001)
        with suppress(ProcessLookupError):
            os.kill(pid, how)
    return int(nursery.stdout.readline())


def after(seconds):
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def scratch(folder):
    return sorted((folder / ".dacr/scratch").glob("*/*.safetensors"))


def test_twenty_kills_at_random_moments_leave_the_same_bytes(undisturbed, fresh, nursery):
    draw = random.Random(1993)
    started = time.monotonic()
    assert a_life(nursery, undisturbed) == 0  # how long a whole life takes on this machine now
    whole = time.monotonic() - started
    ends = []
    for how in cycle(SIGNALS):
        # Lives of up to a fifth: some die before the first epoch, some inside a checkpoint.
        ends.append(a_life(nursery, fresh, after(draw.uniform(0.02, 0.2) * whole), how))
        if len(ends) >= KILLS or ends[-1] == 0:
            break
    killed = [end for end in ends if end != 0]
    log = (fresh / "lives.log").read_text()
    assert set(killed) <= {-signal.SIGKILL, -signal.SIGTERM, 130}, (ends, log)
    for _ in range(KILLS - len(killed)):  # it was done before: kill it as often all the same
        shutil.rmtree(fresh / "runs/01", ignore_errors=True)
        killed.append(a_life(nursery, fresh, after(draw.uniform(0.02, 0.2) * whole)))
    assert len(killed) >= KILLS
    assert a_life(nursery, fresh) == 0
    assert content(fresh / "runs/01/learned") == content(undisturbed / "runs/01/learned")
    assert "Traceback" not in log
    assert not list((fresh / ".dacr/scratch").iterdir()), "the scratch is gone after success"
    assert log.count(" epoch 1/") < KILLS, "lives went on where another had ended"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_who_is_told_to_end_keeps_an_epoch_that_was_not_due(undisturbed, fresh, nursery, how):
    """An hour between checkpoints: none was written before the signal."""
    log = fresh / "lives.log"

    def two_epochs_and_none_kept():
        return log.exists() and " epoch 2/" in log.read_text() and not scratch(fresh)

    assert a_life(nursery, fresh, two_epochs_and_none_kept, how, between=3600) == 130
    assert "interrupted" in log.read_text()
    assert scratch(fresh)
    before = len(log.read_text())
    assert a_life(nursery, fresh, between=3600) == 0
    assert " epoch 2/" not in log.read_text()[before:], "it went on, and did not begin again"
    assert content(fresh / "runs/01/learned") == content(undisturbed / "runs/01/learned")


def killed_once(nursery, folder):
    """Begun, killed with at least one epoch kept; the files that were kept."""
    ended = a_life(nursery, folder, until=lambda: scratch(folder))
    assert ended == -signal.SIGKILL, (folder / "lives.log").read_text()
    return scratch(folder)


def test_another_parameter_never_meets_the_state(fresh, nursery, tmp_path):
    (kept,) = killed_once(nursery, fresh)
    params = yaml.safe_load((fresh / "params.yaml").read_text())
    params["train"]["lr"] *= 2
    params["train"]["epochs"] = 2
    (fresh / "params.yaml").write_text(yaml.safe_dump(params))
    shutil.copytree(fresh, tmp_path / "other", symlinks=True)
    shutil.rmtree(tmp_path / "other/.dacr")
    assert a_life(nursery, fresh) == a_life(nursery, tmp_path / "other") == 0
    theirs = content(tmp_path / "other/runs/01/learned")
    assert content(fresh / "runs/01/learned") == theirs
    assert kept.exists(), "the other work can still go on"


def test_everything_that_a_session_reads_is_in_the_name_of_its_work(fresh, monkeypatch):
    """One file after the other is changed: each time it is other work."""
    for package in ("dacr", "stages"):
        ignored = shutil.ignore_patterns("*.pyc")
        shutil.copytree(REPOSITORY / package, fresh / package, ignore=ignored)
    monkeypatch.setattr(sessions_learn, "CODE", fresh)
    with chdir(fresh):
        params = load_params()
        names = {work_name(params, "01")}
        data = [
            "data/split/session-01.csv",
            "runs/00/state/state.json",
            "runs/00/state/memory.csv",
            "runs/00/state/state.safetensors",
            "runs/00/state/extractors/01.safetensors",
        ]
        code = [
            "dacr/data/augmentation.py",
            "dacr/learning/losses.py",
            "dacr/model/heads.py",
            "dacr/methods/parts/method.py",
            "dacr/methods/der_dacr.py",
            "dacr/methods/der.py",
        ]
        for file, more in [(f, b" ") for f in data] + [(f, b"\nMORE = 1\n") for f in code]:
            before = Path(file).read_bytes()
            Path(file).write_bytes(before + more)
            names.add(work_name(params, "01"))
            Path(file).write_bytes(before)
        assert len(names) == 1 + len(data) + len(code)
        Path("dacr/methods/icarl.py").write_text("MORE = 1  # another method is not this work's")
        Path("dacr/evaluation/metrics.py").write_text("")
        losses = Path("dacr/learning/losses.py")
        losses.write_text(f"{losses.read_text()}\n# a comment\n")
        assert work_name(params, "01") in names


def test_what_was_half_written_is_never_read(undisturbed, fresh, nursery):
    (kept,) = killed_once(nursery, fresh)
    kept.with_suffix(".part").write_bytes(kept.read_bytes()[:-7])
    assert a_life(nursery, fresh) == 0
    assert content(fresh / "runs/01/learned") == content(undisturbed / "runs/01/learned")
    ours, theirs = (notes(folder) for folder in (fresh, undisturbed))
    assert ours["images"] == theirs["images"], "the note counts what the killed process did, too"


def notes(folder):
    return json.loads((folder / "runs/01/provenance-learn.json").read_text())


def test_two_processes_never_share_a_state(fresh, nursery):
    where = warm_environment(DVC_ROOT=str(fresh), PYTHONPATH=str(REPOSITORY))
    started = start(fresh, "python", "-m", "stages.learn", "01", env=where)
    trainer = trainer_of(fresh, started)
    os.kill(trainer, signal.SIGSTOP)  # holds the lock for as long as the other one looks
    try:
        assert a_life(nursery, fresh) == 1
        line = (fresh / "lives.log").read_text().splitlines()[-1]
        assert line.startswith(f"dacr: process {trainer} is already training")
    finally:
        os.kill(trainer, signal.SIGKILL)
        assert started.wait() == -signal.SIGKILL


def wait_for(condition, process, seconds=900, pause=0.02):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "nothing happened"
        assert process is None or process.poll() is None, "it ended before"
        time.sleep(pause)
    return found


# Through DVC -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "project"
    make_project(folder, "split=one", "train.epochs=60")
    return folder


@pytest.fixture
def project(reference, tmp_path):
    """The project as it is before the first session was learned, committed."""
    folder = tmp_path / "project"
    shutil.copytree(reference, folder, symlinks=True)
    for made in ("runs/01", ".dvc/cache/runs", "reports"):
        shutil.rmtree(folder / made, ignore_errors=True)
    lock = yaml.safe_load((folder / "dvc.lock").read_text())
    for name in ("learn@01", "consolidate@01", "evaluate", "report"):
        for out in lock["stages"].pop(name)["outs"]:
            if out["path"] == "runs/01/learned":
                cached = folder / ".dvc/cache/files/md5" / out["md5"][:2] / out["md5"][2:]
                cached.unlink()
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    (folder / "reports").mkdir()
    (folder / "reports/.gitkeep").touch()
    commit(folder, "before the first session")
    return folder


def lock_of(text):
    return yaml.safe_load(text)["stages"]


def start(folder, *command, env=None):
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env or warm_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def trainer_of(folder, process=None):
    """The pid of the process that trains, once it has kept an epoch."""
    (file,) = wait_for(lambda: scratch(folder), process)
    return int((file.parent / "lock").read_text())


def test_dvc_repro_killed_with_all_its_children(reference, project):
    real = environment(SHELL=warm_shell(kill_learn=True))
    process = start(project, "dvc", "repro", "learn@01", env=real)
    trainer_of(project)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    output = run(project, "dvc", "repro", "learn@01")
    assert "Running stage 'learn@01'" in output
    assert " epoch 1/" not in output, "it went on, and did not begin again"
    ours, theirs = (lock_of((f / "dvc.lock").read_text()) for f in (project, reference))
    assert ours["learn@01"]["outs"] == theirs["learn@01"]["outs"]
    assert not list((project / ".dacr/scratch").iterdir())


def experiments_lock(folder, name):
    refs = run(folder, "git", "for-each-ref", "--format=%(refname)", "refs/exps").split()
    (ref,) = [ref for ref in refs if ref.endswith(f"/{name}")]
    return lock_of(run(folder, "git", "show", f"{ref}:dvc.lock"))


EXPERIMENT = ("-S", "benchmark=tiny", "-S", "split=one", "-S", "train.epochs=60")


def test_an_experiment_in_a_temporary_folder(reference, project):
    process = start(project, "dvc", "exp", "run", "--temp", "-n", "first", *EXPERIMENT)
    os.kill(trainer_of(project), signal.SIGTERM)
    assert process.wait(timeout=240) != 0
    assert scratch(project), "the scratch survives the temporary folder"
    run(project, "dvc", "exp", "run", "--temp", "-n", "second", *EXPERIMENT)
    assert_equal_outs(reference, project, "second")


def assert_equal_outs(reference, project, experiment):
    ours = experiments_lock(project, experiment)
    theirs = lock_of((reference / "dvc.lock").read_text())
    assert {n: s["outs"] for n, s in ours.items()} == {n: s["outs"] for n, s in theirs.items()}


def worker_ended(project):
    """Tell the worker of DVC's queue to end, and wait until its process is gone.

    ``dvc queue start`` starts no worker while one still answers; one that has nothing to do ends
    ten seconds later, and an experiment that was queued meanwhile then waits for ever.
    """
    celery = project.resolve() / ".dvc/tmp/exps/celery"
    node = f"dvc-exp-{hashlib.sha256(str(celery).encode()).hexdigest()[:6]}-1@localhost"
    run(project, "dvc", "queue", "stop")
    for process in psutil.process_iter(["cmdline"]):
        if node in (process.info["cmdline"] or []):
            process.wait()


def queue(project, name):
    run(project, "dvc", "exp", "run", "--queue", "-n", name, *EXPERIMENT)
    # Its worker inherits the streams: whoever reads them waits for the last experiment.
    assert start(project, "dvc", "queue", "start").wait(timeout=240) == 0


def experiments_over(project):
    """How many experiments of the queue DVC has noted as ended."""
    over = 0
    for note in (project / ".dvc/tmp/exps/run").glob("*/*.run"):
        with suppress(ValueError):  # half written: looked at again
            over += json.loads(note.read_text())["status"] > RUNNING
    return over


def wait_for_status(project, name, status, over):
    """Until ``over`` experiments have ended: to ask DVC before takes a processor for nothing."""
    wait_for(lambda: experiments_over(project) >= over, None)

    def reached():
        lines = run(project, "dvc", "queue", "status").splitlines()
        return any(line.split()[1:2] == [name] and line.split()[-1] == status for line in lines)

    wait_for(reached, None, pause=1.0)


def test_an_experiment_in_the_queue(reference, project):
    queue(project, "first")
    try:
        os.kill(trainer_of(project), signal.SIGKILL)
        wait_for_status(project, "first", "Failed", over=1)
        assert scratch(project), "the scratch survives the queue's folder"
        worker_ended(project)
        queue(project, "second")
        wait_for_status(project, "second", "Success", over=2)
    finally:
        run(project, "dvc", "queue", "stop", "--kill", ok=None)
    assert_equal_outs(reference, project, "second")
