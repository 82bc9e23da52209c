"""Small real things to learn with: parameters, images and sessions for tests."""

from __future__ import annotations

from functools import cache, partial
from importlib.metadata import version

import numpy as np
import torch

from dacr.config import Params, parse_yaml
from dacr.learning.session import Session, open_session
from dacr.runtime.compose import compose
from tests.shelf import ROOT, digest, shelved

SMALL = (
    "benchmark=idigits_mini",
    "train.threads=1",
    "train.portable=false",  # torch is loaded already
    "train.batch_size=8",
    "train.epochs=2",
    "data.image_size=8",
    "augmentation.input_size=8",
    "mixture.components=3",
    "memory.size=8",
    "facts.second_stage_epochs=2",
    "facts.fine_tune_epochs=2",
)


@cache
def _composed(overrides: tuple[str, ...]) -> str:
    key = digest(_conf(), *map(version, ("dvc", "hydra-core", "omegaconf")), *overrides)
    return shelved(f"params-{key}", partial(compose, [*overrides])).read_text()


@cache
def _conf() -> list[str]:
    """What parameters are composed from."""
    files = sorted(path for path in (ROOT / "conf").rglob("*") if path.suffix in (".yaml", ".py"))
    return [path.relative_to(ROOT).as_posix() for path in files]


BOUNDS = {"method=finetune", "method=joint"}
"""They have a memory of their own size, and refuse any other."""


def small_params(*overrides: str) -> Params:
    """The embedded benchmark's parameters, cut down to 8×8 images and two epochs."""
    chosen = (*SMALL, *overrides)
    if BOUNDS & {*overrides}:
        chosen = tuple(own for own in chosen if not own.startswith("memory.size="))
    return Params.model_validate(parse_yaml(_composed(chosen)))


def pictures(labels: list[int], domains: list[int], seed: int = 0) -> np.ndarray:
    """8×8 images in which the class is a bright row and the domain a background colour."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 40, (len(labels), 8, 8, 3), dtype=np.uint8)
    for image, label, domain in zip(images, labels, domains, strict=True):
        image[:, :, domain % 3] += 80
        image[label % 8] = 250 - image[label % 8]
    return images


def small_session(
    index: int,
    seen: list[int],
    incoming: list[int],
    memory: list[int],
    domain: int = 0,
    each: int = 6,
) -> Session:
    """A session with ``each`` images of every incoming class and two of every class in memory."""
    labels = np.repeat(incoming, each).tolist() + np.repeat(memory, 2).tolist()
    images = pictures(labels, [domain] * len(labels), seed=index)
    ids = np.arange(len(labels))
    cut = len(incoming) * each
    array = np.asarray(labels)
    return open_session(index, images, seen, (ids[:cut], array[:cut]), (ids[cut:], array[cut:]))


CPU = torch.device("cpu")
