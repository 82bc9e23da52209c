"""What a sweep asks of git: the revision, what is not committed, and the identity of the code.

Experiments run at the committed revision. Which of its files can change a result is known from
``dvc.yaml``: a change of another file leaves what was measured as good as it was.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dacr.errors import UserError
from dacr.runtime.git import git

EVERY_EXPERIMENT = (
    "conf/config.yaml",
    "conf/plugins",
    "dacr/data/augmentation.py",
    "dacr/data/benchmark.py",
    "dacr/data/packing.py",
    "dacr/data/restriction.py",
    "dacr/data/splits.py",
    "dacr/evaluation/metrics.py",
    "dacr/evaluation/plots.py",
    "dacr/learning",
    "dacr/sessions",
    "dacr/methods/base.py",
    "dacr/model",
    "data/schedules",
)
"""Code and configuration that every experiment runs; an experiment adds its own choices."""
SOURCES = Path("dacr/data/sources")
SHARED_SOURCES = ("__init__", "base")
WATCHED = (
    *("conf", "dacr", "data/schedules", "dvc.yaml", "stages"),
    *(
        f":(exclude){path}"
        for path in ("conf/paper", "conf/paper.yaml", "dacr/cli", "dacr/experiments", "dacr/report")
    ),
)
"""What an experiment reads; the tables and this command only choose among experiments."""


def require_project() -> None:
    """The commands read conf/ and write .dacr/ and reports/ where they are called."""
    missing = [name for name in ("dvc.yaml", "conf/config.yaml", ".dvc") if not Path(name).exists()]
    if missing:
        raise UserError(f"no {missing[0]} here; call `dacr paper` in the folder of the project")


def head() -> str:
    return git("rev-parse", "HEAD")


def uncommitted() -> list[str]:
    """Files that an experiment would need, and that are not as the committed revision has them."""
    status = git("status", "--porcelain", "--untracked-files=all", "--", *WATCHED)
    return [line[3:] for line in status.splitlines()]


def require_committed() -> None:
    if changed := uncommitted():
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise UserError(
            f"{changed[0]}{more} is not committed, and experiments run at the committed "
            "revision; commit or `git stash -u` first"
        )


@cache
def blobs(revision: str) -> dict[str, str]:
    """The id of every file's content at a revision."""
    lines = git("ls-tree", "-r", revision).splitlines()
    return {path: meta.split()[2] for meta, path in (line.split("\t", 1) for line in lines)}


def code_of(revision: str, benchmark: str, split: str, method: str) -> str:
    """A short name for all committed content that can change the result of an experiment."""
    groups = {"benchmark": benchmark, "split": split, "method": method}
    paths = [*EVERY_EXPERIMENT]
    for group, name in groups.items():
        paths += [str(path) for path in configuration(group, name)]
    paths += [f"dacr/methods/{name}.py" for name in method_files(method)]
    paths += [str(path) for path in source_files(benchmark)]
    own = sorted((path, blob) for path, blob in blobs(revision).items() if _within(path, paths))
    return hashlib.sha256(repr(own).encode()).hexdigest()[:12]


def configuration(group: str, name: str) -> list[Path]:
    """The file of a choice, with those that its ``defaults`` build upon."""
    folder = Path("conf") if name.startswith("/") else Path("conf") / group
    path = folder / f"{name.lstrip('/')}.yaml"
    if not path.exists():
        return []
    content = _content(path)
    below = [own for own in content.get("defaults", []) if isinstance(own, str) and own != "_self_"]
    return [path, *(file for own in below for file in configuration(group, own))]


def source_files(benchmark: str) -> list[Path]:
    """The files of dacr/data/sources that a benchmark reads with, and those that they import.

    A source that somebody adds leaves what was measured on other benchmarks as good as it was.
    """
    waiting = {*SHARED_SOURCES, *source_names(benchmark)}
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = SOURCES / f"{name}.py"
        found.add(name)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        waiting |= set(re.findall(r"^from dacr\.data\.sources\.(\w+) import", text, re.M)) - found
    return [SOURCES / f"{name}.py" for name in sorted(found)]


def source_names(benchmark: str) -> set[str]:
    """What ``data.sources`` of a benchmark names, its own or that of a file it builds upon."""
    for path in configuration("benchmark", benchmark):
        data = _content(path).get("data") or {}
        if sources := data.get("sources"):
            return {name for files in sources.values() for name in files}
    return set()


def method_files(method: str) -> list[str]:
    """The files of dacr/methods that a method runs, as its configuration says."""
    path = Path("conf/method") / f"{method}.yaml"
    if not path.exists():
        return [method]
    return list(_content(path).get("code", [method]))


def _content(path: Path) -> dict[str, Any]:
    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read ({reason}); correct it") from None
    return content if isinstance(content, dict) else {}


@cache
def _parsed(text: str) -> Any:
    """Every experiment of a table asks for the same few files, and YAML is slow."""
    return yaml.safe_load(text)


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
