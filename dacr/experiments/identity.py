"""The identity of an experiment: a short name for all that can change its result.

Two runs of one name and one identity ran the same code with the same configuration.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from dacr.experiments.tables import read_yaml
from dacr.runtime.code import essence_hash, experiment_identity

CONF, SCHEDULES = Path("conf"), Path("data/schedules")


@cache
def identity(benchmark: str, split: str, method: str) -> str:
    """Of an experiment without overrides; those are part of its name."""
    groups = {"benchmark": benchmark, "split": split, "method": method}
    chosen = {group: configuration(group, name) for group, name in groups.items()}
    named = [(own.get("data") or {}).get("sources") for own in chosen["benchmark"]]
    sources = next((own for own in named if isinstance(own, list)), [])
    content = {
        "code": experiment_identity(method, sources),
        "configuration": [read_yaml(CONF / "config.yaml"), chosen],
        "plugins": {
            str(file): essence_hash(file.read_text(encoding="utf-8"))
            for file in sorted((CONF / "plugins").rglob("*.py"))
        },
        "schedules": {
            str(file): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(SCHEDULES.glob("*.csv"))
        },
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def configuration(group: str, name: str) -> list[dict[str, Any]]:
    """The content of a choice's file, and of those that its ``defaults`` build upon."""
    folder = CONF if name.startswith("/") else CONF / group
    content = read_yaml(folder / f"{name.lstrip('/')}.yaml")
    below = [own for own in content.get("defaults", []) if isinstance(own, str) and own != "_self_"]
    return [content, *(file for own in below for file in configuration(group, own))]
