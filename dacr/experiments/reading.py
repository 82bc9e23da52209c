"""The files of an experiment, wherever it is: in the workspace, or in git and DVC's cache.

A name is ``workspace``, an experiment (``dvc exp list``) or a git revision. What git holds
(``params.yaml``, ``dvc.lock``, metrics) is read from there; what DVC holds comes from its cache, or
from a remote if it is not in the cache.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import yaml

from dacr.errors import UserError

WORKSPACE = "workspace"
PARAMS, LOCK = "params.yaml", "dvc.lock"


class _Loader(yaml.SafeLoader):
    """YAML as DVC writes it: ``1e-05`` is a number, which PyYAML takes for text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


@dataclass(frozen=True)
class Stage:
    """What ``dvc.lock`` says of a stage that ran."""

    params: dict[str, Any]
    deps: dict[str, str | None]
    """Each path with its checksum."""
    outs: dict[str, str | None]


NEVER_RAN = Stage({}, {}, {})


class Files(Protocol):
    """The files of one experiment, by their paths inside the project."""

    name: str

    def read(self, path: str) -> bytes | None:
        """The content of a file, None where there is none."""

    def bring(self, path: str, scratch: Path) -> Path:
        """A file or folder as a local path: where it lies, or a copy below ``scratch``."""


class Workspace:
    """What lies in the folders of a project."""

    def __init__(self, root: Path, name: str = WORKSPACE) -> None:
        self.root = root
        self.name = name

    def read(self, path: str) -> bytes | None:
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def bring(self, path: str, scratch: Path) -> Path:
        if not (self.root / path).exists():
            raise UserError(f"{self.root / path} is missing; run `dvc repro` or `dvc pull`")
        return self.root / path


class Revision:
    """What a commit or an experiment of the project holds."""

    def __init__(self, root: Path, name: str) -> None:
        from dvc.api import DVCFileSystem
        from dvc.exceptions import DvcException, NotDvcRepoError
        from dvc.scm import SCMError

        self.name = name
        try:
            self._fs = DVCFileSystem(repo=str(root), rev=name)
            _ = self._fs.repo  # opened late, and only this resolves the name
        except NotDvcRepoError:
            raise UserError(f"{root} is no DVC repository, so it has no {name!r}") from None
        except (SCMError, DvcException, UnicodeError):
            raise UserError(
                f"{name!r} is no experiment (see `dvc exp list -A`), no git revision and not "
                f"{WORKSPACE!r}"
            ) from None

    def read(self, path: str) -> bytes | None:
        try:
            content: bytes = self._fs.read_bytes(path)
        except (FileNotFoundError, IsADirectoryError):
            return None
        except Exception as error:
            raise self._unreachable(path, error) from None
        return content

    def bring(self, path: str, scratch: Path) -> Path:
        target = scratch / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not self._fs.exists(path):
                raise FileNotFoundError(path)
            self._fs.get(path, str(target), recursive=self._fs.isdir(path))
        except Exception as error:
            raise self._unreachable(path, error) from None
        return target

    def _unreachable(self, path: str, error: Exception) -> UserError:
        """Every kind of remote has errors of its own: no credentials, no network, no plugin."""
        from dvc.exceptions import DvcException

        where = "is neither in DVC's cache nor in a remote"
        if not isinstance(error, FileNotFoundError | DvcException):
            reason = str(error) or type(error).__name__
            where = f"is not in DVC's cache, and the remote cannot be read ({reason})"
        return UserError(
            f"{path} of {self.name} {where}; bring it with `dvc fetch` or `dvc exp pull`, or run "
            "the experiment again"
        )


def project_root() -> Path:
    """The project around the current folder."""
    here = Path.cwd()
    if root := project_around(here):
        return root
    raise UserError(f"{here} is not inside a dacr project: no folder above has {PARAMS}, dvc.yaml")


def project_around(path: Path) -> Path | None:
    """The project that a path lies in, whether or not anything is there yet."""
    for folder in (path, *path.parents):
        if _is_file(folder / PARAMS) and _is_file(folder / "dvc.yaml"):
            return folder
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no permission, or a name that is too long
        return False


