"""The training loop beside the bare step and beside Avalanche, on the same work.

The work is an epoch of the second session of class-incremental replay: ten new classes, and a
memory of the ten old ones that is a third as large. All three train the same network with the same
optimiser and batch size, in one thread and in turn. The loop and Avalanche apply the same
augmentation; the bare step has a batch that is ready. Avalanche reads as torchvision's data sets
do, one PIL image at a time, and computes nothing but the mean loss.

Images per second of processor time are compared: other processes disturb it less than wall time.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dacr.config import Params, load_params
from dacr.data.augmentation import BRIGHTNESS, PADDING
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session, open_session
from dacr.learning.training import Trainer
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.runtime.device import make_deterministic
from dacr.runtime.progress import TrainingProgress

CLASSES, OLD, SIDE = 20, 10, 32
MEMORY = 4
"""One image in so many is of the memory."""
BARE, LOOP, AVALANCHE = "bare step", "this loop", "Avalanche"
INSTALL = "pip install -c constraints.txt -e '.[peers]'"

Epoch = Callable[[], int]
"""Trains for one epoch and returns the number of images."""


@dataclass(frozen=True)
class Work:
    backbone: str
    batch_size: int
    batches: int
    rounds: int

    @property
    def images(self) -> int:
        return self.batch_size * self.batches

    @property
    def memory(self) -> int:
        return self.images // MEMORY


WORKS = (Work("resnet32", 128, 4, 5), Work("resnet8", 32, 64, 9))


@dataclass(frozen=True)
class Rate:
    """Images per second."""

    processor: float
    wall: float


@dataclass(frozen=True)
class Data:
    """The images of the memory, which are of the old classes, and behind them the new ones."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def parameters(work: Work) -> Params:
    """The committed parameters, with another network and the paper's augmentation of CIFAR."""
    params = load_params()
    train = {"batch_size": work.batch_size, "threads": 1}
    changes = {
        "train": params.train.model_copy(update=train),
        "augmentation": params.augmentation.model_copy(update={"name": "crop_flip_jitter"}),
        "model": params.model.model_copy(update={"backbone": work.backbone}),
        "method": "replay",
        "options": {},
    }
    return params.model_copy(update=changes)


def random_data(work: Work, folder: Path) -> Data:
    """Random images that are memory-mapped, as in a real run."""
    generator = np.random.default_rng(0)
    file = folder / "images.npy"
    np.save(file, generator.integers(0, 256, (work.images, SIDE, SIDE, 3), dtype=np.uint8))
    numbers = np.arange(work.images)
    labels = np.where(numbers < work.memory, numbers % OLD, OLD + numbers % (CLASSES - OLD))
    return Data(np.load(file, mmap_mode="r"), labels)


def second_session(work: Work, data: Data) -> Session:
    ids = np.arange(work.images)
    new, old = slice(work.memory, None), slice(work.memory)
    incoming, memory = (ids[new], data.labels[new]), (ids[old], data.labels[old])
    return open_session(2, data.images, list(range(OLD)), incoming, memory)


def method_in(session: Session, params: Params) -> Method:
    """Replay at the beginning of ``session``."""
    method = make_method(params, torch.device("cpu"))
    method.begin(replace(session, index=1, n_old=0, n_seen=session.n_old))
    method.begin(session)
    return method


def optimizer_of(network: nn.Module, params: Params) -> torch.optim.Optimizer:
    train = params.train
    return torch.optim.SGD(
        network.parameters(),
        lr=1e-3,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        fused=True,
    )


