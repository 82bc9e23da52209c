"""Interrupted training goes on from its last epoch and ends in the same bits."""

import copy
import fcntl
import multiprocessing
import os
import shutil

import pytest
import torch

from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint, fingerprint, scratch_root
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


@pytest.mark.parametrize("name", METHODS)
def test_a_training_that_dies_again_and_again_ends_in_the_same_bits(name):
    params = small_params(f"method={name}", "train.epochs=3", "split=ncd")
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


@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty"])
def test_a_damaged_checkpoint_is_trained_again(damage):
    params = small_params("method=replay", "train.epochs=2")
    first, _ = two_sessions()
    method = make_method(params, CPU)
    method.begin(first)
    with Checkpoint("damaged") as checkpoint:
        optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
        checkpoint.save("train", method, optimizer, [{"epoch": 1}])
        file = checkpoint.folder / "train.safetensors"
        content = file.read_bytes()
        bad = {"truncate": content[: len(content) // 2], "garbage": b"x" * 100, "empty": b""}
        file.write_bytes(bad[damage])
        assert checkpoint.restore("train", method, optimizer) == []


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
