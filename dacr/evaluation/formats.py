"""How metrics are written for people."""

from __future__ import annotations

from dacr.evaluation.budget import NAMES

UNITS = {
    "average_incremental_accuracy": "%",
    "final_accuracy": "%",
    "forgetting": "points",
    "worst_domain_accuracy": "%",
}
CHANGES = ("forgetting", "backward_transfer", "forward_transfer", "intransigence")
"""Numbers that carry their sign."""
NOTHING = "–"


def decimals(metric: str) -> int:
    """How many decimals of a metric mean something."""
    if metric in NAMES:
        return 0
    return 3 if metric.startswith("purity") else 2


def format_metric(metric: str, value: float | None) -> str:
    """A metric as pages and terminals show it; a change carries its sign."""
    if value is None:
        return NOTHING
    sign = "+" if metric.startswith(CHANGES) and value > 0 else ""
    return f"{sign}{value:{',' if metric in NAMES else ''}.{decimals(metric)}f}"
