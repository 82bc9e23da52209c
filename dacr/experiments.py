"""The files of an experiment, wherever it is: in the workspace, or in git and DVC's cache.

A name is ``workspace``, an experiment (``dvc exp list``) or a git revision. What git holds
(``params.yaml``, ``dvc.lock``, metrics) is read from there; what DVC holds comes from its cache, or
from a remote if it is not in the cache.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import yaml

from dacr.errors import UserError
from dacr.evaluation.report import flatten

WORKSPACE = "workspace"
PARAMS, LOCK = "params.yaml", "dvc.lock"


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
        except (SCMError, DvcException):
            raise UserError(
                f"{name!r} is no experiment (see `dvc exp list -A`), no git revision and not "
                f"{WORKSPACE!r}"
            ) from None

    def read(self, path: str) -> bytes | None:
        try:
            content: bytes = self._fs.read_bytes(path)
        except (FileNotFoundError, IsADirectoryError):
            return None
        return content

    def bring(self, path: str, scratch: Path) -> Path:
        from dvc.exceptions import DvcException

        target = scratch / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not self._fs.exists(path):
                raise FileNotFoundError(path)
            self._fs.get(path, str(target), recursive=self._fs.isdir(path))
        except (FileNotFoundError, DvcException):
            raise UserError(
                f"{path} of {self.name} is neither in DVC's cache nor in a remote; bring it with "
                f"`dvc fetch` or `dvc exp pull`, or run the experiment again"
            ) from None
        return target


def project_root(start: Path | None = None) -> Path:
    """The project around a folder, by default the current one."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / PARAMS).is_file() and (folder / "dvc.yaml").is_file():
            return folder
    raise UserError(f"{here} is not inside a dacr project: no folder above has {PARAMS}, dvc.yaml")


def open_experiment(name: str) -> Files:
    root = project_root()
    return Workspace(root) if name == WORKSPACE else Revision(root, name)


def read_yaml(files: Files, path: str) -> dict[str, Any]:
    """A YAML file of an experiment; empty where there is none."""
    content = files.read(path)
    try:
        parsed = yaml.safe_load(content or b"")
    except (yaml.YAMLError, UnicodeDecodeError):
        raise UserError(f"{path} of {files.name} is not valid YAML") from None
    if parsed is not None and not isinstance(parsed, dict):
        raise UserError(f"{path} of {files.name} does not hold what it should")
    return parsed or {}


def read_params(files: Files) -> dict[str, Any]:
    params = read_yaml(files, PARAMS)
    if not {"benchmark", "split", "method", "data", "schedule"} <= params.keys():
        raise UserError(f"{files.name} is no dacr experiment: its {PARAMS} has no such parameters")
    return params


def read_lock(files: Files) -> dict[str, Any]:
    """What ``dvc.lock`` says of each stage that ran."""
    stages: dict[str, Any] = read_yaml(files, LOCK).get("stages") or {}
    return stages


def recorded_params(lock: dict[str, Any], *stages: str) -> dict[str, Any]:
    """The sections of parameters that these stages ran with, as ``dvc.lock`` keeps them."""
    recorded: dict[str, Any] = {}
    for stage in stages:
        own = lock.get(stage, {}).get("params", {}).get(PARAMS, {})
        recorded |= {name: value for name, value in own.items() if "." not in name}
    return recorded


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    """(dotted name, value in a, value in b) of the parameters that are not the same in both."""
    left, right = dict(flatten(a)), dict(flatten(b))
    pairs = [(name, left.get(name), right.get(name)) for name in sorted({*left, *right})]
    # An empty section beside one that is filled is told by what fills it.
    return [(name, x, y) for name, x, y in pairs if x != y and {x, y} != {None, "{}"}]


def out_of_date(params: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """The names of parameters that changed since the stages ran that ``recorded`` is from."""
    now = {name: params[name] for name in recorded if name in params}
    return [name for name, _, _ in differing(now, recorded)]


def some(names: list[str], most: int = 5) -> str:
    """A list in a sentence, cut where it gets long."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
