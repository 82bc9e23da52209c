"""How metrics are written for people."""

from __future__ import annotations

UNITS = {
    "average_incremental_accuracy": "%",
    "final_accuracy": "%",
    "forgetting": "points",
    "worst_domain_accuracy": "%",
}
NOTHING = "–"


def decimals(metric: str) -> int:
    """How many decimals of a metric mean something."""
    return 3 if metric.startswith("purity") else 2


def format_metric(metric: str, value: float | None) -> str:
    """A metric as pages and terminals show it; a change carries its sign."""
    if value is None:
        return NOTHING
    sign = "+" if metric.startswith("forgetting") and value > 0 else ""
    return f"{sign}{value:.{decimals(metric)}f}"
