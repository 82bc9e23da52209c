"""The upper bound of a run: what joint training reaches on the same stream.

Joint training keeps every image, which breaks the protocol, so it is no row to compare with: the
gap to it is the headroom of a method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from dacr.errors import UserError
from dacr.experiments.records import Record, Store
from dacr.experiments.tables import Paper

BREAKS = "breaks the protocol"
AVERAGE, CURVE = "average_incremental_accuracy", "accuracy_by_session"


def breaks_protocol(params: dict[str, Any]) -> bool:
    """Whether an experiment declares that it keeps more than its memory may hold."""
    options = params.get("options")
    return isinstance(options, dict) and options.get("protocol") == "broken"


@dataclass(frozen=True)
class Bound:
    """Accuracies of joint training, the mean of its seeds."""

    label: str
    average: float
    by_session: list[float]
    seeds: list[int]

    @property
    def facts(self) -> dict[str, Any]:
        return asdict(self)


def known_records() -> list[Record]:
    """All that was measured here or is committed; none where that is damaged."""
    try:
        return list(Store().records())
    except UserError:
        return []


def bound_of(paper: Paper, params: dict[str, Any], records: Iterable[Record]) -> Bound | None:
    """Joint training on the images, sessions and network of ``params``, with its seed if it ran."""
    name = paper.upper_bound
    if name is None or breaks_protocol(params):
        return None
    own = [r for r in records if r.method == name and _same_problem(r, params)]
    chosen = [r for r in own if r.seed == params["seed"]] or own
    curves = [r.details[CURVE] for r in chosen if CURVE in r.details and AVERAGE in r.metrics]
    sessions = len(params["schedule"]["sessions"])
    if not curves or any(len(curve) != sessions for curve in curves):
        return None
    return Bound(
        paper.label(name),
        round(fmean(r.metrics[AVERAGE] for r in chosen), 4),
        _mean(curves),
        sorted(r.seed for r in chosen),
    )


def _same_problem(record: Record, params: dict[str, Any]) -> bool:
    """The same stream, learned by the same network in the same way; only the memory differs."""
    data, train = params["data"], params["train"]
    wanted = {
        "backbone": params["model"]["backbone"],
        "epochs": train["epochs"],
        "batch_size": train["batch_size"],
        "lr": train["lr"],
        "per_pair": data["per_pair"],
        "validation": data["validation"],
        "sessions": len(params["schedule"]["sessions"]),
    }
    same = (record.benchmark, record.split) == (params["benchmark"], params["split"])
    return same and all(record.setting.get(key) == value for key, value in wanted.items())


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    return [round(fmean(values), 4) for values in zip(*curves, strict=True)]
