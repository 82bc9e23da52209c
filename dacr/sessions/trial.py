"""A trial of a device: every method through two sessions of tiny pictures, there and on the CPU.

What a real run needs of a device shows here in a minute: that all operations exist, that values
agree with the CPU's, that a second run gives the same bits, and that the loop keeps the device
busy.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from dacr.config import Params, load_params
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session, open_session
from dacr.learning.training import Batch, Phase, Trainer
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.model.flops import forward_flops
from dacr.runtime.compose import compose
from dacr.runtime.device import make_deterministic
from dacr.runtime.progress import TrainingProgress

SIDE, CLASSES, EACH = 16, 6, 24
TINY = (
    "benchmark=idigits_mini",
    f"data.image_size={SIDE}",
    f"augmentation.input_size={SIDE}",
    "augmentation.name=crop_flip_jitter",
    "train.epochs=2",
    "train.batch_size=24",
    "train.threads=1",
    "train.portable=false",
    "mixture.components=3",
    "facts.second_stage_epochs=2",
    "facts.fine_tune_epochs=2",
)
TOLERANCE = 0.02
"""How far the losses of the first epoch may be from the CPU's, relatively."""


@dataclass(frozen=True)
class Trial:
    """What came of two sessions."""

    losses: dict[str, float]
    """Of the very first epoch: later ones make more of the last bits."""
    digest: str
    """Of all weights."""
    accuracy: float
    """On the images of the last session."""

    def close_to(self, other: Trial) -> bool:
        return all(
            abs(value - other.losses[name]) <= TOLERANCE * max(abs(other.losses[name]), 0.05)
            for name, value in self.losses.items()
        )


@cache
def tiny_params(method: str, *overrides: str) -> Params:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.yaml"
        compose([*TINY, f"method={method}", *overrides], path)
        return load_params(path)


def tiny_session(index: int) -> Session:
    """Session 1 brings four classes, session 2 two of them in other colours and two new ones."""
    classes = [0, 1, 2, 3] if index == 1 else [2, 3, 4, 5]
    labels = np.repeat(classes, EACH)
    memory = np.repeat([0, 1, 2, 3], 4) if index == 2 else np.empty(0, np.int64)
    images = np.concatenate([_pictures(labels, index), _pictures(memory, 1)])
    ids = np.arange(len(images))
    cut = len(labels)
    seen = [] if index == 1 else [0, 1, 2, 3]
    return open_session(index, images, seen, (ids[:cut], labels), (ids[cut:], memory))


def _pictures(labels: NDArray[np.int64], domain: int) -> NDArray[np.uint8]:
    """A bright bar at the height of the class on a background of the domain's colour."""
    draw = np.random.default_rng(domain)
    images = draw.integers(0, 60, (len(labels), SIDE, SIDE, 3), dtype=np.uint8)
    images[:, :, :, domain % 3] += 90
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] = 230 - image[2 * label : 2 * label + 3]
    return images


class _Silent(TrainingProgress):
    """Counts and prints nothing."""

    def epoch(self, *_: object) -> None:
        """Nobody waits for it."""


@contextmanager
def _scratch(name: str) -> Iterator[Checkpoint]:
    with Checkpoint(f"trial-{os.getpid()}-{name}") as checkpoint, redirect_stdout(io.StringIO()):
        yield checkpoint


def trial(params: Params, device: torch.device) -> Trial:
    """Two sessions from begin to prediction."""
    make_deterministic(params.train)
    method = make_method(params, device)
    rows: list[dict[str, float]] = []
    for index in (1, 2):
        session = tiny_session(index)
        method.begin(session)
        with _scratch(params.method) as checkpoint:
            trainer = Trainer(method, session, checkpoint, _Silent(index, 2))
            for phase in method.phases(session):
                rows += trainer.fit(phase)
        features = method.session_features(session)
        method.consolidate(session, features)
        method.exemplars(session, features)
        method.eval()
        with torch.no_grad():
            images = session.data.images(torch.arange(len(session.data)))
            predicted = method.answer(method.features_of(images)).rows.cpu()
    losses = {name: value for name, value in rows[0].items() if name != "epoch"}
    accuracy = (predicted == session.data.labels).double().mean().item()
    return Trial(losses, _digest(method), accuracy)


def _digest(method: Method) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(method.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def loop_share(params: Params, device: torch.device, rounds: int = 5) -> tuple[float, float]:
    """Images per second of the loop, and its share of the bare step on a batch that is ready."""
    make_deterministic(params.train)
    session = tiny_session(1)
    method = make_method(params, device)
    method.begin(session)
    (phase,) = method.phases(session)
    with _scratch("loop") as checkpoint:
        trainer = Trainer(method, session, checkpoint, _Silent(1, 1))
        positions = torch.arange(params.train.batch_size)
        (batch,) = trainer._batches(phase, [positions], epoch=0)
        steps = -(-len(session.data) // params.train.batch_size)
        step = _bare_step(method, phase, batch)
        loops, bares = [], []
        for number in range(1, rounds + 2):
            longer = replace(phase, epochs=number)
            loops.append(_seconds(partial(trainer.fit, longer), device))
            bares.append(_seconds(lambda: [step() for _ in range(steps)], device))
    rate = len(session.data) / median(loops[1:])  # the first round warms up
    return rate, median(bares[1:]) / median(loops[1:])


NETWORKS = {
    "cpu": {"resnet8": (32, 32), "resnet8_wide": (32, 32)},
    "cuda": {"resnet32": (32, 128), "resnet18_32": (32, 128), "resnet18_112": (112, 256)},
}
"""What benchmarks train on a kind of device, with the sizes of an image and of a batch."""


def training_rates(device: torch.device, steps: int = 10) -> dict[str, float]:
    """Sustained FLOP/s in training each network: `dacr paper plan --device here` counts on them."""
    return {
        name: _rate(tiny_params("replay", f"model.backbone={name}", *_sized(*shape)), device, steps)
        for name, shape in NETWORKS["cpu" if device.type == "cpu" else "cuda"].items()
    }


def _sized(size: int, batch: int) -> list[str]:
    return [
        f"data.image_size={size}", f"augmentation.input_size={size}", f"train.batch_size={batch}",
        "train.precision=tf32", "augmentation.name=none",
    ]  # fmt: skip


def _rate(params: Params, device: torch.device, steps: int) -> float:
    """A step counts three passes: forward, and twice as much backward."""
    make_deterministic(params.train)
    session, size = tiny_session(1), params.augmentation.input_size
    method = make_method(params, device)
    method.begin(session)
    (phase,) = method.phases(session)
    labels = torch.arange(params.train.batch_size, device=device) % session.n_seen
    images = torch.rand(len(labels), 3, size, size, device=device)
    images = images.to(memory_format=torch.channels_last)
    step = _bare_step(method, phase, Batch(images, labels, labels < 0, labels))
    rounds = [_seconds(lambda: [step() for _ in range(steps)], device) for _ in range(4)]
    passes = 3 * steps * len(labels)  # the first round warms up
    return passes * forward_flops(params.model.backbone, size) / median(rounds[1:])


def _bare_step(method: Method, phase: Phase, batch: Batch) -> Callable[[], None]:
    optimizer = torch.optim.SGD(phase.parameters, lr=1e-4, momentum=0.9, fused=True)
    method.train()

    def step() -> None:
        loss = torch.stack(list(phase.losses(batch).values())).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
