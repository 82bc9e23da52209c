"""A benchmark and a split, composed from ``conf/`` as the pipeline's are, without Hydra.

Only the sections ``data`` and ``schedule`` are composed: what a scenario is made of, and nothing of
a method. ``tests/test_scenarios.py`` holds the two compositions together.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from dacr.config import Data, Schedule, Section, explain
from dacr.errors import UserError
from dacr.scenarios.places import conf_folder

Sections = Mapping[str, Mapping[str, Any]]


class Composed(Section):
    """What a scenario is made of."""

    data: Data
    schedule: Schedule


def benchmarks() -> list[str]:
    return _names("benchmark")


def splits() -> list[str]:
    return _names("split")


def compose(benchmark: str, split: str, changes: Sections | None = None) -> Composed:
    """The sections of ``benchmark`` and ``split`` with ``changes``; a wrong name is one line."""
    for group, name in (("benchmark", benchmark), ("split", split)):
        if name not in _names(group):
            raise UserError(f"there is no {group} {name!r}; known are {', '.join(_names(group))}")
    conf = conf_folder()
    _register_resolvers(conf)
    chosen = (conf / "benchmark" / f"{benchmark}.yaml", conf / "split" / f"{split}.yaml")
    try:
        files = [_content(conf / "config.yaml")[1]]
        for file in chosen:
            files += _with_defaults(file, conf)
        merged = OmegaConf.merge(*files, changes or {})
        sections = {name: OmegaConf.select(merged, name) for name in ("data", "schedule")}
        return Composed.model_validate(
            {name: OmegaConf.to_container(own, resolve=True) for name, own in sections.items()}
        )
    except (OmegaConfBaseException, yaml.YAMLError, OSError) as error:
        raise UserError(f"{benchmark} {split} cannot be composed: {error}") from None
    except ValidationError as error:
        raise UserError(explain(error, f"{benchmark} {split}", "correct it")) from None


def _names(group: str) -> list[str]:
    return sorted(file.stem for file in (conf_folder() / group).glob("*.yaml"))


def _with_defaults(file: Path, conf: Path) -> list[dict[str, Any]]:
    """A file behind what its ``defaults`` list names: ``/cpu`` in conf/, ``icifar20`` beside it."""
    names, content = _content(file)
    files: list[dict[str, Any]] = []
    for name in names:
        if name == "_self_":
            files.append(content)
        else:
            folder = conf if name.startswith("/") else file.parent
            files += _with_defaults(folder / f"{name.removeprefix('/')}.yaml", conf)
    return files


def _content(file: Path) -> tuple[list[str], dict[str, Any]]:
    """The ``defaults`` of a file, and the rest of it."""
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content.pop("defaults", ["_self_"]), content


@cache
def _register_resolvers(conf: Path) -> None:
    """``${sessions:…}`` and its like, as Hydra's plugin defines them."""
    for file in sorted((conf / "plugins/hydra_plugins").glob("*.py")):
        runpy.run_path(str(file))
