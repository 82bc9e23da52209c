"""Is this run whole, and is it the committed one?

DVC trusts a file whose size and time did not change, and by default what it pulls. This looks at
every byte instead: outs and inputs against ``dvc.lock``, the cache against its own names, the
metrics against the predictions, and ``dvc.lock`` against the one in git's HEAD.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from dacr.data.files import Fingerprint
from dacr.errors import UserError

LOCK, PARAMS, METRICS = Path("dvc.lock"), Path("params.yaml"), Path("reports/metrics.json")
Entry = dict[str, Any]
Files = dict[str, str]
"""The md5 of each file of a folder, by its path inside."""


@dataclass
class Report:
    """What was looked at, in order: a subject, what was found, and whether that is a fault."""

    lines: list[tuple[str, str, bool]] = field(default_factory=list)

    def good(self, subject: str, text: str) -> None:
        self.lines.append((subject, text, False))

    def fault(self, subject: str, text: str) -> None:
        self.lines.append((subject, text, True))

    def faults(self, subject: str, found: list[str], otherwise: str) -> None:
        """One line for each of ``found``; the line ``otherwise`` if there is none."""
        for text in found:
            self.fault(subject, text)
        if not found:
            self.good(subject, otherwise)

    @property
    def ok(self) -> bool:
        return not any(fault for _, _, fault in self.lines)


class Project:
    """The files that DVC sees, their bytes, and what its cache holds of them."""

    def __init__(self) -> None:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        try:
            self._repo = Repo()
            stages = self._repo.index.stages
        except DvcException as error:
            raise UserError(f"DVC cannot read this project: {error}") from None
        self.stages = [stage.addressing for stage in stages]
        self.kept_by_git = {o.def_path for stage in stages for o in stage.outs if not o.use_cache}
        self._cache = Path(self._repo.cache.local.path)
        self._known: dict[Path, str] = {}

    def md5(self, path: Path) -> str:
        if path not in self._known:
            self._known[path] = Fingerprint.of(path).md5
        return self._known[path]

    def files(self, folder: Path) -> Files:
        """What DVC counts as the content of a folder (``.dvcignore`` leaves some out)."""
        walked = self._repo.dvcignore.walk(self._repo.fs, str(folder.absolute()))
        found = (Path(root) / name for root, _, names in walked for name in names)
        return {path.relative_to(folder.absolute()).as_posix(): self.md5(path) for path in found}

    def digest(self, path: Path) -> str:
        return folder_digest(self.files(path)) if path.is_dir() else self.md5(path.absolute())

    def object(self, digest: str) -> Path:
        return self._cache / digest[:2] / digest[2:]

    def listing(self, digest: str) -> Files | None:
        """What the cache says that a folder holds; None where it does not know."""
        try:
            rows = json.loads(self.object(digest).read_bytes())
            return {row["relpath"]: row["md5"] for row in rows}
        except (OSError, ValueError, KeyError, TypeError):
            return None


def folder_digest(files: Files) -> str:
    """DVC's name for a folder: the md5 of its sorted listing as JSON."""
    rows = [{"md5": files[name], "relpath": name} for name in sorted(files)]
    text = json.dumps(rows, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() + ".dir"


# What dvc.lock says ------------------------------------------------------------------------------


def read_lock(text: str, origin: str) -> dict[str, Entry]:
    """The stages of a ``dvc.lock``."""
    try:
        stages = yaml.safe_load(text)["stages"]
        return {name: dict(entry) for name, entry in stages.items()}
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{origin} is damaged; restore it with `git restore dvc.lock`") from None


def in_order(lock: dict[str, Entry]) -> list[str]:
    """The stages from the first to the last: a stage comes after those whose outs it needs."""
    made_by = {out["path"]: name for name, entry in lock.items() for out in entry.get("outs", [])}
    needs = {
        name: {
            maker
            for dep in entry.get("deps", [])
            for path, maker in made_by.items()
            if maker != name and _inside(dep["path"], path)
        }
        for name, entry in lock.items()
    }
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError:
        return list(lock)


def _inside(one: str, other: str) -> bool:
    """Whether one of two paths is the other or holds it."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def hashes(entries: list[Entry]) -> dict[str, str]:
    return {entry["path"]: entry["md5"] for entry in entries}


# The checks --------------------------------------------------------------------------------------


def verify(rederive: Callable[[Path], None]) -> Report:
    """All checks; ``rederive(folder)`` writes metrics and plots anew, from the predictions."""
    report = Report()
    if not LOCK.exists():
        report.fault("run", "was never made: there is no dvc.lock; run `dvc repro`")
        return report
    project = Project()
    lock = read_lock(LOCK.read_text(encoding="utf-8"), str(LOCK))
    lock = {name: lock[name] for name in in_order(lock) if name in project.stages}
    missing = [name for name in project.stages if name not in lock]
    changed = list(changed_params(lock))
    recorded = f"{len(lock)} of {len(project.stages)} stages are recorded"
    if not lock:
        report.fault("run", f"was never made: {recorded} in dvc.lock; run `dvc repro`")
        return report
    if missing:
        report.fault("run", f"is not finished: {recorded}, {missing[0]} is not; run `dvc repro`")
    else:
        report.good("run", recorded)
    if changed:
        text = f"params.yaml changed since the run ({_some(changed)}); run `dvc repro`"
        report.fault("parameters", text)
    check_inputs(report, project, lock)
    check_outs(report, project, lock)
    if report.ok:
        check_chain(report, project, lock)
    if not missing and report.ok:
        check_metrics(report, rederive)
    check_reference(report, lock)
    return report


def changed_params(lock: dict[str, Entry]) -> Iterator[str]:
    """The parameters whose value in ``params.yaml`` is not the one that a stage ran with."""
    try:
        now = yaml.safe_load(PARAMS.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        raise UserError("params.yaml is missing or damaged; `make params` composes it") from None
    told = set()
    for entry in lock.values():
        for name, value in entry.get("params", {}).get(str(PARAMS), {}).items():
            for leaf in different_leaves(value, _lookup(now, name), name):
                if leaf not in told:
                    told.add(leaf)
                    yield leaf


def _lookup(params: Any, name: str) -> Any:
    for part in name.split("."):
        params = params.get(part) if isinstance(params, dict) else None
    return params


def different_leaves(old: Any, new: Any, name: str) -> Iterator[str]:
    """The dotted names below ``name`` at which two values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from different_leaves(old.get(key), new.get(key), f"{name}.{key}")
    elif old != new:
        yield name


def check_inputs(report: Report, project: Project, lock: dict[str, Entry]) -> None:
    """The code and tables that stages read and no stage makes."""
    made = [out["path"] for entry in lock.values() for out in entry.get("outs", [])]
    deps = {
        dep["path"]: dep["md5"]
        for entry in lock.values()
        for dep in entry.get("deps", [])
        if not any(_inside(dep["path"], path) for path in made)
    }
    faults = [
        f"{path} {'changed since the run' if Path(path).exists() else 'is missing'}; "
        f"restore it or run `dvc repro`"
        for path, md5 in deps.items()
        if not Path(path).exists() or project.digest(Path(path)) != md5
    ]
    report.faults("code", faults, f"{len(deps)} inputs are those of the run")


def check_outs(report: Report, project: Project, lock: dict[str, Entry]) -> None:
    """Every out of every stage: in the workspace, and in the cache under its own name."""
    workspace: list[str] = []
    cache: list[str] = []
    count = objects = 0
    for stage, entry in lock.items():
        for path, md5 in hashes(entry.get("outs", [])).items():
            count += 1
            workspace += damaged_outs(project, stage, path, md5)
            if path in project.kept_by_git:
                continue
            found, looked_at = damaged_objects(project, stage, path, md5)
            cache += found
            objects += looked_at
    report.faults("workspace", workspace, f"{count} outs have the recorded bytes")
    report.faults("cache", cache, f"{objects} objects have the bytes of their names")


def check_chain(report: Report, project: Project, lock: dict[str, Entry]) -> None:
    """Every stage ran on what the stages before it made last: no run of two halves."""
    faults = [
        f"{stage} was made from another {path}; run `dvc repro`"
        for stage, entry in lock.items()
        for path, md5 in hashes(entry.get("deps", [])).items()
        if not Path(path).exists() or project.digest(Path(path)) != md5
    ]
    report.faults("chain", faults, "every stage ran on the outs of the stages before it")


def damaged_outs(project: Project, stage: str, path: str, md5: str) -> list[str]:
    """What of an out is not as recorded, file by file where the cache knows the files."""
    out = Path(path)
    restore = "git restore" if path in project.kept_by_git else "dvc checkout --force"
    remedy = f"`{restore} {path}`, or `dvc repro -f {stage}`"
    if not out.exists():
        return [f"{path} of {stage} is missing; {remedy}"]
    if project.digest(out) == md5:
        return []
    listing = project.listing(md5) if md5.endswith(".dir") and out.is_dir() else None
    if listing is None:
        return [f"{path} of {stage} is not what the run made; {remedy}"]
    files = project.files(out)
    wrong = sorted(name for name in {*files, *listing} if files.get(name) != listing.get(name))
    kinds = {name: _kind(name in files, name in listing) for name in wrong}
    return [f"{path}/{name} of {stage} {kinds[name]}; {remedy}" for name in wrong]


def _kind(present: bool, expected: bool) -> str:
    if not present:
        return "is missing"
    return "is not what the run made" if expected else "does not belong there"


def damaged_objects(project: Project, stage: str, path: str, md5: str) -> tuple[list[str], int]:
    """The objects of an out whose bytes do not have the md5 that they are called by."""
    listing = project.listing(md5) if md5.endswith(".dir") else {}
    names = {path: md5.removesuffix(".dir")} | {
        f"{path}/{name}": digest for name, digest in (listing or {}).items()
    }
    faults = []
    for name, digest in names.items():
        file = project.object(md5 if name == path else digest)
        if not file.exists():
            remedy = "`dvc pull`, or `dvc commit -f` while the workspace is whole"
            faults.append(f"{name} of {stage} is not in the cache; {remedy}")
        elif project.md5(file) != digest:
            remedy = f"remove {_short(file)} and run `dvc pull`, or `dvc repro -f {stage}`"
            faults.append(f"{name} of {stage} is damaged in the cache; {remedy}")
    return faults, len(names)


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def check_metrics(report: Report, rederive: Callable[[Path], None]) -> None:
    """Metrics and plots made again from the predictions, byte for byte."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        rederive(folder)
        again = {p.relative_to(folder): p for p in sorted(folder.rglob("*")) if p.is_file()}
        faults = [
            f"reports/{path} does not follow from the predictions; run `dvc repro -f evaluate`"
            for path, file in again.items()
            if not _same(file, Path("reports") / path)
        ]
    report.faults("metrics", faults, f"{len(again)} files follow from the predictions")


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.read_bytes() == other.read_bytes()


# The committed reference -------------------------------------------------------------------------


def committed(path: Path) -> str | None:
    """A file as it is in git's HEAD."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{path}"], capture_output=True, text=True, check=False
    )
    return shown.stdout if shown.returncode == 0 else None


