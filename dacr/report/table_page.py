"""``reports/paper/<table>-<benchmark>.html``: one self-contained page about a table of the paper.

It is made from the committed results alone, so that a fresh clone shows the same page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from dacr.experiments.records import Record, results_path, write_text
from dacr.experiments.results import Results
from dacr.report import table_charts as charts
from dacr.report.figures import Figure, Grid
from dacr.report.headline import decimals
from dacr.report.page import page_environment
from dacr.report.table_terminal import (
    beside,
    columns,
    duration,
    number_cells,
    scale,
    settings,
    signed,
    spread,
    where,
    words,
)

OWN = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Line:
    """A row of the page's table: its cells of one split, and the experiments behind them."""

    label: str
    cells: list[str]
    experiments: list[Record]


@dataclass(frozen=True)
class Block:
    """A metric on a split."""

    title: str
    columns: list[str]
    lines: list[Line]


@dataclass(frozen=True)
class Card:
    title: str
    text: str
    meaning: str
    paper: str | None


def blocks(results: Results) -> list[Block]:
    return [
        Block(
            f"{split.upper()}, {words(metric)}",
            columns(results),
            [
                Line(
                    row.label,
                    number_cells(results, results.number(key, split, metric), metric),
                    results.records[key, split],
                )
                for key, row in results.rows.items()
            ],
        )
        for metric in results.table.metrics
        for split in results.table.splits
    ]


def cards(results: Results) -> list[Card]:
    """Split by split the row that matters most: its gain if it has a host, else its value."""
    metric = results.table.metrics[0]
    rows = {split: _leading_row(results, split, metric) for split in results.table.splits}
    return [_card(results, row, split, metric) for split, row in rows.items() if row]


def _leading_row(results: Results, split: str, metric: str) -> str | None:
    """The last row that is a method as the benchmark configures it; else the last one.

    Not the best: of many settings the best on test images is so by chance, too.
    """
    numbers = {key: results.number(key, split, metric) for key in results.rows}
    measured = [key for key, own in numbers.items() if own.mean is not None]
    plain = [key for key in measured if key in results.plain]
    leading = plain or measured
    return leading[-1] if leading else None


def _card(results: Results, row: str, split: str, metric: str) -> Card:
    own, digits = results.number(row, split, metric), decimals(metric)
    label, host = results.rows[row].label, results.rows[row].host
    if own.gain is not None and host is not None:
        theirs = None if own.paper_gain is None else signed(own.paper_gain, digits)
        title = f"{split.upper()}: {label} over {results.rows[host].label}"
        meaning = f"{words(metric)}, {_seeds(own.gain_seeds)}"
        return Card(title, signed(own.gain, digits, own.gain_deviation), meaning, theirs)
    theirs = None if own.paper is None else spread(own.paper, own.paper_deviation, digits)
    text = spread(own.mean, own.deviation, digits)
    return Card(f"{split.upper()}: {label}", text, f"{words(metric)}, {_seeds(own.seeds)}", theirs)


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count > 1)}"


def figures(results: Results, split: str) -> list[Figure]:
    """The charts of a split that the table's metrics and details call for."""
    table = results.table
    drawn: list[Figure | None] = []
    if table.grid:
        for metric in table.metrics:
            drawn += charts.over_grid(results, split, metric)
    elif "embedding" not in table.details and "accuracy_by_arrival" not in table.details:
        drawn += [charts.bars(results, split, metric) for metric in table.metrics[:2]]
    if "accuracy_by_session" in table.details and not table.grid:
        drawn.append(charts.by_session(results, split, "accuracy_by_session", "accuracy, %", True))
    if "components_by_session" in table.details:
        name = "components a class"
        drawn.append(charts.by_session(results, split, "components_by_session", name, False))
    if "purity_by_session" in table.details:
        drawn.append(charts.by_session(results, split, "purity_by_session", "purity", False))
    return [figure for figure in drawn if figure]


def maps(results: Results) -> list[Grid]:
    if "accuracy_by_arrival" not in results.table.details:
        return []
    return [grid for split in results.table.splits for grid in charts.arrival_grids(results, split)]


def clouds(results: Results) -> list[tuple[str, list[Figure]]]:
    if "embedding" not in results.table.details:
        return []
    return [own for split in results.table.splits for own in charts.embeddings(results, split)]


def with_code(text: str) -> Markup:
    """What stands between backticks in a terminal, as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def from_mirror(record: Record) -> bool:
    """Its images are a mirror's own: the command alone would fetch others, or none."""
    return any(kind.startswith("mirror") for kind in record.data["origins"].values())


def render(results: Results) -> str:
    environment = page_environment(OWN)
    environment.globals |= {"duration": duration, "from_mirror": from_mirror}
    environment.filters["with_code"] = with_code
    table = results.table
    cells = len(results.rows) * len(table.splits)
    return environment.get_template("paper.html.j2").render(
        table=table,
        benchmark=results.benchmark,
        own_style=Markup((OWN / "paper.css").read_text(encoding="utf-8")),
        measured=sum(bool(own) for own in results.records.values()),
        cells=cells,
        facts=[scale(results), where(results), *settings(results)],
        beside=beside(results),
        gains=results.has_gains,
        unshared=len(results.measured) - sum(map(len, results.records.values())),
        blocks=blocks(results),
        cards=cards(results),
        reference=results.reference_name,
        figures=[own for split in table.splits if (own := figures(results, split))],
        maps=maps(results),
        clouds=clouds(results),
        records=results.all_records,
        older=results.older,
    )


def write_page(results: Results) -> Path:
    path = results_path(results.table.name, results.benchmark, "html")
    write_text(path, render(results))
    return path
