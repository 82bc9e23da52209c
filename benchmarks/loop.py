"""What the training loop costs beside the network: data, augmentation, losses, logging."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from dacr.config import Params, load_params
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session, open_session
from dacr.learning.training import Batch, Phase, Trainer
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.runtime.progress import TrainingProgress

CLASSES = 20


def parameters(backbone: str, batch_size: int) -> Params:
    """The committed parameters, with another backbone and the paper's augmentation of CIFAR."""
    params = load_params()
    train = params.train.model_copy(update={"batch_size": batch_size, "epochs": 10**6})
    augmentation = params.augmentation.model_copy(update={"name": "crop_flip_jitter"})
    model = params.model.model_copy(update={"backbone": backbone})
    changes = {"train": train, "augmentation": augmentation, "model": model, "method": "replay"}
    return params.model_copy(update={**changes, "options": {}})


def random_session(count: int, folder: Path) -> Session:
    """A session of random images that are memory-mapped, as in a real run."""
    generator = np.random.default_rng(0)
    file = folder / "images.npy"
    np.save(file, generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8))
    images = np.load(file, mmap_mode="r")
    ids, labels = np.arange(count), generator.integers(0, CLASSES, count)
    nothing = np.empty(0, np.int64)
    return open_session(1, images, [], (ids, labels), (nothing, nothing))


def bare_step(method: Method, phase: Phase, batch: Batch) -> Callable[[], None]:
    """Forward, backward and step on a batch that is ready, and nothing else."""
    train = method.params.train
    optimizer = torch.optim.SGD(
        phase.parameters,
        lr=1e-3,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        fused=True,
    )
    method.train()

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(
            method.head(method.features(batch.images)), batch.labels
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


class SilentProgress(TrainingProgress):
    """The same book-keeping without lines between the measurements."""

    def epoch(self, *_: object) -> None:
        pass


def loop_efficiency(
    backbone: str, batch_size: int, batches: int, rounds: int
) -> tuple[float, float]:
    """Images per second of the real loop and of the bare step, measured alternately."""
    params = parameters(backbone, batch_size)
    count = batch_size * batches
    with tempfile.TemporaryDirectory() as folder:
        session = random_session(count, Path(folder))
        method = make_method(params, torch.device("cpu"))
        method.begin(session)
        (phase,) = method.phases(session)
        with Checkpoint(f"benchmark-{backbone}") as checkpoint:
            trainer = Trainer(method, session, checkpoint, SilentProgress(1, 1))
            generator = torch.Generator().manual_seed(0)
            positions = torch.arange(batch_size)
            (batch,) = trainer._batches(phase, [positions], generator)
            step = bare_step(method, phase, batch)
            loops, bares = [], []
            for number in range(rounds + 1):
                started = time.perf_counter()
                one_more = Phase(**{**vars(phase), "epochs": number + 1})
                trainer.fit(one_more)
                between = time.perf_counter()
                for _ in range(batches):
                    step()
                ended = time.perf_counter()
                if number:  # the first round warms up
                    loops.append(count / (between - started))
                    bares.append(count / (ended - between))
    return median(loops), median(bares)
