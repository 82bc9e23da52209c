"""The identity of an experiment: a short name for all that can change its result.

Two runs of one name and one identity ran the same code with the same configuration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from dacr.experiments.tables import read_yaml
from dacr.runtime import code

CONF, SCHEDULES = Path("conf"), Path("data/schedules")
P = ParamSpec("P")
R = TypeVar("R")


def once_per_folder(function: Callable[P, R]) -> Callable[P, R]:
    """Remember its answers, which depend on ``conf/``: that of the folder one is in."""

    @cache
    def remembered(folder: Path, arguments: Any, named: Any) -> R:
        return function(*arguments, **dict(named))

    @wraps(function)
    def answer(*arguments: P.args, **named: P.kwargs) -> R:
        return remembered(Path.cwd(), arguments, tuple(named.items()))

    return answer


@once_per_folder
def identity(
    benchmark: str, split: str, method: str, others: tuple[tuple[str, str], ...] = ()
) -> str:
    """Of an experiment without overrides, which are part of its name; ``others`` are choices of
    further groups."""
    config = read_yaml(CONF / "config.yaml")
    groups = [entry for entry in config["defaults"] if isinstance(entry, dict)]
    names: dict[str, str] = {group: name for entry in groups for group, name in entry.items()}
    names |= {"benchmark": benchmark, "split": split, "method": method, **dict(others)}
    chosen = {group: configuration(group, name) for group, name in names.items()}
    named = [(own.get("data") or {}).get("sources") for own in chosen["benchmark"]]
    sources = next((own for own in named if isinstance(own, list)), [])
    # A choice may be settings of another method: then that one's code runs.
    runs = next((own["method"] for own in chosen["method"] if "method" in own), method)
    content = {
        "code": experiment_identity(runs, tuple(sources)),
        "configuration": [config, chosen],
        "plugins": {
            str(file): code.essence_hash(file.read_text(encoding="utf-8"))
            for file in sorted((CONF / "plugins").rglob("*.py"))
        },
        "schedules": {
            str(file): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(SCHEDULES.glob("*.csv"))
        },
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def experiment_identity(method: str, sources: tuple[str, ...]) -> str:
    """Of the code alone, which is the same on every split."""
    return code.experiment_identity(method, sources)


def configuration(group: str, name: str) -> list[dict[str, Any]]:
    """The content of a choice's file, and of those that its ``defaults`` build upon."""
    folder = CONF if name.startswith("/") else CONF / group
    content = read_yaml(folder / f"{name.lstrip('/')}.yaml")
    below = [own for own in content.get("defaults", []) if isinstance(own, str) and own != "_self_"]
    return [content, *(file for own in below for file in configuration(group, own))]


def is_group(name: str) -> bool:
    """Whether an override of this name chooses a file of ``conf/``, and sets no parameter."""
    return "." not in name and (CONF / name).is_dir()
