"""Interrupted training goes on from its last epoch and ends in the same bits."""

import copy
import fcntl
import multiprocessing
import os
import shutil
import time
from contextlib import suppress

import pytest
import torch

from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint, fingerprint, interval, scratch_root
from dacr.learning.training import Trainer
from dacr.methods import make_method
from dacr.runtime.progress import TrainingProgress
from tests.learning import CPU, small_params, small_session

METHODS = ["replay", "ucir", "geodl", "der", "ucir_dacr", "geodl_dacr", "der_dacr"]


class Killed(Exception):
    pass


class DyingProgress(TrainingProgress):
    """Ends the training as a signal would, after some steps."""

    def __init__(self, steps):
        super().__init__(1, 1)
        self.left = steps

    def step(self, images):
        super().step(images)
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def two_sessions():
    first = small_session(1, [], [0, 1, 2], [])
    second = small_session(2, [0, 1, 2], [1, 3], [0, 1, 2], domain=1)
    return first, second


def learn(method, session, progress, name):
    method.begin(session)
    rows = []
    with Checkpoint(name) as checkpoint:
        trainer = Trainer(method, session, checkpoint, progress)
        for phase in method.phases(session):
            rows += trainer.fit(phase)
    return rows


def after_first_session(params, first):
    method = make_method(params, CPU)
    learn(method, first, TrainingProgress(1, 1), "first")
    return method


VIEWS = ("augmentation.name=crop_flip_jitter", "augmentation.views=2")
VARIANTS = [
    *((name, ()) for name in METHODS),
    ("der", ("options.warmup_epochs=1",)),
    ("der", VIEWS),
    ("der_dacr", VIEWS),
    ("geodl", VIEWS),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_a_training_that_dies_again_and_again_ends_in_the_same_bits(name, options):
    params = small_params(f"method={name}", "train.epochs=3", "split=ncd", *options)
    first, second = two_sessions()
    start = after_first_session(params, first)
    undisturbed = copy.deepcopy(start)
    rows = learn(undisturbed, second, TrainingProgress(1, 1), "whole")

    deaths = 0
    for attempt in range(60):
        survivor = copy.deepcopy(start)
        try:
            # Each life lasts a few steps longer than an epoch at most, and dies inside one.
            again = learn(survivor, second, DyingProgress(4 + attempt % 2), "broken")
            break
        except Killed:
            deaths += 1
    assert deaths >= 2
    assert again == rows
    expected, actual = undisturbed.state_dict(), survivor.state_dict()
    assert expected.keys() == actual.keys()
    for key in expected:
        assert torch.equal(expected[key], actual[key]), key


def test_success_removes_the_scratch_and_failure_keeps_it(tmp_path):
    with Checkpoint("done"):
        pass
    assert not (tmp_path / ".dacr/scratch/done").exists()
    with pytest.raises(Killed), Checkpoint("failed"):
        raise Killed
    assert (tmp_path / ".dacr/scratch/failed").exists()


def hold(path, ready, leave):
    os.environ["DVC_ROOT"] = path
    with Checkpoint("shared"):
        ready.set()
        leave.wait(20)


def test_two_processes_never_share_a_scratch(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=hold, args=(str(tmp_path), ready, leave))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(UserError, match=f"process {other.pid} is already training"):
            Checkpoint("shared").__enter__()
    finally:
        leave.set()
        other.join()
    with Checkpoint("shared"):
        pass


@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty", "a bit of a weight"])
def test_a_damaged_checkpoint_is_trained_again(damage):
    params = small_params("method=replay", "train.epochs=2")
    first, _ = two_sessions()
    method = make_method(params, CPU)
    method.begin(first)
    with Checkpoint("damaged") as checkpoint:
        optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
        checkpoint.keep("train", method, optimizer, [{"epoch": 1}])
        file = checkpoint.folder / "train.safetensors"
        content = file.read_bytes()
        bad = {
            "truncate": content[: len(content) // 2],
            "garbage": b"x" * 100,
            "empty": b"",
            "a bit of a weight": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        }
        file.write_bytes(bad[damage])
        assert checkpoint.restore("train", method, optimizer) == []


def epochs_on_disk(checkpoint, method):
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    return [row["epoch"] for row in checkpoint.restore("train", method, optimizer)]


def test_an_epoch_is_written_when_the_last_writing_is_long_ago(monkeypatch):
    """At 0, 40, 80 and 100 s with 60 s between: at 80 s; the rest when the work is interrupted."""
    monkeypatch.setenv("DACR_CHECKPOINT_SECONDS", "60")
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    method = make_method(small_params("method=replay"), CPU)
    method.begin(two_sessions()[0])
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    found = []
    with suppress(Killed), Checkpoint("timed") as checkpoint:
        for epoch, seconds in enumerate((0, 40, 80, 100), start=1):
            now[0] = 1000.0 + seconds
            with torch.no_grad():
                method.head.weight.fill_(epoch)
            rows = [{"epoch": number} for number in range(1, epoch + 1)]
            checkpoint.keep("train", method, optimizer, rows)
            # What training changes after the epoch does not belong to it.
            with torch.no_grad():
                method.head.weight.fill_(-1)
            found.append(epochs_on_disk(checkpoint, method))
        raise Killed
    assert found == [[], [], [1, 2, 3], [1, 2, 3]]
    with Checkpoint("timed") as checkpoint:
        assert epochs_on_disk(checkpoint, method) == [1, 2, 3, 4]
        assert (method.head.weight == 4).all()


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_wrong_interval_is_one_line(text, monkeypatch):
    monkeypatch.setenv("DACR_CHECKPOINT_SECONDS", text)
    with pytest.raises(UserError, match="DACR_CHECKPOINT_SECONDS"):
        interval()


def test_the_name_changes_with_parameters_inputs_and_code(tmp_path):
    file = tmp_path / "code.py"
    file.write_text("a = 1")
    name = fingerprint({"lr": 0.1}, [file])
    assert fingerprint({"lr": 0.1}, [file]) == name
    assert fingerprint({"lr": 0.2}, [file]) != name
    file.write_text("a = 2")
    assert fingerprint({"lr": 0.1}, [file]) != name


def test_a_lock_that_its_holder_removed_is_not_taken_for_ours(tmp_path, monkeypatch):
    """The holder finishes, and removes the scratch, between our opening of the lock and locking."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    real, finished = fcntl.flock, []

    def flock(file, operation):
        if not finished:
            finished.append(shutil.rmtree(scratch_root() / "work"))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Checkpoint("work"), pytest.raises(UserError, match="already training"), Checkpoint("work"):
        pass
