"""Every object of the run in a DVC remote, read and hashed there.

DVC believes that a folder is whole whose list (``<md5>.dir``) is in the remote: ``dvc push`` and
``dvc status --cloud`` do not see what is missing of it. Lists are read from the remote itself, so
that a clone that has pulled nothing can look, too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dacr.errors import UserError
from dacr.experiments.verification.artifacts import Artifacts, parse_listing
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.pipeline import Lock
from dacr.runtime.hashes import stream_md5

if TYPE_CHECKING:
    from dvc.repo import Repo

READERS = 8  # objects that are read at a time


@dataclass(frozen=True)
class Item:
    """A file of the run, or the list of a folder."""

    name: str
    stage: str
    md5: str
    listed_by: str | None = None
    """The md5 of the folder that it is in."""


class Remote:
    """A remote as DVC has it configured."""

    def __init__(self, repo: Repo, name: str) -> None:
        """``name`` is a remote of the project; the default one where it is empty."""
        from dvc.exceptions import DvcException

        self.name = name or repo.config["core"].get("remote")
        if not self.name:
            known = ", ".join(repo.config["remote"]) or "none; `dvc remote add -d NAME ADDRESS`"
            raise UserError(f"which remote? No one is the default; there are: {known}")
        try:
            self._objects: Any = repo.cloud.get_remote_odb(self.name)
        except DvcException as error:
            raise UserError(f"the remote {self.name} cannot be read: {error}") from None

    def fault(self, item: Item) -> str | None:
        """What is wrong with an object, and what to do."""
        try:
            with self._open(item.md5) as file:
                found = stream_md5(file)
        except FileNotFoundError:
            found = None
        if found == item.md5.removesuffix(".dir"):
            return None
        wrong = "is not in" if found is None else "is damaged in"
        # DVC pushes nothing that is there, and nothing of a folder whose list is there.
        hides = [item.md5 if found else None, item.listed_by]
        remove = "".join(f"remove {self._address(md5)}, " for md5 in hides if md5)
        push = f"`dvc push -r {self.name}`"
        return f"{item.name} of {item.stage} {wrong} {self.name}; {remove}{push} by who has it"

    def files(self, folder: Item) -> list[Item]:
        """What a list says that is in the folder."""
        with self._open(folder.md5) as file:
            listing = parse_listing(file.read())
        if listing is None:  # it has its own md5: somebody made it
            raise UserError(f"the list of {folder.name} of {folder.stage} is no list of DVC's")
        return [
            Item(f"{folder.name}/{name}", folder.stage, md5, folder.md5)
            for name, md5 in listing.items()
        ]

    def _open(self, md5: str) -> Any:
        return self._objects.fs.open(self._objects.oid_to_path(md5), "rb")

    def _address(self, md5: str) -> str:
        address: str = self._objects.fs.unstrip_protocol(self._objects.oid_to_path(md5))
        return address


def check_remote(report: Report, artifacts: Artifacts, lock: Lock, remote: Remote) -> None:
    """The remote has every object that ``dvc.lock`` names, with its bytes."""
    outs = [
        Item(path, stage, md5)
        for stage, entry in lock.items()
        for path, md5 in entry.outs.items()
        if path not in artifacts.kept_by_git
    ]
    with report.guard("remote"), ThreadPoolExecutor(READERS) as pool:
        looked = dict(zip(outs, pool.map(remote.fault, outs), strict=True))
        lists = [item for item in outs if item.md5.endswith(".dir") and not looked[item]]
        files = [file for own in pool.map(remote.files, lists) for file in own]
        looked |= dict(zip(files, pool.map(remote.fault, files), strict=True))
        count = len({item.md5 for item in looked})
        counted = f"{count} objects in {remote.name} have the bytes of their names"
        report.add("remote", [fault for fault in looked.values() if fault], counted)
