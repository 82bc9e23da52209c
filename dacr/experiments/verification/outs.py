"""Every out of every stage: in the workspace, in the cache, and as an input of later stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dacr.experiments.verification.artifacts import Artifacts
from dacr.experiments.verification.code import CODE_FOLDERS
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.pipeline import REMEDY, Lock


def check_outs(
    report: Report, artifacts: Artifacts, lock: Lock, records: Mapping[str, Any]
) -> None:
    """In the workspace, and in the cache under their own names."""
    workspace: list[str] = []
    cache: list[str] = []
    count = objects = 0
    for stage, entry in lock.items():
        for path, md5 in entry.outs.items():
            count += 1
            damaged = damaged_outs(artifacts, stage, path, md5)
            workspace += damaged or wrong_sizes(artifacts, stage, path, records[stage])
            if path not in artifacts.kept_by_git:
                found, looked_at = damaged_objects(artifacts, stage, path, md5)
                cache += found
                objects += looked_at
    report.add("workspace", workspace, f"{count} outs have the recorded bytes")
    report.add("cache", cache, f"{objects} objects have the bytes of their names")


def check_chain(report: Report, artifacts: Artifacts, lock: Lock) -> None:
    """Every stage ran on what the stages before it made last, not on an older result."""
    faults = [
        f"{stage} was made from another {path}; run `dvc repro`"
        for stage, entry in lock.items()
        for path, md5 in entry.deps.items()
        if path not in CODE_FOLDERS and not artifacts.has(path, md5)
    ]
    report.add("chain", faults, "every stage ran on the outs of the stages before it")


def damaged_outs(artifacts: Artifacts, stage: str, path: str, md5: str) -> list[str]:
    """What of an out is not as recorded, file by file where the cache knows the files."""
    out = Path(path)
    restore = "git restore" if path in artifacts.kept_by_git else "dvc checkout --force"
    remedy = f"`{restore} {path}`, or `dvc repro -f {stage}`"
    if not out.exists():
        return [f"{path} of {stage} is missing; {remedy}"]
    if artifacts.has(path, md5):
        return []
    listing = artifacts.listing(md5) if md5.endswith(".dir") and out.is_dir() else None
    if listing is None:
        return [f"{path} of {stage} is not what the run made; {remedy}"]
    files = artifacts.files(out)
    wrong = sorted(name for name in {*files, *listing} if files.get(name) != listing.get(name))
    kinds = {name: _kind(name in files, name in listing) for name in wrong}
    whole = f"{path} of {stage} is not what the run made; {remedy}"
    return [f"{path}/{name} of {stage} {kinds[name]}; {remedy}" for name in wrong] or [whole]


def _kind(present: bool, expected: bool) -> str:
    if not present:
        return "is missing"
    return "is not what the run made" if expected else "does not belong there"


def wrong_sizes(artifacts: Artifacts, stage: str, path: str, record: Any) -> list[str]:
    """A size or a number of files in the lock that is not that of an out with the right bytes."""
    (entry,) = (entry for entry in record["outs"] if entry["path"] == path)
    size, files = artifacts.size(path)
    same = entry.get("size", size) == size and entry.get("nfiles", files) == files
    return [] if same else [f"dvc.lock has another size of {path} of {stage}; {REMEDY}"]


def damaged_objects(artifacts: Artifacts, stage: str, path: str, md5: str) -> tuple[list[str], int]:
    """The objects of an out whose bytes do not have the md5 that they are named by."""
    listing = artifacts.listing(md5) if md5.endswith(".dir") else {}
    names = {path: md5} | {f"{path}/{name}": own for name, own in (listing or {}).items()}
    faults = []
    for name, own in names.items():
        file = artifacts.object(own)
        if not file.exists():
            remedy = f"`dvc pull`, or `dvc repro -f {stage}`"
            faults.append(f"{name} of {stage} is not in the cache; {remedy}")
        elif artifacts.md5(file) != own.removesuffix(".dir"):
            here = Path.cwd()
            shown = file.relative_to(here) if file.is_relative_to(here) else file
            remedy = f"remove {shown} and run `dvc pull`, or `dvc repro -f {stage}`"
            faults.append(f"{name} of {stage} is damaged in the cache; {remedy}")
    return faults, len(names)