def bare_step(work: Work, session: Session, params: Params) -> Epoch:
    """Forward, backward and step on a batch that is ready, and nothing else."""
    method = method_in(session, params)
    optimizer = optimizer_of(method, params)
    positions = torch.arange(work.batch_size)
    images = method.augmentation.train(session.data.images(positions), torch.Generator())
    labels = session.data.labels[positions]
    method.train()

    def epoch() -> int:
        for _ in range(work.batches):
            loss = nn.functional.cross_entropy(method.head(method.features(images)), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return work.images

    return epoch


class SilentProgress(TrainingProgress):
    """The same book-keeping without lines between the measurements."""

    def epoch(self, *_: object) -> None:
        pass


def this_loop(session: Session, params: Params, checkpoint: Checkpoint) -> Epoch:
    method = method_in(session, params)
    (phase,) = method.phases(session)
    trainer = Trainer(method, session, checkpoint, SilentProgress(1, 1))
    numbers = count(1)

    def epoch() -> int:
        trainer.fit(replace(phase, epochs=next(numbers)))  # goes on from its checkpoint
        return len(session.data)

    return epoch


class Network(nn.Module):
    """Images to logits."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.features, self.head = method.features, method.head

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


def avalanche(work: Work, data: Data, session: Session, params: Params) -> Epoch:
    """Avalanche's Naive strategy with its replay plugin, after its first experience."""
    from tests import torchvision_compat  # noqa: F401, I001 (before torchvision)

    from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
    from avalanche.evaluation.metrics import loss_metrics
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin, SupervisedPlugin
    from avalanche.training.supervised import Naive

    class Counter(SupervisedPlugin):
        images = 0

        def after_training_iteration(self, strategy: Any, **_: object) -> None:
            self.images += len(strategy.mb_y)

    counter = Counter()
    network = Network(method_in(session, params))
    from_memory = work.batch_size // MEMORY
    replay = ReplayPlugin(
        work.memory, batch_size=work.batch_size - from_memory, batch_size_mem=from_memory
    )
    strategy = Naive(
        model=network,
        optimizer=optimizer_of(network, params),
        train_mb_size=work.batch_size,
        plugins=[replay, counter],
        evaluator=EvaluationPlugin(loss_metrics(epoch=True), loggers=[]),
    )
    stream = class_incremental_benchmark(
        {"train": PictureFolder(data, params)}, class_order=range(CLASSES), num_experiences=2
    ).train_stream
    strategy.train(stream[0])

    def epoch() -> int:
        before = counter.images
        strategy.train(stream[1])
        return counter.images - before

    return epoch


class PictureFolder(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images one by one through torchvision's transforms, as its own data sets give them."""

    def __init__(self, data: Data, params: Params) -> None:
        from torchvision import transforms

        self.images, self.targets = np.array(data.images), data.labels.tolist()  # in memory
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(params.augmentation.input_size, padding=PADDING),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(brightness=BRIGHTNESS),
                transforms.ToTensor(),
                transforms.Normalize(params.augmentation.mean, params.augmentation.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        from PIL import Image

        image: Tensor = self.transform(Image.fromarray(self.images[number]))
        return image, self.targets[number]


def avalanche_version() -> str | None:
    try:
        return version("avalanche-lib")
    except PackageNotFoundError:
        return None


@contextmanager
def contestants(work: Work) -> Iterator[dict[str, Epoch]]:
    params = parameters(work)
    make_deterministic(params.train)
    with (
        tempfile.TemporaryDirectory() as folder,
        Checkpoint(f"benchmark-{work.backbone}") as checkpoint,
        warnings.catch_warnings(record=True),  # Avalanche asks for its own to be shown
    ):
        data = random_data(work, Path(folder))
        session = second_session(work, data)
        epochs = {
            BARE: bare_step(work, session, params),
            LOOP: this_loop(session, params, checkpoint),
        }
        if avalanche_version():
            epochs[AVALANCHE] = avalanche(work, data, session, params)
        yield epochs


def measure(epoch: Epoch) -> Rate:
    wall, processor = time.perf_counter(), time.process_time()
    images = epoch()
    return Rate(images / (time.process_time() - processor), images / (time.perf_counter() - wall))


def rates(work: Work) -> dict[str, Rate]:
    """The median of each contestant over rounds in which all of them take their turn."""
    with contestants(work) as epochs:
        for epoch in epochs.values():
            epoch()  # warms up
        rounds = [
            {name: measure(epoch) for name, epoch in epochs.items()} for _ in range(work.rounds)
        ]
    return {
        name: Rate(
            median(own[name].processor for own in rounds), median(own[name].wall for own in rounds)
        )
        for name in epochs
    }


def table() -> Iterator[str]:
    """A line for each contestant in each work, with its share of the bare step."""
    installed = avalanche_version()
    if not installed:
        yield f"  Avalanche is not installed and not measured; {INSTALL}"
    yield f"  {'':9} {'batch':>5} {'':16} {'per CPU s':>9} {'per s':>7} {'/ bare step':>11}"
    for work in WORKS:
        found = rates(work)
        for name, rate in found.items():
            label = f"{name} {installed}" if name == AVALANCHE else name
            share = rate.processor / found[BARE].processor
            yield (
                f"  {work.backbone:9} {work.batch_size:5} {label:16} {rate.processor:9.0f} "
                f"{rate.wall:7.0f} {share:11.3f}"
            )
        if AVALANCHE in found:
            times = found[LOOP].processor / found[AVALANCHE].processor
            yield f"  {work.backbone:9} this loop is {times:.2f} times as fast as Avalanche"
