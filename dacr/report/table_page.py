"""``reports/paper/<table>-<benchmark>.html``: one self-contained page about a table of the paper.

It is made from the committed results alone, so that a fresh clone shows the same page.
"""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup, escape

from dacr.evaluation.formats import decimals
from dacr.experiments.records import Record, results_path, write_text
from dacr.experiments.results import Results
from dacr.report import table_words as said
from dacr.report.html import Card, Field, Figure, PageSection, render_page
from dacr.report.sections import TSNE
from dacr.report.table_figures import (
    arrival_maps,
    embeddings,
    figures,
    metric_sheet,
    with_deviation,
    words,
)


def split_cards(results: Results) -> list[Card]:
    """Split by split the row that matters most: its gain if it has a host, else its value."""
    metric = results.table.metrics[0]
    rows = {split: leading_row(results, split, metric) for split in results.table.splits}
    return [_row_card(results, row, split, metric) for split, row in rows.items() if row]


def leading_row(results: Results, split: str, metric: str) -> str | None:
    """The last row that is a method as the benchmark configures it; else the last one.

    Not the best: of many settings the best on test images is so by chance, too.
    """
    measured = [key for key in results.rows if results.number(key, split, metric).seeds]
    plain = [key for key in measured if key in results.plain]
    return next(reversed(plain or measured), None)


def _row_card(results: Results, row: str, split: str, metric: str) -> Card:
    own, digits = results.number(row, split, metric), decimals(metric)
    label, host = results.rows[row].label, results.rows[row].host
    title = f"{split.upper()}: {label}"
    shown = own.mean, own.deviation, own.seeds, own.paper, own.paper_deviation
    if gains := own.gain is not None and host is not None:
        title += f" over {results.rows[host].label}"
        shown = own.gain, own.gain_deviation, own.gain_seeds, own.paper_gain, None
    mean, deviation, seeds, paper, paper_deviation = shown
    sign = "+" if gains else ""
    theirs = with_deviation(paper, paper_deviation, digits, sign)
    return Card(
        title,
        with_deviation(mean, deviation, digits, sign),
        [f"{words(metric)}, {said.counted(seeds, 'seed')}"],
        paper="" if paper is None else f"paper, {results.reference_name}: {theirs}",
    )


def with_code(text: str) -> Markup:
    """What stands between backticks in a terminal, as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def from_mirror(record: Record) -> bool:
    """Its images are a mirror's own: the command alone would fetch others, or none."""
    return any(kind.startswith("mirror") for kind in record.data["origins"].values())


def _links(records: list[Record]) -> Field:
    link = Markup('<a href="#{0}" title="{0}">{1}</a>')
    return Field(Markup("").join(link.format(record.name, record.seed) for record in records))


def _about_numbers(results: Results) -> str:
    text = "A measured value is the mean of the seeds ± their standard deviation."
    if results.has_gains:
        text += (
            f" A gain is {results.table.gain}, on the seeds that both have, ± the standard "
            "deviation of the seeds' own gains."
        )
    text += " Each seed leads to its experiment."
    if unshared := len(results.measured) - sum(map(len, results.records.values())):
        text += (
            " Settings are compared on the seeds that all of them have; the file has "
            f"{said.counted(unshared, 'more experiment')}."
        )
    return text


def render_table(results: Results) -> str:
    table, splits = results.table, results.table.splits
    charts = [
        PageSection(f"charts-{split}", f"Charts of {split.upper()}", figures(results, split))
        for split in splits
    ]
    maps = clouds = []
    if "accuracy_by_arrival" in table.details:
        maps = [Figure(sheet=own) for split in splits for own in arrival_maps(results, split)]
    seed = results.all_records[0].seed if results.all_records else ""
    if "embedding" in table.details:
        clouds = [own for split in splits for own in embeddings(results, split)]
    numbers = [
        Figure(sheet=metric_sheet(results, split, metric, _links))
        for metric in table.metrics
        for split in splits
    ]
    return render_page(
        "table.html.j2",
        [
            *charts,
            PageSection("domains", "Old and new domains", maps),
            PageSection("features", "Features in the plane", clouds, f"{TSNE} Seed {seed}."),
            PageSection("numbers", "Numbers", numbers, _about_numbers(results), "broad"),
        ],
        table=table,
        benchmark=results.benchmark,
        measured=sum(bool(own) for own in results.records.values()),
        cells=len(results.rows) * len(splits),
        cards=split_cards(results),
        beside=said.beside(results),
        facts=[*map(with_code, said.facts(results))],
        notes=[*map(with_code, table.notes)],
        records=results.all_records,
        older=results.older,
        duration=said.duration,
        from_mirror=from_mirror,
    )


def write_page(results: Results) -> Path:
    path = results_path(results.table.name, results.benchmark, "html")
    write_text(path, render_table(results))
    return path
