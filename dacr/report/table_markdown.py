"""Results in a Markdown file: tables that stand between two marks are written from the records.

A mark names the table of the paper, the benchmark and the metrics:
``<!-- table main on idigits_mini: final_accuracy, purity -->`` … ``<!-- end of table -->``.
So no number of a page is typed, and a page that is older than the records can be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dacr.errors import UserError
from dacr.evaluation.formats import NOTHING
from dacr.experiments.gains import Gain
from dacr.experiments.results import Results
from dacr.report.table_figures import (
    COSTS,
    budget_cells,
    has_budgets,
    signed_gain,
    with_deviation,
    words,
)

BLOCK = re.compile(
    r"<!-- table (?P<table>\S+) on (?P<benchmark>\S+): (?P<metrics>[\w, ]+) -->\n"
    r".*?"
    r"<!-- end of table -->",
    re.DOTALL,
)
SHORT = {
    "average_incremental_accuracy": "average",
    "final_accuracy": "final",
    "components_per_class": "components",
}
CLAIMS = 2
"""Gains are shown of so many metrics, the first ones."""


def insert_tables(text: str, results_of: Callable[[str, str], Results]) -> str:
    """The text with every marked table written anew."""

    def written(found: re.Match[str]) -> str:
        metrics = [name.strip() for name in found["metrics"].split(",")]
        start = found[0].split("\n", 1)[0]
        table = markdown(results_of(found["table"], found["benchmark"]), metrics)
        return f"{start}\n{table}\n<!-- end of table -->"

    if text.count("<!-- table ") != len(BLOCK.findall(text)):
        raise UserError(
            "a mark of a table is not understood; it is `<!-- table NAME on BENCHMARK: METRIC, … "
            "-->` and ends with `<!-- end of table -->`"
        )
    return BLOCK.sub(written, text)


def markdown(results: Results, metrics: Sequence[str]) -> str:
    """What was measured, a line per split and row; a significant gain is bold."""
    known = {name for record in results.all_records for name in record.metrics}
    if unknown := [name for name in metrics if known and name not in known]:
        raise UserError(f"{unknown[0]} is no metric; there are {', '.join(sorted(known))}")
    columns = ["split", "", *map(_short, metrics)]
    if results.has_gains:
        columns += [*(f"gain, {_short(name)}" for name in metrics[:CLAIMS]), "over"]
    columns += [*(COSTS if has_budgets(results) else ()), "seeds"]
    lines = [columns, ["---"] * len(columns)]
    for split in results.table.splits:
        for key in results.rows:
            if own := results.records[key, split]:
                told = _line(results, key, split, metrics)
                lines.append([split.upper(), *told, str(len({record.seed for record in own}))])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(results: Results, key: str, split: str, metrics: Sequence[str]) -> list[str]:
    numbers = {name: results.number(key, split, name) for name in metrics}
    told = [results.rows[key].label]
    told += [with_deviation(own.mean, own.deviation, _digits(n)) for n, own in numbers.items()]
    if results.has_gains:
        gains = [numbers[name].gain for name in metrics[:CLAIMS]]
        over = dict.fromkeys(results.rows[gain.over].label for gain in gains if gain)
        told += [*map(_bold, gains), ", ".join(over) or NOTHING]
    if has_budgets(results):
        cells = budget_cells(results.budget(key, split))
        told += [cells[name] for name in COSTS]
    return told


def _bold(gain: Gain | None) -> str:
    told = signed_gain(gain, 1)
    return f"**{told}**" if gain and gain.significant else told


def _short(metric: str) -> str:
    return SHORT.get(metric, words(metric))


def _digits(metric: str) -> int:
    return 2 if metric.startswith("purity") else 1
