"""A trained model as a folder that anybody can use: published once, asked from anywhere.

The folder holds the state of a session, the names of its classes, its parameters and a list of all
files with their checksums (``dacr-model.json``). No image is in it: exemplars are images of data
sets whose terms may not allow to pass them on. Nothing in it is code or a pickle.

An address is a folder or anything that fsspec can reach; DVC brings s3fs for ``s3://``, which takes
keys, region and endpoint from the environment or from ~/.aws as usual.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dacr.config import Params, explain
from dacr.errors import UserError

if TYPE_CHECKING:
    from dacr.sessions.predict import TrainedRun

MANIFEST = "dacr-model.json"
UNFINISHED = "dacr-model.unfinished"
"""Is there while a model is written, so that what was cut off can be published again."""
FORMAT = 1
SUMMARY, CARD, STATE = "benchmark.json", "README.md", "state"
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def is_published(name: str) -> bool:
    """Whether a name is an address, or a folder that a model was published to."""
    try:
        return bool(SCHEME.match(name)) or (Path(name) / MANIFEST).is_file()
    except OSError:
        return False


# -- writing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """What is published."""

    state: Path
    params: Params
    summary: Mapping[str, Any]
    """Of the benchmark, as ``benchmark.json`` has it."""
    facts: Mapping[str, Any]
    """Where it comes from: experiment, revision, numbers."""
    card: str


def publish(model: Model, address: str, replace: bool = False) -> list[str]:
    """Write the model to the address; the names of its files.

    The list of files is written last: what was cut off is no published model.
    """
    content = _files(model)
    listed = {name: hashlib.sha256(own).hexdigest() for name, own in content.items()}
    manifest = {
        "format": FORMAT,
        "parameters": _shared(model.params),
        "facts": dict(model.facts),
        "files": listed,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    place = Place(address)
    place.begin(replace)
    for name, own in content.items():
        place.write(name, own)
    place.write(MANIFEST, text.encode())
    place.remove(UNFINISHED)
    return [*content, MANIFEST]


def _files(model: Model) -> dict[str, bytes]:
    state = {
        f"{STATE}/{file.relative_to(model.state).as_posix()}": file.read_bytes()
        for file in sorted(model.state.rglob("*"))
        if file.is_file()
    }
    names = ("name", "classes", "domains", "image_size", "counts")
    summary = json.dumps({name: model.summary[name] for name in names}, ensure_ascii=False)
    return {**state, SUMMARY: f"{summary}\n".encode(), CARD: model.card.encode()}


def _shared(params: Params) -> dict[str, Any]:
    """The parameters without places of this machine: a mirror, the files of a user's own data."""
    content = params.model_dump(mode="json", by_alias=True)
    content["fetch"] = {"mirror": None}
    content["data"]["source_options"] = {}
    return content


# -- reading ----------------------------------------------------------------------------------


def open_published(address: str, scratch: Path) -> TrainedRun:
    """The model at an address; a remote one is copied below ``scratch`` and checked."""
    place = Place(address)
    manifest = place.manifest()
    folder = scratch / "published"
    for name, expected in manifest["files"].items():
        content = place.read(name)
        if hashlib.sha256(content).hexdigest() != expected:
            raise UserError(
                f"{name} of {place} is damaged; ask for the model to be published again"
            )
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    try:
        params = Params.model_validate(manifest["parameters"])
    except ValidationError as error:
        reason = explain(error, f"{MANIFEST} of {place}")
        raise UserError(f"{reason}; {_VERSIONS}") from None
    # Only now: torch takes seconds to load, and a wrong address should not.
    from dacr.sessions.predict import TrainedRun

    return TrainedRun(str(place), folder / STATE, folder, params, None, exemplars=False)


_VERSIONS = "it was published by another version of dacr"
_KEYS = re.compile(r"(?<=//)[^/@]*@")
"""What no message may repeat: name and password in an address."""


class Place:
    """A folder here or elsewhere."""

    def __init__(self, address: str) -> None:
        self._remote = bool(SCHEME.match(address))
        self._keys = _KEYS.findall(address)
        self._shown = _KEYS.sub("", address.rstrip("/"))
        with self._explained("reached"):
            from fsspec.core import url_to_fs

            options = {"skip_instance_cache": True} if self._remote else {}
            self._fs, self._root = url_to_fs(
                address if self._remote else f"file://{Path(address).absolute()}", **options
            )

    def __str__(self) -> str:
        return self._shown

    def manifest(self) -> dict[str, Any]:
        """The list of what was published, checked: a name that leads elsewhere is refused."""
        try:
            content = json.loads(self.read(MANIFEST))
            listed = content["files"]
            whole = content["format"] == FORMAT and isinstance(content["parameters"], dict)
            whole &= {SUMMARY, f"{STATE}/state.json"} <= listed.keys()
            whole &= all(_is_inside(name) and isinstance(own, str) for name, own in listed.items())
        except (ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            raise UserError(f"{self}/{MANIFEST} is damaged, or {_VERSIONS}")
        return dict(content)

    def read(self, name: str) -> bytes:
        with self._explained("read"):
            try:
                return bytes(self._fs.cat_file(f"{self._root}/{name}"))
            except FileNotFoundError:
                raise UserError(f"{self} has no {name}: no model was published there") from None

    def write(self, name: str, content: bytes) -> None:
        with self._explained("written"):
            path = f"{self._root}/{name}"
            if not self._remote:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, content)

    def begin(self, replace: bool) -> None:
        """Refuse to write where something else is, and over a model unless that is wanted."""
        with self._explained("reached"):
            there = {str(name).rpartition("/")[2] for name in self._listed()}
        if there and not there & {MANIFEST, UNFINISHED}:
            raise UserError(f"{self} is not empty and holds no published model; name another place")
        if MANIFEST in there and not replace:
            raise UserError(f"a model was published to {self} already; --replace replaces it")
        self.write(UNFINISHED, b"")
        if MANIFEST in there:  # without its list it is no model until the new one is whole
            self.remove(MANIFEST)

    def remove(self, name: str) -> None:
        with self._explained("written"):
            self._fs.rm_file(f"{self._root}/{name}")

    def _listed(self) -> list[str]:
        try:
            return list(self._fs.ls(self._root, detail=False))
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            return [self._root]

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        """Every kind of place has errors of its own: no plugin, no keys, no network, no bucket."""
        try:
            yield
        except UserError:
            raise
        except ImportError as error:
            raise UserError(
                f"{self._shown} needs a package that is not installed ({error}); for s3:// run "
                "`pip install -c constraints.txt -e '.[s3]'`"
            ) from None
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            for keys in self._keys:
                reason = reason.replace(keys, "")
            raise UserError(f"{self._shown} cannot be {verb} ({reason[:200]})") from None


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and bool(name)
