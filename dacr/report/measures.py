"""What the page about a run says of transfer, forgetting and calibration, and of what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from dacr.evaluation.budget import NAMES
from dacr.evaluation.continual import rows_of
from dacr.evaluation.formats import format_metric, scaled
from dacr.report.charts import Line, line_chart
from dacr.report.html import Card, Fact, Figure, Sheet, percent_map, sheet_of

MEANINGS = {
    "average_accuracy": ("Average over the last row", "%"),
    "learning_accuracy": ("Average over the diagonal: each session when it was learned", "%"),
    "matrix_accuracy": ("Average over the whole triangle", "%"),
    "backward_transfer": (
        "Backward transfer: last row minus diagonal; negative is forgetting",
        "points",
    ),
    "chaudhry_forgetting": (
        "Forgetting of Chaudhry et al.: best minus last; positive is forgetting",
        "points",
    ),
}
GROUP_NAMES = {
    "new_class": "new classes",
    "old_class": "old classes",
    "new_domain": "old classes, new domains",
    "old_domain": "old classes, old domains",
}


def price(budget: Mapping[str, Any]) -> str:
    """The budget in one line, to stand beside an accuracy."""
    return (
        f"{scaled(budget['parameters'])} parameters, {budget['exemplars']:,} exemplars "
        f"({scaled(budget['exemplar_bytes'], 'B')}), {scaled(budget['training_flops'], 'FLOP')}"
    )


def with_price(cards: list[Card], budget: Mapping[str, Any]) -> list[Card]:
    """The cards of accuracies with what they cost."""
    return [
        replace(card, meanings=[*card.meanings, price(budget)])
        if "accuracy" in card.metric
        else card
        for card in cards
    ]


# -- sections ---------------------------------------------------------------------------------


def transfer_figures(measures: dict[str, Any], tables: dict[str, pd.DataFrame]) -> list[Figure]:
    """R as a heat map with what is computed from it, and new beside old."""
    rows = rows_of(measures["accuracy_matrix"])
    sessions = [str(number) for number in range(1, len(rows) + 1)]
    square = [[*row, *[float("nan")] * (len(rows) - len(row))] for row in rows]
    values = pd.DataFrame(square, index=sessions, columns=sessions)
    label = "Accuracy after session i (row) on the pairs that session j brings (column), %"
    matrix = Figure(
        "A column shows how the accuracy on one session changes as further ones are learned.",
        sheet=percent_map(label, "after", values, ", on those of session "),
        facts=[_fact(measures, name, *words) for name, words in MEANINGS.items()],
        id="matrix",
    )
    groups = tables["new_and_old"].set_index("session")[list(GROUP_NAMES)].T
    groups = groups.rename(index=GROUP_NAMES)
    groups.columns = [f"{session:.0f}" for session in groups.columns]
    old = Figure(
        "A class is new in the session that first brings it. Of old classes, a domain is new if "
        "the class first meets it in this session.",
        sheet=percent_map("New against old, after each session, %", "", groups, ", session "),
    )
    return [matrix, old]


def _fact(measures: dict[str, Any], name: str, what: str, unit: str) -> Fact:
    return what, name, format_metric(name, measures.get(name)), unit


def calibration_figure(measures: dict[str, Any], table: pd.DataFrame) -> Figure | None:
    """The reliability diagram; None where the predictions have no confidence."""
    if table.empty:
        return None
    points = list(zip(table["confidence"], table["accuracy"], strict=True))
    own = Line("this run", points, 0)
    ideal = Line("perfectly calibrated", [(20.0 * k, 20.0 * k) for k in range(6)], 5)
    chart = line_chart(
        [own, ideal],
        "Accuracy by confidence after the last session, in bins of equal width.",
        "accuracy, %",
        (0.0, 100.0),
        x_name="confidence, %",
        x_ticks=[20.0 * tick for tick in range(6)],
        end_values=False,
    )
    facts = [
        _fact(measures, "calibration_error", "Expected calibration error", "points"),
        _fact(measures, "calibration_error_average", "The same, averaged over sessions", "points"),
    ]
    return replace(chart, facts=facts, numbers=sheet_of(table), id="calibration")


def budget_figures(budget: dict[str, Any], measures: dict[str, Any]) -> list[Figure]:
    """What the run cost, in all and session by session."""
    rows = [[meaning, f"{budget[name]:,}", scaled(budget[name])] for name, meaning in NAMES.items()]
    total = Sheet("Budget", ["what", "exactly", "about"], rows)
    sessions = [
        [
            str(own["session"]),
            str(own["extractors"]),
            f"{own['images_trained']:,}",
            f"{own['images_forward']:,}",
            scaled(own["training_flops"], "FLOP"),
            "/".join(format_metric("accuracy", v) for v in measures["accuracy_matrix"][i][i:]),
        ]
        for i, own in enumerate(budget["by_session"])
    ]
    columns = [
        "session",
        "networks",
        "images trained on",
        "forward alone",
        "work",
        "accuracy on it, %",
    ]
    return [
        Figure(
            "Counted, not timed: the same on every machine. FLOPs are those of passes through the "
            "feature extractors; seconds are under Machine and time.",
            sheet=total,
            id="price",
        ),
        Figure(sheet=Sheet("Session by session", columns, sessions)),
    ]
