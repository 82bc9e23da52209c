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
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


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
    return scaled(value) if metric in NAMES else f"{sign}{value:.{decimals(metric)}f}"


def format_change(metric: str, change: float) -> str:
    """A difference of two values of a metric, with its sign."""
    if metric in NAMES:
        return f"{'+' * (change > 0)}{scaled(change)}"
    return f"{change:+.{decimals(metric)}f}"


def scaled(value: float | None, unit: str = "") -> str:
    """A large number as people say it: 2.5 T, 322 k."""
    if value is None:
        return NOTHING
    for size, prefix in PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def duration(seconds: float) -> str:
    """Seconds as people say them: 80 s, 12 min, 3 h 7 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
