"""The one training loop. Methods say what is trained on what, and with which losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dacr.config import Params, Train
from dacr.data.augmentation import Augmentation, Draw, draw_of
from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session, TrainingView
from dacr.rng import torch_generator
from dacr.runtime.device import send
from dacr.runtime.progress import TrainingProgress

Losses = dict[str, Tensor]


class Learner(nn.Module):
    """What the loop trains: a network with its parameters, device and augmentation."""

    params: Params
    augmentation: Augmentation
    device: torch.device


@dataclass(frozen=True)
class Batch:
    """A mini-batch of D̃_t on the device."""

    images: Tensor
    labels: Tensor
    is_memory: Tensor
    positions: Tensor
    """Where the samples stand in D̃_t: what was computed once per session is looked up by it."""
    view: int = 0
    """Which of their training views the images are, where these are fixed for the session."""


@dataclass(frozen=True)
class Phase:
    """One training run of a session; most methods have one, some a balanced second stage."""

    name: str
    epochs: int
    lr: float
    milestones: tuple[int, ...]
    parameters: list[dict[str, object]]
    """Parameter groups; a group may set its own ``weight_decay``."""
    losses: Callable[[Batch], Losses]
    """The weighted terms of the loss; the loop descends on their sum."""
    training: bool = True
    """False leaves the whole network in eval mode, for phases that train the head alone."""
    start_epoch: Callable[[int], None] = lambda epoch: None
    positions: Tensor | None = None
    """The part of D̃_t to train on; all of it if None."""
    images: bool = True
    """False where the losses look up what they need by position."""
    warm_up: bool = False
    """The learning rate grows linearly, from epoch to epoch, and reaches ``lr`` in the last."""


def learning_rate(phase: Phase, train: Train, progress: float) -> float:
    """The learning rate after ``progress`` epochs (a fraction inside an epoch)."""
    if phase.warm_up:
        return phase.lr * (math.floor(progress) + 1) / phase.epochs
    if train.schedule == "cosine":
        return phase.lr * 0.5 * (1 + math.cos(math.pi * progress / phase.epochs))
    passed = sum(1 for milestone in phase.milestones if progress >= milestone)
    return float(phase.lr * train.gamma**passed)


class Trainer:
    """Runs the phases of a session: shuffles, augments, steps, logs, and keeps a checkpoint."""

    def __init__(
        self,
        learner: Learner,
        session: Session,
        checkpoint: Checkpoint,
        progress: TrainingProgress,
    ) -> None:
        self.learner = learner
        self.train, self.seed = learner.params.train, learner.params.seed
        self.augmentation, self.device = learner.augmentation, learner.device
        self.session = session
        self._labels = send(session.data.labels, self.device)
        self._is_memory = send(session.data.is_memory, self.device)
        self.checkpoint = checkpoint
        self.progress = progress

    def fit(self, phase: Phase) -> list[dict[str, float]]:
        """Train ``phase``; return the mean of each loss term, one row per epoch."""
        module = self.learner
        optimizer = torch.optim.SGD(
            phase.parameters,
            lr=phase.lr,
            momentum=self.train.momentum,
            weight_decay=self.train.weight_decay,
            fused=True,
        )
        rows = self.checkpoint.restore(phase.name, module, optimizer)
        size = len(self.session.data) if phase.positions is None else len(phase.positions)
        self.progress.plan(phase.epochs * size)
        self.progress.skip(len(rows) * size)
        for epoch in range(len(rows), phase.epochs):
            phase.start_epoch(epoch)
            module.train(phase.training)
            losses = self._epoch(phase, epoch, optimizer)
            rows.append({"epoch": epoch + 1, **losses})
            self.checkpoint.keep(phase.name, module, optimizer, rows)
            self.progress.epoch(phase.name, epoch + 1, phase.epochs, losses)
        self.checkpoint.write()
        return rows

    def _epoch(
        self, phase: Phase, epoch: int, optimizer: torch.optim.Optimizer
    ) -> dict[str, float]:
        sums: Losses = {}
        batches = shuffle(
            self.session.data, phase.positions, self.train.batch_size, self._generator(phase, epoch)
        )
        count = 0
        for number, batch in enumerate(self._batches(phase, batches, epoch)):
            rate = learning_rate(phase, self.train, epoch + number / len(batches))
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("lr_factor", 1.0)
            losses = phase.losses(batch)
            total = torch.stack(list(losses.values())).sum()
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            optimizer.step()
            n = len(batch.labels)
            count += n
            for name, value in losses.items():
                # Stays on the device: reading it here would make the host wait for every step.
                sums[name] = (
                    sums.get(name, torch.zeros((), device=self.device)) + value.detach() * n
                )
            self.progress.step(n)
        totals = torch.stack(list(sums.values())).tolist()  # the host waits here, once per epoch
        means = {name: total / count for name, total in zip(sums, totals, strict=True)}
        if not all(math.isfinite(value) for value in means.values()):
            raise UserError(
                f"the loss of session {self.session.index} is not finite in epoch {epoch + 1} of "
                f"{phase.name} ({means}); lower train.lr (the last good epoch is kept)"
            )
        return means

    def _generator(self, phase: Phase, epoch: int) -> torch.Generator:
        return torch_generator(self.seed, "shuffle", self.session.index, phase.name, epoch)

    def _batches(self, phase: Phase, batches: list[Tensor], epoch: int) -> Iterator[Batch]:
        """Gather and augment on the device; the parameters of augmentation come from the CPU."""
        if not phase.images:
            for positions in batches:
                yield self._batch(send(positions, self.device), NO_IMAGES)
            return
        augment, view = self._augment(phase, epoch), epoch % (self.augmentation.views or 1)
        fed = self.session.data.feed(self.device).batches(batches)
        for own, (positions, images) in zip(batches, fed, strict=True):
            yield self._batch(positions, augment(own, images), view)

    def _augment(self, phase: Phase, epoch: int) -> Callable[[Tensor, Tensor], Tensor]:
        """What happens in an epoch to a batch, given by positions (on the CPU) and images."""
        augmentation, views, index = self.augmentation, self.augmentation.views, self.session.index
        if views is None:
            fresh = torch_generator(self.seed, "augment", index, phase.name, epoch)
            return lambda positions, images: augmentation.train(images, fresh)
        draw = draw_view(augmentation, self.session, self.seed, epoch % views)
        return lambda positions, images: augmentation.apply(images, draw_of(draw, positions))

    def _batch(self, positions: Tensor, images: Tensor, view: int = 0) -> Batch:
        return Batch(images, self._labels[positions], self._is_memory[positions], positions, view)


NO_IMAGES = torch.empty(0)


def shuffle(
    view: TrainingView, positions: Tensor | None, batch_size: int, generator: torch.Generator
) -> list[Tensor]:
    """The positions of one epoch in random order, cut into batches; a lone rest joins the last.

    Batch normalisation has no variance to work with in a batch of one.
    """
    chosen = torch.arange(len(view)) if positions is None else positions
    order = chosen[torch.randperm(len(chosen), generator=generator)]
    batches = list(order.split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        rest = batches.pop()
        batches[-1] = torch.cat([batches[-1], rest])
    return batches


def balanced(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Positions of equally many random samples of every class: as many as the smallest has.

    A class without any sample (its memory is empty) cannot be balanced and is left out.
    """
    support = labels.bincount()
    size = int(support[support > 0].min())
    order = torch.randperm(len(labels), generator=generator)
    return torch.cat([order[labels[order] == row][:size] for row in range(len(support))])


def draw_view(augmentation: Augmentation, session: Session, seed: int, view: int) -> Draw:
    """The augmentation of all of D̃_t in a fixed view, in order of position."""
    shape = session.data.images(torch.arange(1)).shape[1:]
    generator = torch_generator(seed, "view", session.index, view)
    return augmentation.draw(torch.Size((len(session.data), *shape)), generator)


@torch.no_grad()
def extract(
    view: TrainingView,
    function: Callable[[Tensor], Tensor],
    augmentation: Augmentation,
    device: torch.device,
    draw: Draw | None = None,
    batch_size: int = 256,
) -> Tensor:
    """``function`` of every image, kept on the device, in order of position.

    The images are in test transform, or augmented by ``draw``.
    """
    batches = torch.arange(len(view)).split(batch_size)
    fed = view.feed(device).batches(batches)
    inputs = (
        augmentation.test(images)
        if draw is None
        else augmentation.apply(images, draw_of(draw, positions))
        for positions, (_, images) in zip(batches, fed, strict=True)
    )
    return torch.cat([function(own).float() for own in inputs])
