"""The report's sections about results: accuracy, confusion, and features in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dacr.report.charts import COLOURS, scatter
from dacr.report.figures import Cell, Figure, Grid, by_session, dot_legend, grid_of

MOST_CLASSES_IN_A_GRID = 25


def accuracy_curve(table: pd.DataFrame) -> Figure:
    names = {"accuracy": "all test images pooled", "pair_averaged": "mean over class-domain pairs"}
    return by_session(
        table,
        names,
        y_name="accuracy, %",
        y_range=percent_range(min(float(table[name].min()) for name in names)),
        caption="Accuracy on the test images of everything seen so far, after each session.",
    )


def percent_range(lowest: float) -> tuple[float, float]:
    """Percentages up to 100; from 0, unless that would press the curves against the top."""
    return (max(0.0, lowest - 10.0) if lowest > 50.0 else 0.0, 100.0)


def domain_grid(table: pd.DataFrame, domains: Sequence[str]) -> Grid:
    """Accuracy of each domain (rows) after each session (columns)."""
    cells = {
        (row["domain"], str(row["session"])): _percent(
            row["accuracy"], f"{row['domain']}, session {row['session']}"
        )
        for row in table.to_dict("records")
    }
    sessions = [str(t) for t in sorted(table["session"].unique())]
    return grid_of(cells, "Accuracy by domain and session, %", "domain", domains, sessions)


def _percent(value: float, what: str) -> Cell:
    # The square sets good accuracies apart from each other, where most of them lie.
    return Cell(f"{value:.0f}", (value / 100.0) ** 2, f"{what}: {value:.2f} %")


def pair_grid(metrics: dict[str, Any], benchmark: dict[str, Any]) -> Grid:
    """Accuracy of each class (rows) in each domain (columns), after the last session."""
    classes, domains = benchmark["classes"], benchmark["domains"]
    cells = {
        (classes[pair["class"]], domains[pair["domain"]]): _percent(
            pair["accuracy"], f"{classes[pair['class']]} in {domains[pair['domain']]}"
        )
        for pair in metrics["accuracy_by_pair"]
    }
    return grid_of(cells, "Accuracy by class and domain, %", "class", classes, domains)


def schedule_grid(schedule: pd.DataFrame, benchmark: dict[str, Any]) -> Grid:
    """Which session brings each class (rows) in each domain (columns)."""
    classes, domains = benchmark["classes"], benchmark["domains"]
    last = int(schedule["session"].max())
    cells = {}
    for session, c, d, new in schedule.itertuples(index=False):
        what = f"session {session} brings {classes[c]} in {domains[d]}"
        cells[classes[c], domains[d]] = Cell(
            str(session), 0.7 * session / last, f"{what}{', a new class' if new else ''}", bool(new)
        )
    return grid_of(cells, "The session that brings each pair", "class", classes, domains)


@dataclass(frozen=True)
class ConfusionSection:
    grid: Grid | None
    shares: list[list[float]]
    most_confused: list[tuple[str, str, float]]


def confusion(table: pd.DataFrame, classes: Sequence[str]) -> ConfusionSection:
    """Shares of each actual class (rows) by predicted class; as a grid where it is small enough."""
    counts = pd.crosstab(table["actual"], table["predicted"])
    counts = counts.reindex(index=list(classes), columns=list(classes), fill_value=0)
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0) * 100.0
    pairs = {(a, p): float(shares.loc[a, p]) for a in classes for p in classes}  # type: ignore[arg-type]
    wrong = sorted(
        ((a, p, share) for (a, p), share in pairs.items() if a != p and share > 0),
        key=lambda entry: -entry[2],
    )
    grid = None
    if len(classes) <= MOST_CLASSES_IN_A_GRID:
        cells = {
            (a, p): Cell(
                f"{share:.0f}" if share >= 0.5 else "",
                share / 100.0,
                f"{a} taken for {p}: {share:.1f} %",
            )
            for (a, p), share in pairs.items()
        }
        label = "Of each actual class (row), % taken for each class (column)"
        grid = grid_of(cells, label, "actual", classes, classes)
    return ConfusionSection(grid, shares.to_numpy().tolist(), wrong[:5])


@dataclass(frozen=True)
class EmbeddingSection:
    last: list[Figure]
    by_session: list[Figure]


def embedding(table: pd.DataFrame, benchmark: dict[str, Any]) -> EmbeddingSection | None:
    """t-SNE of test images as in Fig. 4: by class, by domain, one class; and session by session."""
    if table.empty:
        return None
    classes, domains = benchmark["classes"], benchmark["domains"]
    last = table[table["session"] == table["session"].max()]
    spread = last.groupby("class")["domain"].nunique()
    one = next(c for c in classes if spread.get(c) == spread.max())
    figures = [
        _scatter(last, "class", classes, "After the last session, by class."),
        _scatter(last, "domain", domains, "The same images, by domain."),
        _scatter(last[last["class"] == one], "domain", domains, f"Class {one} alone, by domain."),
    ]
    sessions = [
        _scatter(own, "domain", domains, f"Session {session}", size=240)
        for session, own in table.groupby("session")
    ]
    return EmbeddingSection(figures, sessions if len(sessions) > 1 else [])


def _scatter(
    table: pd.DataFrame, column: str, names: Sequence[str], caption: str, size: float = 480
) -> Figure:
    groups = [
        (name, list(zip(own["x"].astype(float), own["y"].astype(float), strict=True)))
        for name in names
        for own in [table[table[column] == name]]
    ]
    chart = scatter(groups, label=f"t-SNE of test images. {caption}", size=size)
    # More groups than colours share them, and a legend would not tell them apart.
    return Figure(chart, caption, dot_legend(names) if len(names) <= COLOURS else [])
