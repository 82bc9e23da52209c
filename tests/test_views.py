"""A fixed number of training views per image: which they are, and what frozen networks keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dacr.data.augmentation import Augmentation
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session
from dacr.learning.training import Batch, Trainer
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.methods.parts.setting import Teacher
from dacr.rng import torch_generator
from dacr.runtime.progress import TrainingProgress
from tests.learning import CPU, small_params, small_session
from tests.teaching import disturb

VIEWS = 3
EPOCHS = 7
FIXED = (f"augmentation.views={VIEWS}", f"train.epochs={EPOCHS}", "loss.lambda=0", "memory.size=20")
AUGMENTATIONS = ["crop_flip_jitter", "resized_crop_flip"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def two_sessions() -> list[Session]:
    return [
        small_session(1, [], [0, 1], [], each=8),
        small_session(2, [0, 1], [1, 2], [0, 1], domain=1, each=8),
    ]


def one_by_one(augmentation: Augmentation, session: Session, seed: int, view: int) -> list[Tensor]:
    """The slow reference: view ``view`` of each image of D̃_t, [1, 3, 8, 8] each."""
    images = session.data.images(torch.arange(len(session.data)))
    generator = torch_generator(seed, "view", session.index, view)
    draw = augmentation.draw(images.shape, generator)
    found = []
    for number, image in enumerate(images):
        if hasattr(draw, "boxes"):
            boxes = type(draw.boxes)(*(t[number : number + 1] for t in draw.boxes))
            own = type(draw)(boxes, draw.flip[number : number + 1])
        else:
            own = type(draw)(*(t[number : number + 1] for t in draw))
        found.append(augmentation.apply(image[None], own))
    return found


def batches_of(method: Method, session: Session) -> Iterator[tuple[int, Batch]]:
    """What the training loop hands to the losses, with the epoch."""
    seen: list[Batch] = []
    (phase, *_) = method.phases(session)

    def losses(batch: Batch) -> dict[str, Tensor]:
        seen.append(batch)
        return {"none": next(method.features.newest.parameters()).sum() * 0.0}

    with Checkpoint(f"batches {session.index}") as checkpoint:
        Trainer(method, session, checkpoint, TrainingProgress(1, 1)).fit(
            replace(phase, losses=losses)
        )
    per_epoch, rest = divmod(len(seen), EPOCHS)
    assert rest == 0
    yield from ((number // per_epoch, batch) for number, batch in enumerate(seen))


@pytest.mark.parametrize("batch_size", [5, 8])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_an_epoch_shows_its_view_whatever_the_order(augmentation: str, batch_size: int) -> None:
    choice = f"augmentation.name={augmentation}", f"train.batch_size={batch_size}"
    params = small_params("method=replay", *FIXED, *choice)
    method = make_method(params, CPU)
    session = two_sessions()[0]
    method.begin(session)
    expected = [
        one_by_one(method.augmentation, session, params.seed, view) for view in range(VIEWS)
    ]
    assert not torch.equal(torch.cat(expected[0]), torch.cat(expected[1]))
    for epoch, batch in batches_of(method, session):
        assert batch.view == epoch % VIEWS
        own = [expected[epoch % VIEWS][position] for position in batch.positions.tolist()]
        torch.testing.assert_close(batch.images, torch.cat(own), rtol=0, atol=1e-6)


def frozen_network(method: Method) -> Teacher:
    """Its teacher, whichever part keeps one."""
    if method.representation.old is not None:
        return method.representation.old
    teacher = getattr(method.classifier, "old_logits", None)
    assert isinstance(teacher, Teacher)
    return teacher


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("name", ["icarl", "eeil", "ucir", "geodl", "der", "der_dacr"])
def test_kept_answers_are_those_on_the_images_of_the_batch(name: str, augmentation: str) -> None:
    """… of the network as it was before the session, one image at a time."""
    params = small_params(f"method={name}", *FIXED, f"augmentation.name={augmentation}")
    method = make_method(params, CPU)
    first, second = two_sessions()
    method.begin(first)
    disturb(method, 1)
    method.begin(second)
    teacher = frozen_network(method)
    expected = [
        torch.cat(
            [
                teacher._function(own).detach()
                for own in one_by_one(method.augmentation, second, params.seed, view)
            ]
        )
        for view in range(VIEWS)
    ]
    assert not torch.allclose(expected[0], expected[1], rtol=1e-3)
    for epoch, batch in batches_of(method, second):
        answers = expected[epoch % VIEWS][batch.positions]
        torch.testing.assert_close(teacher(batch), answers, rtol=1e-4, atol=1e-5)
    images = second.data.images(torch.arange(len(second.data)))
    with torch.no_grad():
        plain = teacher._function(method.augmentation.test(images))
    torch.testing.assert_close(teacher.on_session, plain, rtol=1e-4, atol=1e-5)


def test_views_of_other_sessions_and_seeds_are_others() -> None:
    method = make_method(small_params("method=replay", "augmentation.name=crop_flip_jitter"), CPU)
    first, second = two_sessions()
    names = [(first, 1, 0), (first, 1, 1), (first, 2, 0), (second, 1, 0)]
    seen = [
        torch.cat(one_by_one(method.augmentation, *name)[:16]).flatten().tolist() for name in names
    ]
    assert len({tuple(own) for own in seen}) == len(names)


def test_without_augmentation_there_is_one_view_and_no_more_passes() -> None:
    """``views`` is a number of random views; images that never change have one."""
    method = make_method(small_params("method=der", *FIXED), CPU)
    assert method.augmentation.views == 1
    first, second = two_sessions()
    method.begin(first)
    method.begin(second)
    teacher = frozen_network(method)
    images = second.data.images(torch.arange(len(second.data)))
    with torch.no_grad():
        plain = teacher._function(method.augmentation.test(images))
    for _, batch in batches_of(method, second):
        torch.testing.assert_close(teacher(batch), plain[batch.positions])
