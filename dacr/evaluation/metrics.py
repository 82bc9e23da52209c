"""The numbers of a run, from its predictions alone.

Predictions are one table over all sessions (session, id, label, domain, predicted, component,
confidence): after session t the test images of every class-domain pair seen so far, pooled, as in
Eq. 1. The schedule (session, class, domain, new_class) says which session brought which pair; a
pair that comes in several sessions is seen, and tested, from the first of them on.
Accuracies are percentages, purities lie between 0 and 1. Details are lists of records, which DVC
leaves out of its tables of experiments, so that these show the headline numbers only.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from dacr.data.shares import first_appearances
from dacr.errors import UserError

DECIMALS = 4
PAIR = ["label", "domain"]

Entry = dict[str, Any]


def compute_metrics(
    predictions: pd.DataFrame, schedule: pd.DataFrame, components: list[Entry]
) -> dict[str, Any]:
    """Every number of ``reports/metrics.json``.

    ``components`` are the records {session, class, before, after, …} that a mixture leaves at each
    reduction; a method with one prototype per class leaves none.
    """
    check_sessions(predictions, schedule)
    scored = with_hits(predictions)
    by_session = accuracies(scored, ["session"])
    pair_averaged = accuracies(scored, ["session", *PAIR]).groupby("session").mean()
    purity = purity_by_session(predictions)
    single_component = purity_by_session(predictions.assign(component=0))
    last = scored[scored["session"] == scored["session"].max()]
    by_domain = accuracies(last, ["domain"])
    return {
        "average_incremental_accuracy": rounded(by_session.mean()),
        "final_accuracy": rounded(by_session.iloc[-1]),
        "forgetting": rounded(forgetting(scored)),
        "forgetting_session_only": rounded(forgetting(scored, schedule)),
        "pair_averaged_incremental_accuracy": rounded(pair_averaged.mean()),
        "pair_averaged_final_accuracy": rounded(pair_averaged.iloc[-1]),
        "worst_domain_accuracy": rounded(by_domain.min()),
        "components_per_class": rounded(components_per_class(schedule, components)),
        "purity": rounded(purity.iloc[-1]),
        "purity_average": rounded(purity.mean()),
        "purity_single_component": rounded(single_component.iloc[-1]),
        "purity_single_component_average": rounded(single_component.mean()),
        "accuracy_by_session": [rounded(value) for value in by_session],
        "pair_averaged_accuracy_by_session": [rounded(value) for value in pair_averaged],
        "purity_by_session": [rounded(value) for value in purity],
        "purity_single_component_by_session": [rounded(value) for value in single_component],
        "accuracy_by_class": entries(accuracies(last, ["label"])),
        "accuracy_by_domain": entries(by_domain),
        "accuracy_by_pair": entries(accuracies(last, PAIR)),
        "accuracy_by_domain_and_session": entries(accuracies(scored, ["session", "domain"])),
    }


def rounded(value: float) -> float:
    """Few enough digits that the last bit of a sum does not change the file."""
    return round(float(value), DECIMALS) + 0.0  # + 0.0 makes −0.0 a plain zero


def entries(series: pd.Series[float]) -> list[Entry]:
    """A series as JSON, one object per entry, the classes under the schedule's name for them."""
    table = series.round(DECIMALS).reset_index().rename(columns={"label": "class"})
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def check_sessions(predictions: pd.DataFrame, schedule: pd.DataFrame) -> None:
    """Predictions of another schedule would give numbers that mean nothing."""
    expected = sorted(schedule["session"].unique().tolist())
    found = sorted(predictions["session"].unique().tolist())
    if expected != found:
        raise UserError(
            f"the predictions are of the sessions {found}, the schedule has {expected}; "
            "run `dvc repro` so that both are of the same split"
        )
    first = first_appearances(schedule)
    brought = first.rename(columns={"class": "label", "session": "since"})
    pairs = predictions[["session", *PAIR]].drop_duplicates().merge(brought, on=PAIR, how="left")
    if not (pairs["since"] <= pairs["session"]).all():
        raise UserError(
            "the predictions hold test images of pairs that the schedule had not yet brought; "
            "run `dvc repro` so that both are of the same split"
        )
    tested = predictions[["session", "id"]]
    earlier = tested[tested["session"] < max(found)]
    kept = earlier.merge(tested.assign(session=tested["session"] - 1), on=["session", "id"])
    if tested.duplicated().any() or len(kept) != len(earlier):
        raise UserError(
            "the predictions of a session do not hold every test image of the session before once; "
            "run `dvc repro -f consolidate`"
        )


def with_hits(predictions: pd.DataFrame) -> pd.DataFrame:
    """The predictions with a column ``accuracy``: 100 where the class is right, 0 where not."""
    return predictions.assign(accuracy=100.0 * (predictions["predicted"] == predictions["label"]))


def accuracies(scored: pd.DataFrame, by: list[str]) -> pd.Series[float]:
    """Top-1 accuracy of each group, sorted by group."""
    return scored.groupby(by)["accuracy"].mean()


def forgetting(scored: pd.DataFrame, schedule: pd.DataFrame | None = None) -> float:
    """F = 1/(N−1) Σ_{i=2..N} (A_i^{i−1} − A_{i−1}^{i−1}), the appendix "Forgetting Metric".

    A_i^{i−1} is the accuracy after session i on the test set of session i−1: the cumulative one, or
    with a ``schedule`` only the test images of the pairs that session i−1 itself brought, for the
    first time or again. Negative is forgetting. A single session has nothing to forget, and F is 0.
    """
    earlier = scored[["session", "id", *PAIR, "accuracy"]]
    if schedule is not None:
        brought = schedule.rename(columns={"class": "label"})[["session", *PAIR]]
        earlier = earlier.merge(brought, on=["session", *PAIR])
    later = scored.assign(session=scored["session"] - 1)[["session", "id", "accuracy"]]
    both = earlier.merge(later, on=["session", "id"], suffixes=("_before", "_after"))
    change = both["accuracy_after"] - both["accuracy_before"]
    return float(change.groupby(both["session"]).mean().mean()) if len(both) else 0.0


def components_per_class(schedule: pd.DataFrame, components: list[Entry]) -> float:
    """Mean number of components at the end: of each class after its last reduction, else one."""
    latest = {record["class"]: record["after"] for record in sorted_by_session(components)}
    classes = schedule["class"].unique()
    return float(sum(latest.get(int(c), 1) for c in classes) / len(classes))


def sorted_by_session(records: list[Entry]) -> list[Entry]:
    return sorted(records, key=lambda record: int(record["session"]))


def purity_by_session(predictions: pd.DataFrame) -> pd.Series[float]:
    """How far a component holds one domain, averaged over the classes of each session.

    Of a class with weights w(k, d) of domain d in component k: Σ_k max_d w(k, d) / Σ_{k,d} w(k, d).
    An image weighs 1 / (test images of its pair), so that every seen domain of a class counts
    equally; one component for all then has purity 1 / domains.
    """
    group = ["session", "label"]
    pair_size = predictions.groupby([*group, "domain"])["id"].transform("size")
    weighted = predictions.assign(weight=1.0 / pair_size)
    weights = weighted.groupby([*group, "component", "domain"])["weight"].sum()
    dominant = weights.groupby([*group, "component"]).max().groupby(group).sum()
    return (dominant / weights.groupby(group).sum()).groupby("session").mean()
