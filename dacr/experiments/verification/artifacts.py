"""The pipeline as ``dvc.yaml`` declares it, and the files that DVC tracks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dacr.errors import UserError
from dacr.experiments.reading import MD5, PARAMS
from dacr.runtime.hashes import file_md5, folder_md5

Listing = dict[str, str]
"""The md5 of each file of a folder, by its path inside."""
NO_FILE = ""
"""In place of the md5 of what is no regular file: a pipe, a device, a link to nothing."""


@dataclass(frozen=True)
class Declared:
    """A stage of the resolved ``dvc.yaml``."""

    cmd: Any
    params: frozenset[str]
    deps: frozenset[str]
    outs: frozenset[str]


class Artifacts:
    """What DVC knows of the project: its stages, and bytes in the workspace and the cache."""

    def __init__(self) -> None:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        try:
            self.repo = Repo()
            # Others are of a user's own files: they have no place in dvc.lock.
            own = Path("dvc.yaml").resolve()
            stages = [s for s in self.repo.index.stages if Path(s.path).resolve() == own]
        except DvcException as error:
            raise UserError(f"DVC cannot read this project: {error}") from None
        self.stages = {stage.addressing: _declared(stage) for stage in stages}
        self.kept_by_git = {o.def_path for stage in stages for o in stage.outs if not o.use_cache}
        self._cache = Path(self.repo.cache.local.path)
        self._known: dict[Path, str] = {}

    def md5(self, path: Path) -> str:
        if path not in self._known:
            self._known[path] = file_md5(path) if path.is_file() else NO_FILE
        return self._known[path]

    def files(self, folder: Path) -> Listing:
        """What DVC counts as the content of a folder (``.dvcignore`` leaves some out)."""
        walked = self.repo.dvcignore.walk(self.repo.fs, str(folder.absolute()))
        found = (Path(root) / name for root, _, names in walked for name in names)
        return {path.relative_to(folder.absolute()).as_posix(): self.md5(path) for path in found}

    def has(self, path: str, md5: str) -> bool:
        """Whether the file or folder at ``path`` has this checksum."""
        place = Path(path).absolute()
        if place.is_dir():
            return folder_md5(self.files(place)) == md5
        return place.exists() and self.md5(place) == md5

    def size(self, path: str) -> tuple[int, int | None]:
        """The bytes of an out and, of a folder, the number of its files."""
        place = Path(path)
        if not place.is_dir():
            return place.stat().st_size, None
        files = self.files(place)
        return sum((place / name).stat().st_size for name in files), len(files)

    def object(self, md5: str) -> Path:
        return self._cache / md5[:2] / md5[2:]

    def listing(self, md5: str) -> Listing | None:
        """What the cache says that a folder holds; None where it does not know."""
        try:
            return parse_listing(self.object(md5).read_bytes())
        except OSError:
            return None


def parse_listing(content: bytes) -> Listing | None:
    """What a list of DVC's (``<md5>.dir``) says; None where it is none."""
    try:
        listed = {str(row["relpath"]): str(row["md5"]) for row in json.loads(content)}
    except (ValueError, KeyError, TypeError):
        return None
    return listed if all(MD5.fullmatch(own) for own in listed.values()) else None


def _declared(stage: Any) -> Declared:
    from dvc.dependency import ParamsDependency

    params = [dep for dep in stage.deps if isinstance(dep, ParamsDependency)]
    names = {
        name if dep.def_path == PARAMS else f"{dep.def_path}:{name}"
        for dep in params
        for name in dep.params
    }
    return Declared(
        stage.cmd,
        frozenset(names),
        frozenset(dep.def_path for dep in stage.deps if dep not in params),
        frozenset(out.def_path for out in stage.outs),
    )
