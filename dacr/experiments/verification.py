"""Is this run whole, and is it the committed one?

DVC trusts a file whose size and time did not change, and by default what it pulls. This reads every
byte instead: outs and inputs against ``dvc.lock``, the cache against its own names, the metrics
against the predictions, and ``dvc.lock`` against the one in git's HEAD.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from tempfile import TemporaryDirectory

from dacr.errors import UserError
from dacr.experiments.hashes import file_md5, folder_md5
from dacr.experiments.reading import (
    LOCK,
    PARAMS,
    Stage,
    Workspace,
    as_made,
    differing,
    parse_lock,
    parse_yaml,
    read_lock,
    some,
)
from dacr.runtime.code import PACKAGE, essence_hash
from dacr.runtime.git import git_or_nothing

METRICS = Path("reports/metrics.json")
CODE_FOLDERS = ("dacr", "stages")
"""Not compared as a whole: ``runs/code`` says which modules a stage runs."""
Lock = dict[str, Stage]
Listing = dict[str, str]
"""The md5 of each file of a folder, by its path inside."""


@dataclass
class Report:
    """What was checked, in order: a subject, what was found, and whether that is a fault."""

    lines: list[tuple[str, str, bool]] = field(default_factory=list)

    def add(self, subject: str, faults: list[str], otherwise: str) -> None:
        """One line for each fault; the line ``otherwise`` if there is none."""
        self.lines += [(subject, text, True) for text in faults] or [(subject, otherwise, False)]

    @property
    def ok(self) -> bool:
        return not any(fault for _, _, fault in self.lines)


class Artifacts:
    """The files that DVC tracks: their bytes in the workspace and in the cache."""

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
            self._known[path] = file_md5(path)
        return self._known[path]

    def files(self, folder: Path) -> Listing:
        """What DVC counts as the content of a folder (``.dvcignore`` leaves some out)."""
        walked = self._repo.dvcignore.walk(self._repo.fs, str(folder.absolute()))
        found = (Path(root) / name for root, _, names in walked for name in names)
        return {path.relative_to(folder.absolute()).as_posix(): self.md5(path) for path in found}

    def has(self, path: str, md5: str) -> bool:
        """Whether the file or folder at ``path`` has this checksum."""
        place = Path(path).absolute()
        if place.is_dir():
            return folder_md5(self.files(place)) == md5
        return place.exists() and self.md5(place) == md5

    def object(self, md5: str) -> Path:
        return self._cache / md5[:2] / md5[2:]

    def listing(self, md5: str) -> Listing | None:
        """What the cache says that a folder holds; None where it does not know."""
        try:
            rows = json.loads(self.object(md5).read_bytes())
            return {row["relpath"]: row["md5"] for row in rows}
        except (OSError, ValueError, KeyError, TypeError):
            return None


def in_order(lock: Lock) -> list[str]:
    """The stages from the first to the last: a stage comes after those whose outs it needs."""
    made_by = {out: name for name, stage in lock.items() for out in stage.outs}
    needs = {
        name: {made_by[out] for dep in stage.deps for out in made_by if _overlap(dep, out)} - {name}
        for name, stage in lock.items()
    }
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError:
        return list(lock)


def _overlap(one: str, other: str) -> bool:
    """Whether one of two paths is the other or lies inside it."""
    return Path(one).is_relative_to(other) or Path(other).is_relative_to(one)


# The checks --------------------------------------------------------------------------------------


def verify() -> Report:
    """All checks."""
    report, here, artifacts = Report(), Workspace(Path()), Artifacts()
    recorded = read_lock(here)
    lock = {name: recorded[name] for name in in_order(recorded) if name in artifacts.stages}
    missing = [name for name in artifacts.stages if name not in lock]
    counted = f"{len(lock)} of {len(artifacts.stages)} stages are recorded"
    if not lock:
        report.add("run", [f"was never made: {counted} in dvc.lock; run `dvc repro`"], "")
        return report
    unfinished = [f"is not finished: {counted}, {name} is not; run `dvc repro`" for name in missing]
    report.add("run", unfinished[:1], counted)
    if changed := changed_params(here, lock):
        text = f"params.yaml changed since the run ({some(changed, 3)}); run `dvc repro`"
        report.add("parameters", [text], "")
    check_inputs(report, artifacts, lock)
    check_outs(report, artifacts, lock)
    if report.ok:
        check_chain(report, artifacts, lock)
    if report.ok:
        check_metrics(report)
    check_reference(report, lock)
    return report


def changed_params(here: Workspace, lock: Lock) -> list[str]:
    """The parameters whose value in ``params.yaml`` is not the one that a stage ran with."""
    now = parse_yaml(here.read(PARAMS), PARAMS, here.name)
    if not now:
        raise UserError("params.yaml is missing; `make params` composes it")
    names = [name for stage in lock for name, _, _ in differing(as_made(now, lock, stage), now)]
    return list(dict.fromkeys(names))


def check_inputs(report: Report, artifacts: Artifacts, lock: Lock) -> None:
    """The code and tables that stages read and no stage makes."""
    made = [out for stage in lock.values() for out in stage.outs]
    deps = {path: md5 for stage in lock.values() for path, md5 in stage.deps.items()}
    inputs = {path: md5 for path, md5 in deps.items() if not any(_overlap(path, o) for o in made)}
    modules = modules_of(path for path in made if path.startswith("runs/code/"))
    same = {path: artifacts.has(path, own) for path, own in inputs.items()}
    same = {path: own for path, own in same.items() if path not in CODE_FOLDERS}
    same |= {path: essence_of(path) == own for path, own in modules.items() if path != PACKAGE}
    faults = [
        f"{path} {'changed since the run' if Path(path).exists() else 'is missing'}; "
        "restore it or run `dvc repro`"
        for path in same
        if not same[path]
    ]
    report.add("code", faults, f"{len(same)} inputs are those of the run")


def modules_of(files: Iterable[str]) -> dict[str, str]:
    """The modules that the stages ran, each with its hash, from the files of the stage ``code``."""
    modules: dict[str, str] = {}
    for file in files:
        try:
            modules |= json.loads(Path(file).read_text(encoding="utf-8"))["modules"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged out, which is reported as such
    return modules


def essence_of(file: str) -> str | None:
    """The hash of a module without comments; None where it is no Python any more."""
    try:
        return essence_hash(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def check_outs(report: Report, artifacts: Artifacts, lock: Lock) -> None:
    """Every out of every stage: in the workspace, and in the cache under its own name."""
    workspace: list[str] = []
    cache: list[str] = []
    count = objects = 0
    for stage, entry in lock.items():
        for path, md5 in entry.outs.items():
            count += 1
            workspace += damaged_outs(artifacts, stage, path, md5)
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
    return [f"{path}/{name} of {stage} {kinds[name]}; {remedy}" for name in wrong]


def _kind(present: bool, expected: bool) -> str:
    if not present:
        return "is missing"
    return "is not what the run made" if expected else "does not belong there"


def damaged_objects(artifacts: Artifacts, stage: str, path: str, md5: str) -> tuple[list[str], int]:
    """The objects of an out whose bytes do not have the md5 that they are named by."""
    listing = artifacts.listing(md5) if md5.endswith(".dir") else {}
    names = {path: md5} | {f"{path}/{name}": own for name, own in (listing or {}).items()}
    faults = []
    for name, own in names.items():
        file = artifacts.object(own)
        if not file.exists():
            remedy = "`dvc pull`, or `dvc commit -f` while the workspace is whole"
            faults.append(f"{name} of {stage} is not in the cache; {remedy}")
        elif artifacts.md5(file) != own.removesuffix(".dir"):
            here = Path.cwd()
            shown = file.relative_to(here) if file.is_relative_to(here) else file
            remedy = f"remove {shown} and run `dvc pull`, or `dvc repro -f {stage}`"
            faults.append(f"{name} of {stage} is damaged in the cache; {remedy}")
    return faults, len(names)


def check_metrics(report: Report) -> None:
    """Metrics, measures, budget and plots made again from the results, byte for byte."""
    from dacr.evaluation.evaluate import evaluate
    from dacr.evaluation.measures import measure
    from dacr.experiments.budget import budget

    with TemporaryDirectory() as name:
        folder = Path(name)
        evaluate(folder)
        measure(folder)
        budget(folder)
        again = {p.relative_to(folder): p for p in sorted(folder.rglob("*")) if p.is_file()}
        faults = [
            f"reports/{path} does not follow from the {_origin(path)}"
            for path, file in again.items()
            if Workspace(Path("reports")).read(str(path)) != file.read_bytes()
        ]
    report.add("metrics", faults, f"{len(again)} files follow from the predictions and the state")


def _origin(path: Path) -> str:
    """What a file of ``reports/`` is made from, and how it is made again."""
    if path.name == "budget.json":
        return "state and the parameters; run `dvc repro -f budget`"
    stage = "measure" if path.parts[0].startswith("measures") else "evaluate"
    return f"predictions; run `dvc repro -f {stage}`"


# The committed reference -------------------------------------------------------------------------


def committed(path: Path | str) -> str:
    """A file as it is in git's HEAD; empty where there is none."""
    return git_or_nothing("show", f"HEAD:./{path}")


