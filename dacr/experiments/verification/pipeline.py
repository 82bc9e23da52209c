"""Does ``dvc.lock`` record exactly the pipeline that ``dvc.yaml`` declares?

DVC fills in what a lock leaves out the next time that a stage runs. Until then an out that is not
recorded is an out that nobody compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from dacr.experiments.reading import (
    PARAMS,
    Stage,
    Workspace,
    as_made,
    differing,
    parse_yaml,
    record_faults,
)
from dacr.experiments.verification.artifacts import Declared
from dacr.runtime.code import STAGES

Lock = dict[str, Stage]
REMEDY = "restore it with `git checkout dvc.lock`, or run `dvc repro`"
MODULES = {name: name for name in STAGES} | {"code": "code", "fetch_code": "code"}
"""The module of ``stages`` that the stages of each name run."""


def in_order(lock: Lock) -> list[str]:
    """The stages from the first to the last: a stage comes after those whose outs it needs."""
    made_by = {out: name for name, stage in lock.items() for out in stage.outs}
    needs = {
        name: {made_by[out] for dep in stage.deps for out in made_by if overlap(dep, out)} - {name}
        for name, stage in lock.items()
    }
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError:
        return list(lock)


def overlap(one: str, other: str) -> bool:
    """Whether one of two paths is the other or lies inside it."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def unreadable(records: Mapping[str, Any]) -> list[str]:
    """Parts of ``dvc.lock`` that say nothing, for example an out without an md5."""
    return [
        f"dvc.lock: {name} {fault}; {REMEDY}"
        for name, record in records.items()
        for fault in record_faults(record) or _without_command(record)
    ]


def _without_command(record: Mapping[str, Any]) -> list[str]:
    return [] if record.get("cmd") else ["has no command"]


def unlike_declared(lock: Lock, declared: Mapping[str, Declared]) -> list[str]:
    """Where a stage of the lock is not the one of ``dvc.yaml``."""
    faults = []
    for name, own in lock.items():
        wanted = declared[name]
        if own.cmd != wanted.cmd:
            faults.append(f"dvc.lock: {name} ran {own.cmd!r}, dvc.yaml has {wanted.cmd!r}")
        for kind, found, names in (
            ("parameter", own.params, wanted.params),
            ("dependency", own.deps, wanted.deps),
            ("out", own.outs, wanted.outs),
        ):
            faults += [f"dvc.lock: {name} lacks the {kind} {x}" for x in sorted(names - {*found})]
            faults += [
                f"dvc.lock: {name} has the {kind} {x}, which dvc.yaml does not have"
                for x in sorted({*found} - names)
            ]
    return [f"{fault}; {REMEDY}" for fault in faults]


def other_commands(declared: Mapping[str, Declared]) -> list[str]:
    """Stages of ``dvc.yaml`` that run something else than their module in ``stages``."""
    faults = []
    for name, stage in declared.items():
        kind, _, key = name.partition("@")
        usual = " ".join(["python -m", f"stages.{MODULES.get(kind)}", *([key] if key else [])])
        if kind in MODULES and stage.cmd != usual:
            faults.append(
                f"dvc.yaml: {name} runs {stage.cmd!r} and not {usual!r}; restore it with "
                "`git checkout dvc.yaml`"
            )
    return faults


def changed_params(lock: Lock) -> list[str]:
    """The parameters whose value in ``params.yaml`` is not the one that a stage ran with."""
    here = Workspace(Path())
    now = parse_yaml(here.read(PARAMS), PARAMS, here.name)
    names = [name for stage in lock for name, _, _ in differing(as_made(now, lock, stage), now)]
    return list(dict.fromkeys(names))
