"""Two experiments side by side: how their parameters and their numbers differ."""

from __future__ import annotations

import csv
import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Literal

from dacr.errors import UserError
from dacr.evaluation.budget import plain
from dacr.evaluation.formats import decimals, format_change, format_metric
from dacr.experiments.bounds import breaks_protocol
from dacr.experiments.reading import (
    NEVER_RAN,
    Files,
    as_made,
    differing,
    open_experiment,
    read_lock,
    read_params,
    some,
)

METRICS = "reports/metrics.json"
FURTHER = ("reports/measures.json", "reports/budget.json")
"""Numbers that experiments of older versions do not have."""
HEADLINES = (
    "average_incremental_accuracy",
    "final_accuracy",
    "forgetting",
    "worst_domain_accuracy",
)
TESTED_ON = (
    "benchmark",
    "sources",
    "source_options",
    "read_options",
    "classes",
    "class_names",
    "domains",
    "validation",
)
"""The keys of the data section that decide on which images a run is tested."""
IMAGES = ("data/benchmark/benchmark.json", "data/benchmark/index.parquet")
CHAIN = "schedule.sessions."
SESSIONS = {
    *("average", "incremental", "forgetting", "transfer", "learning", "matrix", "new", "old"),
}
"""Words in the names of numbers that depend on all sessions, and not on the last model alone."""

MIXTURE = {
    "components": ("components_by_session", "after"),
    "purity": ("purity_by_session", "purity"),
}
"""The curves of the mixtures: each is a column of a table of ``reports/plots``."""

Points = list[tuple[int, float]]
Verdict = Literal["better", "worse", "same", ""]


@dataclass(frozen=True)
class Side:
    """One of the two experiments."""

    name: str
    params: dict[str, Any]
    metrics: dict[str, Any]
    images: tuple[str, ...]
    """The checksums of what it was evaluated on, where ``dvc.lock`` has them: benchmark.json has
    one of all pixels, the index says which of the images test."""
    changed: list[str]
    """Parameters that were changed after its numbers were made."""
    curves: dict[str, Points] = field(default_factory=dict)
    """The curves of its mixtures, by the names of ``MIXTURE``."""
    domains: dict[str, Points] = field(default_factory=dict)
    """The accuracy of each domain by session."""


@dataclass(frozen=True)
class Change:
    """A number of both experiments, how it changes from A to B, and whether that is good."""

    name: str
    a: str
    b: str
    difference: str
    wanted: str
    """↑ where higher is better, ↓ where lower is, empty where neither."""
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    a: Side
    b: Side
    params: list[tuple[str, str | None, str | None]]
    rows: list[Change]
    domains: list[Change]
    incomparable: list[str]
    """Why the numbers of the two cannot be compared at all; empty where they can."""
    warnings: list[str]

    def headlines(self) -> list[Change]:
        return [row for row in self.rows if row.name in HEADLINES]


def compare_experiments(a: str, b: str) -> Comparison:
    left, right = read_side(open_experiment(a)), read_side(open_experiment(b))
    refuse_bounds(left, right)
    incomparable = why_incomparable(left, right)
    same_sessions = left.params["schedule"] == right.params["schedule"]
    return Comparison(
        a=left,
        b=right,
        params=[
            entry
            for entry in differing(left.params, right.params)
            if not entry[0].startswith(CHAIN)  # the length of the chain is in schedule.last
        ],
        rows=[
            change_of(
                name,
                left.metrics.get(name),
                right.metrics.get(name),
                not incomparable and (same_sessions or not over_sessions(name)),
            )
            for name in scalar_names(left.metrics, right.metrics)
        ],
        domains=[] if incomparable else domain_changes(left, right),
        incomparable=incomparable,
        warnings=warnings_of(left, right),
    )


def refuse_bounds(a: Side, b: Side) -> None:
    """An upper bound beside a method with a memory would look like a better method: refuse it."""
    broken = [side for side in (a, b) if breaks_protocol(side.params)]
    if len(broken) == 1:
        (kept,) = (side for side in (a, b) if side is not broken[0])
        raise UserError(
            f"{broken[0].name} ({broken[0].params['method']}) keeps every image, which breaks the "
            f"protocol, and {kept.name} ({kept.params['method']}) keeps a memory; they are not to "
            "be compared: the report of a run and `dacr paper show main` give the headroom"
        )


def read_side(files: Files) -> Side:
    params, lock = read_params(files), read_lock(files)
    return Side(
        name=files.name,
        params=params,
        metrics=further_numbers(files) | metrics_of(files),
        images=tuple(filter(None, map(lock.get("evaluate", NEVER_RAN).deps.get, IMAGES))),
        changed=[name for name, _, _ in differing(params, as_made(params, lock, "report"))],
        curves={name: _read_curves(files, *source).get("", []) for name, source in MIXTURE.items()},
        domains=_read_curves(files, "domain_accuracy", "accuracy", "domain"),
    )


def _read_curves(
    files: Files, table: str, column: str, group: str | None = None
) -> dict[str, Points]:
    """The curves of a table of ``reports/plots`` by ``group``; none if it is missing or damaged."""
    content = files.read(f"reports/plots/{table}.csv") or b""
    found: dict[str, Points] = {}
    try:
        for row in csv.DictReader(StringIO(content.decode())):
            point = int(row["session"]), _finite(float(row[column]))
            found.setdefault(row[group] if group else "", []).append(point)
    except (KeyError, TypeError, ValueError):
        return {}
    return found