def check_reference(report: Report, lock: Lock) -> None:
    """Equal to the committed run, or where the two first differ."""
    reference = parse_lock(committed(LOCK), "HEAD")
    if not reference:
        report.add("reference", [], "no run is committed yet: nothing to compare with")
    elif other := other_params(reference, lock):
        report.add("reference", [], f"other parameters ({some(other, 3)}): not comparable")
    else:
        difference = first_difference(reference, lock)
        faults = [difference + _first_session()] if difference else []
        report.add("reference", faults, "equal to the committed run, stage by stage")


def other_params(reference: Lock, lock: Lock) -> list[str]:
    """The parameters in which two runs differ; those of stages that both have."""
    names = [
        name
        for stage in lock
        if stage in reference
        for name, _, _ in differing(reference[stage].params, lock[stage].params)
    ]
    return list(dict.fromkeys(names)) or ["other stages"] * (not {*lock} <= {*reference})


def first_difference(reference: Lock, lock: Lock) -> str | None:
    """The first stage that differs, and whether it had other inputs or is itself the cause."""
    for name, own in lock.items():
        outs = _unlike(own.outs, reference[name].outs)
        deps = _unlike(own.deps, reference[name].deps)
        stage = f"{name}{_session(name)}"
        if outs and deps:
            return f"first differs in {stage}: other inputs ({some(deps, 3)}), other outs"
        if outs:
            return (
                f"first differs in {stage}: the same inputs gave another {some(outs, 3)}; another "
                "kind of processor or another version of a package causes this (docs/sharing.md)"
            )
    behind = [name for name in reference if name not in lock]
    return f"{behind[0]} of the committed run is not in this one" if behind else None


def _unlike(own: Listing, other: Listing) -> list[str]:
    return [path for path, md5 in own.items() if other.get(path) != md5]


def _session(stage: str) -> str:
    kind, _, key = stage.partition("@")
    return f" (session {int(key)})" if kind in ("learn", "consolidate") else ""


def _first_session() -> str:
    """In which session the accuracy first differs from the committed one."""
    try:
        theirs, ours = (
            json.loads(text)["accuracy_by_session"]
            for text in (committed(METRICS), METRICS.read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False), start=1):
        if one != other:
            return f"; accuracy from session {number} on: {other} instead of {one}"
    return "; every accuracy is the same"