def check_reference(report: Report, lock: dict[str, Entry]) -> None:
    """Equal to the run that is committed, or where the two first differ."""
    text = committed(LOCK)
    if text is None:
        report.good("reference", "no run is committed yet: nothing to compare with")
        return
    reference = read_lock(text, "the committed dvc.lock")
    other = other_params(reference, lock)
    if other:
        report.good("reference", f"other parameters ({_some(other)}): not comparable")
        return
    difference = first_difference(reference, lock)
    if difference:
        report.fault("reference", difference + _first_session())
    else:
        report.good("reference", "equal to the committed run, stage by stage")


def other_params(reference: dict[str, Entry], lock: dict[str, Entry]) -> list[str]:
    """The parameters in which two runs differ; those of stages that both have."""
    found: list[str] = []
    for name in (name for name in lock if name in reference):
        leaves = different_leaves(
            reference[name].get("params", {}), lock[name].get("params", {}), ""
        )
        found += [leaf.removeprefix(f".{PARAMS}.") for leaf in leaves]
    if not found and not {*lock} <= {*reference}:
        found = ["other stages"]
    return list(dict.fromkeys(found))


def first_difference(reference: dict[str, Entry], lock: dict[str, Entry]) -> str | None:
    """The first stage that differs, and whether it had other inputs or is itself the cause."""
    for name, entry in lock.items():
        ours, theirs = (
            {kind: hashes(e.get(kind, [])) for kind in ("deps", "outs")}
            for e in (entry, reference[name])
        )
        wrong = {
            kind: [path for path in ours[kind] if ours[kind][path] != theirs[kind].get(path)]
            for kind in ours
        }
        stage = f"{name}{_session(name)}"
        if wrong["outs"] and wrong["deps"]:
            inputs = _some(wrong["deps"])
            return f"first differs in {stage}: other inputs ({inputs}), other outs"
        if wrong["outs"]:
            outs = _some(wrong["outs"])
            return (
                f"first differs in {stage}: the same inputs gave another {outs}; another kind of "
                "processor or another version of a package does that (docs/sharing.md)"
            )
    behind = [name for name in reference if name not in lock]
    return f"{behind[0]} of the committed run is not in this one" if behind else None


def _session(stage: str) -> str:
    kind, _, key = stage.partition("@")
    return f" (session {int(key)})" if kind in ("learn", "consolidate") else ""


def _first_session() -> str:
    """In which session the accuracy first differs from the committed one."""
    try:
        theirs, ours = (
            json.loads(text or "")["accuracy_by_session"]
            for text in (committed(METRICS), METRICS.read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False), start=1):
        if one != other:
            return f"; accuracy from session {number} on: {other} instead of {one}"
    return "; every accuracy is the same"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