def refuse_the_pipelines(path: Path, option: str) -> None:
    """What a stage makes or reads is no place for files of other commands."""
    place = Path(os.path.realpath(path))  # Path.resolve gives up at links in a circle
    root = project_around(place)
    if root is None:
        return
    for stage in read_lock(Workspace(root)).values():
        for own in (*stage.outs, *stage.deps):
            if place.is_relative_to(root / own):
                raise UserError(
                    f"{option} {path}: {own} belongs to the pipeline; choose another place"
                )


def open_experiment(name: str) -> Files:
    root = project_root()
    if not name:  # which DVC would take for the workspace
        raise UserError(f"an experiment's name is empty; name one, or {WORKSPACE!r}")
    return Workspace(root) if name == WORKSPACE else Revision(root, name)


def read_yaml(files: Files, path: str) -> dict[str, Any]:
    """A YAML file of an experiment; empty where there is none."""
    content = files.read(path)
    try:
        parsed = yaml.load(content or b"", _Loader)
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"{path} of {files.name} is not valid YAML") from None
    if parsed is not None and not isinstance(parsed, dict):
        raise UserError(f"{path} of {files.name} does not hold what it should")
    return parsed or {}


def read_params(files: Files) -> dict[str, Any]:
    """The parameters, with all that is asked of every experiment, old ones included."""
    params = read_yaml(files, PARAMS)
    try:
        whole = {"seed", "code"} <= params.keys()
        whole &= all(isinstance(params[name], str) for name in ("benchmark", "split", "method"))
        whole &= {"benchmark", "domains"} <= params["data"].keys()
        whole &= isinstance(params["data"]["domains"], list)
        whole &= {"split"} <= params["schedule"].keys()
    except (KeyError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"{files.name} is no dacr experiment: its {PARAMS} has no such parameters")
    return params


def read_lock(files: Files) -> dict[str, Stage]:
    """What ``dvc.lock`` says of each stage that ran."""
    stages = read_yaml(files, LOCK).get("stages") or {}
    try:
        return {name: _stage(record) for name, record in stages.items()}
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{LOCK} of {files.name} is damaged; take it from git again (`git checkout {LOCK}`)"
        ) from None


def _stage(record: dict[str, Any]) -> Stage:
    deps, outs = (
        {str(entry["path"]): entry.get("md5") for entry in record.get(kind) or []}
        for kind in ("deps", "outs")
    )
    return Stage(dict((record.get("params") or {}).get(PARAMS) or {}), deps, outs)


def as_made(params: dict[str, Any], lock: dict[str, Stage], *stages: str) -> dict[str, Any]:
    """``params`` with what these stages ran with in its place.

    A stage names whole sections (``train``) or single keys (``memory.size``).
    """
    own = [entry for stage in stages for entry in lock.get(stage, NEVER_RAN).params.items()]
    return reduce(lambda made, entry: _put(made, entry[0].split("."), entry[1]), own, params)


def _put(tree: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return tree | {name: value}
    below = tree.get(name)
    return tree | {name: _put(below if isinstance(below, dict) else {}, rest, value)}


def flatten(params: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested parameters as (dotted name, value as JSON)."""
    flat: list[tuple[str, str]] = []
    for key, value in params.items():
        if isinstance(value, dict) and value:
            flat += flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", json.dumps(value, ensure_ascii=False)))
    return flat


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    """(dotted name, value in a, value in b) of the parameters that are not the same in both."""
    left, right = dict(flatten(a)), dict(flatten(b))
    pairs = [(name, left.get(name), right.get(name)) for name in sorted({*left, *right})]
    # An empty section beside one that is filled is told by what fills it.
    return [(name, x, y) for name, x, y in pairs if x != y and {x, y} != {None, "{}"}]


def some(names: list[str], most: int = 5) -> str:
    """A list in a sentence, cut where it gets long."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
