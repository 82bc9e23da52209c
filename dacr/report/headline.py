"""What the report says first: the run in words, its main numbers, and the paper's beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dacr.experiments.published import Comparison
from dacr.report.charts import ranked_bars
from dacr.report.figures import Figure

UNITS = {
    "average_incremental_accuracy": "%",
    "final_accuracy": "%",
    "forgetting": "points",
    "worst_domain_accuracy": "%",
}


@dataclass(frozen=True)
class Card:
    """A headline number, with the paper's where it has one."""

    metric: str
    title: str
    text: str
    unit: str
    meaning: str
    paper: str | None


def decimals(name: str) -> int:
    """How many decimals of a metric mean something."""
    return 3 if name.startswith("purity") else 2


def format_metric(name: str, value: float) -> str:
    """A metric as the page shows it; a change carries its sign."""
    sign = "+" if name.startswith("forgetting") and value > 0 else ""
    return f"{sign}{value:.{decimals(name)}f}"


def summary(metrics: dict[str, Any], benchmark: dict[str, Any]) -> list[str]:
    """The run in a few sentences."""
    sessions = len(metrics["accuracy_by_session"])
    domains = sorted(metrics["accuracy_by_domain"], key=lambda record: -record["accuracy"])
    best, worst = domains[0], domains[-1]
    sentences = [
        f"After {sessions} session{'s' * (sessions > 1)} it recognises "
        f"{metrics['final_accuracy']:.1f} % of the test images of everything seen."
    ]
    if sessions > 1:
        lost = -metrics["forgetting"]
        verb = "loses" if lost >= 0 else "gains"
        sentences.append(
            f"From one session to the next it {verb} {abs(lost):.1f} points on what it knew before."
        )
    if len(domains) > 1:
        name = benchmark["domains"]
        sentences.append(
            f"Its best domain is {name[best['domain']]} ({best['accuracy']:.1f} %), "
            f"its worst {name[worst['domain']]} ({worst['accuracy']:.1f} %)."
        )
    return sentences


def cards(
    metrics: dict[str, Any], benchmark: dict[str, Any], paper: Comparison, mixture: bool
) -> list[Card]:
    sessions = len(metrics["accuracy_by_session"])
    worst = min(metrics["accuracy_by_domain"], key=lambda record: record["accuracy"])
    meanings = {
        "average_incremental_accuracy": (
            "Average incremental accuracy",
            f"mean over {sessions} sessions, the first included",
        ),
        "final_accuracy": ("Final accuracy", "all test images, after the last session"),
        "forgetting": (
            "Forgetting",
            "mean change on the test set of the session before; closer to 0 is better",
        ),
        "worst_domain_accuracy": (
            "Worst domain",
            f"{benchmark['domains'][worst['domain']]}, after the last session",
        ),
    }
    if mixture:
        single = format_metric("purity", metrics["purity_single_component"])
        meanings["components_per_class"] = ("Components a class", "after the last reduction")
        meanings["purity"] = (
            "Purity of components",
            f"a single component a class would have {single}",
        )
    return [
        Card(
            metric=name,
            title=title,
            text=format_metric(name, metrics[name]),
            unit=UNITS.get(name, ""),
            meaning=meaning,
            paper=format_metric(name, paper.values[name]) if name in paper.values else None,
        )
        for name, (title, meaning) in meanings.items()
    ]


@dataclass(frozen=True)
class PaperSection:
    table_1: Figure
    rows: list[tuple[str, str, str, str]]
    """(metric, this run, the paper, difference)"""


def beside_the_paper(paper: Comparison, metrics: dict[str, Any]) -> PaperSection | None:
    """Table 1's column of this benchmark and split with this run among it, and number by number."""
    if not paper.table:
        return None
    average = metrics["average_incremental_accuracy"]
    bars = [*((words, value, False) for words, value in paper.table), ("this run", average, True)]
    caption = "Average incremental accuracy of the paper's methods (Table 1), and of this run."
    chart = ranked_bars(sorted(bars, key=lambda bar: -bar[1]), label=caption)
    rows = [
        (
            name,
            format_metric(name, metrics[name]),
            format_metric(name, value),
            f"{metrics[name] - value:+.{decimals(name)}f}",
        )
        for name, value in paper.values.items()
    ]
    return PaperSection(Figure(chart, caption, []), rows)
