"""Small real things to learn with: parameters, images and sessions for tests."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from dvc.utils.hydra import load_hydra_plugins
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from dacr.config import Params
from dacr.learning.session import Session, open_session
from dacr.model.backbones import ARCHITECTURES, Architecture
from tests.shelf import ROOT, digest, shelved

TINY = "tiny"
ARCHITECTURES[TINY] = Architecture(widths=(8, 16), blocks=1, stem_stride=2)
THIN = f"model.backbone={TINY}"
"""A block without a projection, one with it, and no more; other processes do not know it."""
SMALL = (
    "benchmark=idigits_mini",
    THIN,
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


def composed(overrides: Sequence[str]) -> dict[Any, Any]:
    """What ``compose`` writes: the choices of files once, and what is set on top by Hydra, too."""
    chosen = tuple(own for own in overrides if (ROOT / "conf" / own.split("=")[0]).is_dir())
    config = deepcopy(_chosen(chosen))
    set_on_top = OverridesParser.create().parse_overrides(
        [own for own in overrides if own not in chosen]
    )
    ConfigLoaderImpl._apply_overrides_to_config(set_on_top, config)
    content = OmegaConf.to_container(config, resolve=True)
    assert isinstance(content, dict)
    return content


@cache
def _chosen(groups: tuple[str, ...]) -> DictConfig:
    made = shelved(
        f"chosen-{digest(_conf(), *groups, hydra.__version__)}", partial(_choose, groups)
    )
    _load_resolvers()
    config = pickle.loads(made.read_bytes())
    assert isinstance(config, DictConfig)
    return config


@cache
def _conf() -> list[str]:
    files = (file for kind in ("yaml", "py") for file in (ROOT / "conf").rglob(f"*.{kind}"))
    return sorted(str(file.relative_to(ROOT)) for file in files)


@cache
def _load_resolvers() -> None:
    load_hydra_plugins(str(ROOT / "conf/plugins"))


def _choose(groups: Sequence[str], out: Path) -> None:
    _load_resolvers()
    with initialize_config_dir(str(ROOT / "conf"), version_base=None):
        out.write_bytes(pickle.dumps(compose("config", overrides=[*groups])))


BOUNDS = {"method=finetune", "method=joint"}
"""They have a memory of their own size, and refuse any other."""


def small_params(*overrides: str) -> Params:
    """The embedded benchmark's parameters, cut down to 8×8 images and two epochs."""
    chosen = (*SMALL, *overrides)
    if BOUNDS & {*overrides}:
        chosen = tuple(own for own in chosen if not own.startswith("memory.size="))
    return _validated(chosen)


@cache
def _validated(chosen: tuple[str, ...]) -> Params:
    return Params.model_validate(composed(chosen))


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
