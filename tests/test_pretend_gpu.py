"""Every method on a GPU that is not there: no mixed devices, no waiting in a step, equal values."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dacr.learning.checkpoint import Checkpoint
from dacr.learning.feed import Feed
from dacr.learning.resolvents import _expansion_on
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase, Trainer
from dacr.methods import known_methods, make_method
from dacr.methods.parts.method import Method
from dacr.runtime.pretend import (
    MixedDevices,
    PretendGpu,
    PretendTensor,
    Waits,
    counting_waits,
    pretend_device,
)
from dacr.runtime.progress import TrainingProgress
from dacr.sessions.state import load_model, save_model
from tests.learning import CPU, small_params, small_session

METHODS = known_methods()
CROPS = "augmentation.name=crop_flip_jitter"
AUGMENTATIONS = {
    "none": ("augmentation.name=none",),
    "crop_flip_jitter": (CROPS,),
    "resized_crop_flip": ("augmentation.name=resized_crop_flip",),
    "views": (CROPS, "augmentation.views=2"),
}
GEODESIC = ("geodl", "geodl_dacr")
SHORT = ("memory.size=20", "train.batch_size=32", "train.epochs=2")


pytestmark = pytest.mark.usefixtures("no_epoch_kept")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def sessions() -> list[Session]:
    """New classes; a seen and a new class in a new domain; no new class."""
    return [
        small_session(1, [], [0, 1, 2], [], each=16),
        small_session(2, [0, 1, 2], [1, 3], [0, 1, 2], domain=1, each=16),
        small_session(3, [0, 1, 2, 3], [0, 2], [0, 1, 2, 3], domain=2, each=16),
    ]


def train(method: Method, session: Session, name: str = "work") -> list[dict[str, float]]:
    rows = []
    with Checkpoint(name) as checkpoint:
        trainer = Trainer(method, session, checkpoint, TrainingProgress(1, 1))
        for phase in method.phases(session):
            rows += trainer.fit(phase)
    return rows


def chain(method: Method, folder: Path) -> tuple[dict[str, float], list[Tensor]]:
    """Three sessions from begin to prediction, with the state on disk in between.

    The losses of the very first epoch, and what all sessions chose and predicted.
    """
    told, rows = [], []
    for session in sessions():
        method.begin(session)
        rows += train(method, session)
        features = method.session_features(session)
        method.consolidate(session, features)
        chosen = method.exemplars(session, features)
        save_model(method, folder)
        load_model(method, folder)
        method.eval()
        answer = method.answer(method.features_of(session.data.images(torch.arange(8))))
        told += [chosen.double(), *(part.cpu().double() for part in answer)]
    return rows[0], told


def short(*overrides: str) -> tuple[str, ...]:
    options = any(o in ("method=der", "method=eeil") for o in overrides)
    return (*SHORT, *overrides, *(["options.second_stage_epochs=2"] if options else []))


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("name", METHODS)
def test_a_chain_of_sessions_gives_what_the_cpu_gives(
    name: str, augmentation: str, tmp_path: Path
) -> None:
    params = small_params(*short(f"method={name}", *AUGMENTATIONS[augmentation]))
    expected, told = chain(make_method(params, CPU), tmp_path / "cpu")
    with PretendGpu():
        method = make_method(params, pretend_device())
        found, answers = chain(method, tmp_path / "gpu")
        assert all(isinstance(p.data, PretendTensor) for p in method.parameters())
    if name in GEODESIC:  # by resolvents there, by singular values here
        assert found == pytest.approx(expected, rel=1e-6)
        assert [part.shape for part in answers] == [part.shape for part in told]
    else:
        assert found == expected
        assert [part.tolist() for part in answers] == [part.tolist() for part in told]


@pytest.mark.parametrize("name", METHODS)
def test_bfloat16_runs_and_is_out_of_evaluation(name: str, tmp_path: Path) -> None:
    params = small_params(*short(f"method={name}", "train.precision=bf16"))
    with PretendGpu():
        method = make_method(params, pretend_device())
        assert all(part.isfinite().all() for part in chain(method, tmp_path)[1])
        images = sessions()[0].data.images(torch.arange(4))
        method.features.bf16 = True
        coarse = method.features_of(images).cpu()
        method.features.bf16 = False
        assert not torch.equal(coarse, method.features_of(images).cpu())


def waits_of_training(name: str, batch_size: int, *overrides: str) -> tuple[Waits, int]:
    """What makes the host wait while the second session is trained, and its number of epochs."""
    params = small_params(*short(f"method={name}", *overrides), f"train.batch_size={batch_size}")
    first, second, _ = sessions()
    with PretendGpu():
        _expansion_on(pretend_device())  # constants that reach the device once per process
        method = make_method(params, pretend_device())
        for session in (first, second):
            method.begin(session)
            with counting_waits() as waits:
                rows = train(method, session)
    return waits, len(rows)


@pytest.mark.parametrize("augmentation", ["none", "crop_flip_jitter", "views"])
@pytest.mark.parametrize("name", METHODS)
def test_no_step_waits_and_an_epoch_waits_once(name: str, augmentation: str) -> None:
    """Twice as many steps wait as often; what is left is the reading of losses, once per epoch."""
    options = AUGMENTATIONS[augmentation]
    few, epochs = waits_of_training(name, 64, *options)
    many, _ = waits_of_training(name, 32, *options)
    assert few.total() == many.total()
    by_file = Counter[str]()
    for (_, place), count in many.items():
        by_file[place.split(":")[0]] += count
    assert by_file["learning/training.py"] == epochs
    # A checkpoint is written once per phase; an E-step asks how many components there are.
    del by_file["learning/training.py"], by_file["learning/checkpoint.py"]
    assert by_file.total() <= epochs + 2, by_file


def planted(mistake: Callable[[Method, Batch], Tensor]) -> Waits:
    """Train replay with a loss that makes a mistake in every step: three steps per epoch."""
    params = small_params(*short("method=replay", "train.epochs=1", "train.batch_size=16"))
    session = sessions()[0]
    with PretendGpu():
        method = make_method(params, pretend_device())
        method.begin(session)
        (phase,) = method.phases(session)

        def losses(batch: Batch) -> Losses:
            return {**phase.losses(batch), "planted": mistake(method, batch)}

        wrong: Phase = replace(phase, losses=losses)
        with counting_waits() as waits, Checkpoint("planted") as checkpoint:
            Trainer(method, session, checkpoint, TrainingProgress(1, 1)).fit(wrong)
    return waits


def of_this_file(waits: Waits, reason: str) -> int:
    """Lines of tests are none of the package's: the loop that called them is named."""
    return sum(
        count
        for (why, place), count in waits.items()
        if why == reason and place.startswith("learning/training.py")
    )