def metrics_of(files: Files) -> dict[str, Any]:
    content = files.read(METRICS)
    if content is None:
        raise UserError(
            f"{files.name} has no {METRICS}: its pipeline never ran to the end; run `dvc repro`, "
            "or name an experiment that has (`dvc exp show --only-changed`)"
        )
    try:
        metrics = json.loads(content)
        sessions = [_finite(accuracy) for accuracy in metrics["accuracy_by_session"]]
        for record in metrics["accuracy_by_domain"]:
            _ = int(record["domain"]), _finite(record["accuracy"])
        _ = [_finite(metrics[name]) for name in scalar_names(metrics, {})]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{METRICS} of {files.name} is damaged or of another project") from None
    if not sessions:
        raise UserError(f"{METRICS} of {files.name} has no session")
    return dict(metrics)


def further_numbers(files: Files) -> dict[str, Any]:
    """The field's metrics and the budget; nothing where they are missing or damaged."""
    found: dict[str, float] = {}
    for path in FURTHER:
        with suppress(ValueError, TypeError, AttributeError):
            found |= plain(json.loads(files.read(path) or b"{}"))
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return value


def why_incomparable(a: Side, b: Side) -> list[str]:
    """What makes the test images of the two differ."""
    if a.params["benchmark"] != b.params["benchmark"]:
        names = f"{a.params['benchmark']} and {b.params['benchmark']}"
        return [f"different benchmarks ({names})"]
    if len(a.images) == len(IMAGES) and a.images == b.images:
        return []
    left, right = a.params["data"], b.params["data"]
    other = [key for key in TESTED_ON if left.get(key) != right.get(key)]
    if other:
        return [f"other test images (data.{', data.'.join(other)})"]
    same_seed = a.params["schedule"].get("seed") == b.params["schedule"].get("seed")
    if left.get("validation") and not same_seed:
        return ["other test images (schedule.seed draws the validation part)"]
    if left == right and same_seed and a.images and b.images and a.images != b.images:
        return ["the benchmark has the same name but was built from other images"]
    return []


def warnings_of(a: Side, b: Side) -> list[str]:
    """What a reader of the numbers must know."""
    warnings = [
        f"the parameters of {side.name} were changed after its numbers were made "
        f"({some(side.changed)}); run `dvc repro`"
        for side in ([a, b] if a.name != b.name else [a])
        if side.changed
    ]
    if a.params["schedule"] != b.params["schedule"]:
        warnings.append(
            f"the sessions differ ({_other_sessions(a, b)}), so averages over sessions and "
            "forgetting measure different things and have no difference here"
        )
    return warnings


def _other_sessions(a: Side, b: Side) -> str:
    if a.params["split"] != b.params["split"]:
        return f"split {a.params['split']} and {b.params['split']}"
    other = differing(a.params["schedule"], b.params["schedule"])
    return some([f"schedule.{name}" for name, _, _ in other])


def scalar_names(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The plain numbers of both files, the headlines first."""
    names = {
        name
        for metrics in (a, b)
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return sorted(names, key=lambda name: (name not in HEADLINES, name))


def direction(name: str) -> int:
    """1 where a higher value is better, −1 where a lower one is, 0 where neither can be said.

    Forgetting is a change of accuracy, negative where something was forgotten, so higher is better;
    that of Chaudhry et al. has the other sign.
    The purity of a single component is a baseline and no merit.
    """
    if "single_component" in name:
        return 0
    words = set(name.split("_"))
    if words & {"error", "loss", "seconds", "chaudhry"}:
        return -1
    return 1 if words & {"accuracy", "forgetting", "purity", "transfer"} else 0


def over_sessions(name: str) -> bool:
    """Whether a number depends on which sessions there were."""
    return not SESSIONS.isdisjoint(name.split("_"))


def change_of(
    metric: str, a: float | None, b: float | None, comparable: bool, name: str | None = None
) -> Change:
    """A row about ``metric``, called ``name`` where it is of a part of the data alone."""
    wanted = direction(metric)
    difference = ""
    verdict: Verdict = ""
    if comparable and a is not None and b is not None:
        # What is shown is judged, so that no row says 0 and 'better'.
        change = round(b - a, decimals(metric))
        difference = format_change(metric, change) if change else "0"
        verdict = _verdict(change * wanted) if wanted else ""
    return Change(
        name=name or metric,
        a=format_metric(metric, a),
        b=format_metric(metric, b),
        difference=difference,
        wanted={1: "↑", -1: "↓", 0: ""}[wanted],
        verdict=verdict,
    )


def _verdict(gain: float) -> Verdict:
    return "same" if not gain else "better" if gain > 0 else "worse"


def domain_changes(a: Side, b: Side) -> list[Change]:
    """The accuracy of each domain after the last session."""
    left, right = (
        {record["domain"]: record["accuracy"] for record in side.metrics["accuracy_by_domain"]}
        for side in (a, b)
    )
    return [
        change_of("accuracy", left.get(number), right.get(number), True, name)
        for number, name in enumerate(a.params["data"]["domains"])
        if number in left or number in right
    ]
