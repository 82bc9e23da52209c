"""The files of an experiment, in the workspace or in git and DVC's cache, and what they say.

A name is ``workspace``, an experiment (``dvc exp list``) or a git revision. What git holds
(``params.yaml``, ``dvc.lock``, metrics) is read from there; what DVC holds comes from its cache, or
from a remote if it is not in the cache.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

from dacr import config
from dacr.errors import UserError

WORKSPACE = "workspace"
PARAMS, LOCK = "params.yaml", "dvc.lock"
RESTORE_LOCK = f"restore it from git (`git checkout {LOCK}`)"
MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")
"""As DVC writes it; that of a folder ends in ``.dir``."""


@dataclass(frozen=True)
class Stage:
    """What ``dvc.lock`` says of a stage that ran."""

    cmd: Any = None
    """Its command; a list where it has several."""
    params: dict[str, Any] = field(default_factory=dict)
    """By their dotted names."""
    deps: dict[str, str] = field(default_factory=dict)
    """Each path with its md5."""
    outs: dict[str, str] = field(default_factory=dict)


NEVER_RAN = Stage()


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

    @property
    def commit(self) -> str:
        """Of git; an experiment is one, too."""
        return str(self._fs.repo.get_rev())

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
        # Unlike Path.is_file these never raise: no permission, or a name that is too long.
        if all(os.path.isfile(folder / name) for name in (PARAMS, "dvc.yaml")):  # noqa: PTH113
            return folder
    return None


def refuse_the_pipelines(path: Path, option: str) -> None:
    """Refuse to write where a stage reads or writes."""
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
        raise UserError(f"the experiment's name is empty; name one, or {WORKSPACE!r}")
    return Workspace(root) if name == WORKSPACE else Revision(root, name)


def parse_yaml(content: bytes | str | None, path: str, name: str) -> dict[str, Any]:
    """The content of the file ``path`` of the experiment ``name``; empty where there is none."""
    try:
        parsed = config.parse_yaml(content or "")
    except ValueError as error:
        raise UserError(f"{path} of {name} is not valid YAML ({error})") from None
    if parsed is not None and not isinstance(parsed, dict):
        raise UserError(f"{path} of {name} is damaged: it is not a mapping")
    return parsed or {}


def read_params(files: Files) -> dict[str, Any]:
    """The parameters, checked for what every experiment has, those of older versions too."""
    params = parse_yaml(files.read(PARAMS), PARAMS, files.name)
    try:
        whole = "seed" in params
        whole &= all(isinstance(params[name], str) for name in ("benchmark", "split", "method"))
        whole &= {"benchmark", "domains"} <= params["data"].keys()
        whole &= isinstance(params["data"]["domains"], list)
        whole &= {"split"} <= params["schedule"].keys()
    except (KeyError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"{files.name} is no dacr experiment: its {PARAMS} has other parameters")
    return params


def read_lock(files: Files) -> dict[str, Stage]:
    """What ``dvc.lock`` says of each stage that ran."""
    return parse_lock(files.read(LOCK), files.name)


def parse_lock(content: bytes | str | None, name: str) -> dict[str, Stage]:
    records = lock_records(content, name)
    for stage, record in records.items():
        if faults := record_faults(record):
            raise UserError(f"{LOCK} of {name} is damaged: {stage} {faults[0]}; {RESTORE_LOCK}")
    return {stage: parse_record(record) for stage, record in records.items()}


def lock_records(content: bytes | str | None, name: str) -> dict[str, Any]:
    """The part of ``dvc.lock`` about each stage, as it stands there."""
    try:
        stages = parse_yaml(content, LOCK, name).get("stages") or {}
    except UserError as error:  # DVC writes it in place: one that was interrupted leaves half of it
        raise UserError(f"{error}; {RESTORE_LOCK}") from None
    if not isinstance(stages, dict):
        raise UserError(f"{LOCK} of {name} is damaged; {RESTORE_LOCK}")
    return {str(stage): record for stage, record in stages.items()}


def record_faults(record: Any) -> list[str]:
    """What of a stage's part of ``dvc.lock`` cannot be read, as ends of sentences."""
    if not isinstance(record, dict):
        return ["is no mapping"]
    faults = []
    for kind in ("deps", "outs"):
        entries = record.get(kind) or []
        if not isinstance(entries, list):
            faults.append(f"has {kind} that are no list")
            continue
        paths = [entry.get("path") if isinstance(entry, dict) else None for entry in entries]
        for path, entry in zip(paths, entries, strict=True):
            if not isinstance(path, str):
                faults.append(f"has an entry without a path in its {kind}")
            elif paths.count(path) > 1:
                faults.append(f"has {path} more than once in its {kind}")
            elif not (isinstance(own := entry.get("md5"), str) and MD5.fullmatch(own)):
                faults.append(f"has no md5 of {path}")
    params = record.get("params") or {}
    if not isinstance(params, dict) or not isinstance(params.get(PARAMS) or {}, dict):
        faults.append("has parameters that are no mapping")
    return list(dict.fromkeys(faults))


def parse_record(record: dict[str, Any]) -> Stage:
    """A stage's part of ``dvc.lock``, which has no faults."""
    deps, outs = (
        {entry["path"]: entry["md5"] for entry in record.get(kind) or []}
        for kind in ("deps", "outs")
    )
    return Stage(record.get("cmd"), (record.get("params") or {}).get(PARAMS) or {}, deps, outs)


def as_made(params: dict[str, Any], lock: dict[str, Stage], *stages: str) -> dict[str, Any]:
    """``params`` with the values that these stages ran with.

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


def lookup(params: dict[str, Any], dotted: str) -> Any:
    """The value of ``a.b.c``; a KeyError where there is none."""
    value: Any = params
    for key in dotted.split("."):
        if not isinstance(value, dict) or key not in value:
            raise KeyError(dotted)
        value = value[key]
    return value


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
    """(dotted name, value in a, value in b) of the parameters that are not the same in both."""
    left, right = dict(flatten(a)), dict(flatten(b))
    pairs = [(name, left.get(name), right.get(name)) for name in sorted({*left, *right})]
    # An empty section beside a filled one shows in the entries of the filled one.
    return [(name, x, y) for name, x, y in pairs if x != y and {x, y} != {None, "{}"}]


def some(names: list[str], most: int = 5) -> str:
    """A list in a sentence, cut where it gets long."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