def test_a_cpu_tensor_in_a_loss_is_refused() -> None:
    with pytest.raises(MixedDevices, match="on the CPU beside GPU tensors"):
        planted(
            lambda method, batch: (method.head(method.features(batch.images)) + torch.ones(3)).sum()
        )


def test_a_number_that_a_step_reads_is_counted() -> None:
    def read(method: Method, batch: Batch) -> Tensor:
        return batch.images.mean() * batch.images.mean().item()

    assert of_this_file(planted(read), "a number is read") == 3


def test_a_blocking_copy_in_a_step_is_counted() -> None:
    def copy_over(method: Method, batch: Batch) -> Tensor:
        return batch.images.mean() * torch.ones(2).to(method.device).sum()

    reason = "a tensor is copied to the device and waited for"
    assert of_this_file(planted(copy_over), reason) == 3


def test_a_boolean_index_in_a_step_is_counted() -> None:
    def choose(method: Method, batch: Batch) -> Tensor:
        return batch.images[batch.labels == 0].sum()

    assert of_this_file(planted(choose), "a boolean index has to be counted") == 3


@pytest.mark.parametrize("name", ["der_dacr", "geodl", "meta_dr"])
def test_an_interrupted_training_ends_in_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DACR_CHECKPOINT_SECONDS", "0")
    params = small_params(*short(f"method={name}", "train.epochs=3"))
    first, second, _ = sessions()
    with PretendGpu():
        start = make_method(params, pretend_device())
        start.begin(first)
        train(start, first, "first")
        whole, killed = (make_method(params, pretend_device()) for _ in range(2))
        weights = {
            k: v.clone()
            for k, v in start.representation.features.extractors[0].state_dict().items()
        }
        for method in (whole, killed):
            method.representation.restore([copy.copy(weights)])
            method.classifier.restore({k: v.clone() for k, v in start.classifier.lasting().items()})
            method.place()
            method.begin(second)
        rows = train(whole, second, "whole")

        class Killed(Exception):
            pass

        class Deadly(TrainingProgress):
            def epoch(self, phase: str, epoch: int, *rest: object) -> None:
                if epoch == 2:
                    raise Killed

        with pytest.raises(Killed), Checkpoint("killed") as checkpoint:
            Trainer(killed, second, checkpoint, Deadly(1, 1)).fit(next(killed.phases(second)))
        assert train(killed, second, "killed") == rows
        for a, b in zip(whole.parameters(), killed.parameters(), strict=True):
            assert torch.equal(a.cpu(), b.cpu())


@pytest.mark.parametrize("room", [0, 10**9])
def test_images_reach_the_device_with_and_without_room(room: int) -> None:
    data = sessions()[0].data
    batches = list(torch.randperm(len(data)).split(10))
    with PretendGpu():
        feed = Feed(data.images, len(data), pretend_device(), room)
        with counting_waits() as waits:
            found = [(p.cpu(), images.cpu()) for p, images in feed.batches(batches)]
        assert of_this_file(waits, "a tensor is copied to the device and waited for") == 0
    for positions, (own, images) in zip(batches, found, strict=True):
        assert torch.equal(own, positions)
        assert torch.equal(images, data.images(positions))
