"""The curves of a run as tables, for ``dvc plots`` and for the report.

``reports/plots/*.csv`` hold names in place of ids, so that a plot reads without a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dacr.evaluation.files import checked
from dacr.evaluation.metrics import Entry, accuracies, sorted_by_session, with_hits

ACCURACIES = {
    "accuracy": "accuracy_by_session",
    "pair_averaged": "pair_averaged_accuracy_by_session",
}
PURITIES = {
    "purity": "purity_by_session",
    "single_component": "purity_single_component_by_session",
}
LOSS_KEYS = ("session", "phase", "epoch")
TEXT_COLUMNS = ("class", "domain", "actual", "predicted", "phase", "term", "left", "right")


def plot_tables(
    *,
    predictions: pd.DataFrame,
    embedding: pd.DataFrame,
    schedule: pd.DataFrame,
    history: dict[str, Any],
    metrics: dict[str, Any],
    classes: Sequence[str],
    domains: Sequence[str],
    domain_of: pd.Series[int],
) -> dict[str, pd.DataFrame]:
    """Every table of ``reports/plots/`` by its file's name.

    ``domain_of`` gives the domain of every image by id, for the exemplars in memory.
    """
    components = history.get("components", [])
    return {
        "accuracy_by_session": by_session(metrics, ACCURACIES),
        "domain_accuracy": domain_accuracy(predictions, domains),
        "purity_by_session": by_session(metrics, PURITIES),
        "components_by_session": components_by_session(schedule, components),
        "components_by_class": components_by_class(components, classes),
        "merges": merges(history.get("merges", []), classes),
        "kappa": pd.DataFrame(history.get("kappa", []), columns=["session", "kappa"]),
        "memory_by_domain": memory_by_domain(history.get("memory", []), domain_of, domains),
        "losses": losses(history.get("losses", [])),
        "confusion": confusion(predictions, classes),
        "embedding": named_embedding(embedding, classes, domains),
    }


def write_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", float_format="%.6g")


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """What ``write_tables`` wrote; names that look like numbers or gaps ("7", "NA") stay text."""
    files = sorted(folder.glob("*.csv"))
    return {file.stem: checked(file, "evaluate", _read_table) for file in files}


def _read_table(file: Path) -> pd.DataFrame:
    text = dict.fromkeys(TEXT_COLUMNS, "str")
    table = pd.read_csv(file, dtype=text, keep_default_na=False)
    if table.isna().any(axis=None):
        raise ValueError("a row is not complete")
    return table


def by_session(metrics: dict[str, Any], columns: dict[str, str]) -> pd.DataFrame:
    """Lists of ``metrics`` as columns: {column's name: metric}."""
    sessions = range(1, len(metrics["accuracy_by_session"]) + 1)
    return pd.DataFrame({"session": sessions} | {own: metrics[key] for own, key in columns.items()})


def domain_accuracy(predictions: pd.DataFrame, domains: Sequence[str]) -> pd.DataFrame:
    table = accuracies(with_hits(predictions), ["session", "domain"]).reset_index()
    return table.assign(domain=[domains[d] for d in table["domain"]])


def components_by_session(schedule: pd.DataFrame, components: list[Entry]) -> pd.DataFrame:
    """Mean components per seen class after expansion (before) and after reduction (after).

    A class without data in a session keeps what it had; without a mixture every class has one.
    """
    count: dict[int, int] = {}
    rows = []
    for session, brought in schedule.groupby("session"):
        count = {int(c): 1 for c in brought["class"]} | count
        here = [record for record in components if record["session"] == session]
        before = count | {record["class"]: record["before"] for record in here}
        count = count | {record["class"]: record["after"] for record in here}
        rows.append((session, *(sum(n.values()) / len(count) for n in (before, count))))
    return pd.DataFrame(rows, columns=["session", "before", "after"])


def components_by_class(components: list[Entry], classes: Sequence[str]) -> pd.DataFrame:
    columns = ["session", "class", "before", "after", "dropped", "merged"]
    table = pd.DataFrame(sorted_by_session(components), columns=columns)
    return table.assign(**{"class": [classes[c] for c in table["class"]]})


def merges(merges: list[Entry], classes: Sequence[str]) -> pd.DataFrame:
    """Which groups of components of a class were merged, their distance and their images."""
    columns = ["session", "class", "distance", "left", "right", "left_support", "right_support"]
    table = pd.DataFrame(sorted_by_session(merges), columns=columns)
    return table.assign(
        **{"class": [classes[c] for c in table["class"]]},
        left=[" ".join(map(str, members)) for members in table["left"]],
        right=[" ".join(map(str, members)) for members in table["right"]],
    )


def memory_by_domain(
    memory: list[Entry], domain_of: pd.Series[int], domains: Sequence[str]
) -> pd.DataFrame:
    """Exemplars in memory by session and domain.

    The learner never sees domains, so its records name the exemplars (``ids``) and the join with
    the benchmark's index happens here. Records without ids give an empty table.
    """
    rows = [(record["session"], i) for record in memory for i in record.get("ids", [])]
    table = pd.DataFrame(rows, columns=["session", "id"], dtype="int64")
    table = table.assign(domain=table["id"].map(domain_of))
    table = table.groupby(["session", "domain"]).size().rename("count").reset_index()
    return table.assign(domain=[domains[d] for d in table["domain"]])


def losses(epochs: list[Entry]) -> pd.DataFrame:
    """One row per loss term and epoch; ``step`` counts the epochs of all sessions and phases."""
    rows = [
        (step, *(epoch[key] for key in LOSS_KEYS), term, value)
        for step, epoch in enumerate(epochs, start=1)
        for term, value in sorted(epoch.items())
        if term not in LOSS_KEYS
    ]
    return pd.DataFrame(rows, columns=["step", *LOSS_KEYS, "term", "value"])


def confusion(predictions: pd.DataFrame, classes: Sequence[str]) -> pd.DataFrame:
    """One row per test image of the last session, the form of DVC's template ``confusion``."""
    last = predictions[predictions["session"] == predictions["session"].max()]
    names = {
        name: [classes[c] for c in last[column]]
        for name, column in (("actual", "label"), ("predicted", "predicted"))
    }
    return pd.DataFrame(names).sort_values(["actual", "predicted"], ignore_index=True)


def named_embedding(
    embedding: pd.DataFrame, classes: Sequence[str], domains: Sequence[str]
) -> pd.DataFrame:
    """The t-SNE of some test images after each session (Fig. 4)."""
    table = embedding[["session", "label", "domain", "component", "x", "y"]]
    return table.rename(columns={"label": "class"}).assign(
        **{"class": [classes[c] for c in table["label"]]},
        domain=[domains[d] for d in table["domain"]],
    )
