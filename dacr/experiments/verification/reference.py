"""Is this the committed run? ``dvc.lock`` and ``dvc.yaml`` against those in git's HEAD."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dacr.errors import UserError
from dacr.experiments.reading import (
    LOCK,
    Stage,
    Workspace,
    differing,
    parse_lock,
    parse_yaml,
    some,
)
from dacr.experiments.verification.code import CODE_FOLDERS, OUTS
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.git_head import committed
from dacr.experiments.verification.pipeline import Lock

METRICS = Path("reports/metrics.json")
PIPELINE = "dvc.yaml"
SHOWN = ("metrics", "plots", "artifacts")
"""The parts of ``dvc.yaml`` that say what is shown, not what runs."""


def check_reference(report: Report, lock: Lock) -> None:
    """Equal to the committed run, or where the two first differ."""
    try:
        reference = parse_lock(committed(LOCK), "HEAD")
        changed = changed_pipeline()
    except UserError as error:
        report.add("reference", [str(error)], "")
        return
    if not reference:
        report.add("reference", changed, "no run is committed yet: nothing to compare with")
        return
    other = other_params(reference, lock)
    difference = first_difference(reference, lock, comparable=not other)
    told = "" if other else _first_session()
    faults = changed + ([difference + told] if difference else [])
    report.add("reference", faults, "" if faults else _verdict(reference, lock, other))


def _verdict(reference: Lock, lock: Lock, other: list[str]) -> str:
    if other:
        return f"other parameters ({some(other, 3)}): not comparable"
    code = [name for name in lock if _unlike_code(lock[name], reference[name])]
    if code:
        return f"every out is that of the committed run, by other code ({some(code, 3)})"
    return "equal to the committed run, stage by stage"


def _unlike_code(own: Stage, other: Stage) -> bool:
    return any(own.deps[path] != other.deps.get(path) for path in own.deps if path.startswith(OUTS))


def changed_pipeline() -> list[str]:
    """The stages of ``dvc.yaml`` that are not as committed."""
    theirs, ours = (
        parse_yaml(content, PIPELINE, name)
        for content, name in ((committed(PIPELINE), "HEAD"), (_own(PIPELINE), "workspace"))
    )
    if not theirs or _without(ours, SHOWN) == _without(theirs, SHOWN):
        return []
    both = [document.get("stages") or {} for document in (ours, theirs)]
    names = [
        f"{name}.{key}" if isinstance(one, dict) and isinstance(other, dict) else str(name)
        for name in dict.fromkeys([*both[0], *both[1]])
        for one, other in [tuple(_inner(document.get(name)) for document in both)]
        for key in _unlike_keys(one, other)
    ]
    return [
        f"dvc.yaml is not as committed ({some(names or ['outside of stages'], 3)}); commit it, or "
        "`git restore dvc.yaml`"
    ]


def _own(path: str) -> bytes | None:
    return Workspace(Path()).read(path)


def _without(document: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def _inner(stage: Any) -> Any:
    """A stage, or what a ``foreach`` repeats."""
    return stage["do"] | _without(stage, ["do"]) if _has_dict(stage, "do") else stage


def _has_dict(stage: Any, key: str) -> bool:
    return isinstance(stage, dict) and isinstance(stage.get(key), dict)


def _unlike_keys(one: Any, other: Any) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [key for key in dict.fromkeys([*one, *other]) if one.get(key) != other.get(key)]
    return [] if one == other else [""]


def other_params(reference: Lock, lock: Lock) -> list[str]:
    """The parameters in which two runs differ; those of stages that both have."""
    names = [
        name
        for stage in lock
        if stage in reference
        for name, _, _ in differing(reference[stage].params, lock[stage].params)
    ]
    return list(dict.fromkeys(names))


def first_difference(reference: Lock, lock: Lock, comparable: bool) -> str | None:
    """The first stage that differs, and whether it had other inputs or is itself the cause.

    Runs with other parameters are compared, too, in the stages that had the same parameters and
    the same inputs.
    """
    for name, own in lock.items():
        if name not in reference:
            if comparable:
                return f"{name} is not in the committed run"
            continue
        other = reference[name]
        stage = f"{name}{_session(name)}"
        outs, deps = _unlike(own.outs, other.outs), _unlike(own.deps, other.deps)
        same = not differing(own.params, other.params)
        if own.cmd != other.cmd:
            return f"first differs in {stage}: another command"
        if same and outs and not deps:
            if any(own.deps.get(folder) != other.deps.get(folder) for folder in CODE_FOLDERS):
                return f"first differs in {stage}: other code ({some(outs, 3)})"
            return (
                f"first differs in {stage}: the same inputs gave another {some(outs, 3)}; another "
                "kind of processor or another version of a package causes this (docs/sharing.md)"
            )
        if comparable and outs:
            return f"first differs in {stage}: other inputs ({some(deps, 3)}), other outs"
        if comparable and {*own.deps} != {*other.deps}:
            return f"first differs in {stage}: other dependencies ({some(deps, 3)})"
        if comparable and {*own.params} != {*other.params}:
            return f"first differs in {stage}: other names of parameters"
    return None


def _unlike(own: dict[str, str], other: dict[str, str]) -> list[str]:
    """The paths that only one of two stages has, or both with different bytes."""
    names = sorted({*own, *other} - {*CODE_FOLDERS})
    return [path for path in names if own.get(path) != other.get(path)]


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
