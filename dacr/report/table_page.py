"""``reports/paper/<table>-<benchmark>.html``: one self-contained page about a table of the paper.

It is made from the committed results alone, so that a fresh clone shows the same page.
"""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup, escape

from dacr.evaluation.formats import decimals, duration
from dacr.experiments.records import Record, results_path, write_text
from dacr.experiments.results import Results
from dacr.report import table_sizes
from dacr.report import table_words as said
from dacr.report.html import Card, Field, Figure, PageSection, Sheet, render_page
from dacr.report.sections import TSNE
from dacr.report.table_checks import check_cards, check_sheet
from dacr.report.table_figures import (
    arrival_maps,
    embeddings,
    figures,
    interval,
    metric_sheet,
    signed,
    signed_gain,
    with_deviation,
    words,
)


def split_cards(results: Results) -> list[Card]:
    """Split by split the row that matters most: its gain if it has a host, else its value."""
    metric = results.table.metrics[0]
    rows = {split: leading_row(results, split, metric) for split in results.table.splits}
    return [_row_card(results, row, split, metric) for split, row in rows.items() if row]


def leading_row(results: Results, split: str, metric: str) -> str | None:
    """The last method that is there as the benchmark configures it; else the last row.

    Not the best: of many settings the best on test images is so by chance, too.
    """
    measured = [key for key in results.rows if results.number(key, split, metric).seeds]
    # Several rows may be the same experiment: the first of them is meant to be the method.
    plain = {results.rows[key].method: key for key in reversed(measured) if key in results.plain}
    return next(iter(plain.values()), measured[-1] if measured else None)


def _row_card(results: Results, row: str, split: str, metric: str) -> Card:
    own, digits = results.number(row, split, metric), decimals(metric)
    title = f"{split.upper()}: {results.label(row)}"
    if own.gain:
        return _gain_card(results, row, split, metric)
    theirs = with_deviation(own.paper, own.paper_deviation, digits)
    return Card(
        title,
        with_deviation(own.mean, own.deviation, digits),
        [f"{words(metric)}, {said.counted(own.seeds, 'seed')}"],
        paper="" if own.paper is None else f"paper, {results.reference_name}: {theirs}",
    )


def _gain_card(results: Results, row: str, split: str, metric: str) -> Card:
    own, digits = results.number(row, split, metric), decimals(metric)
    if own.gain is None:
        raise ValueError(f"{row} has no gain on {split}")
    meanings = [f"{words(metric)}, {said.counted(own.gain.seeds, 'seed')}"]
    if own.gain.interval:
        meanings.append(f"95 %: {interval(own.gain, digits)}")
    published = results.label(results.rows[row].hosts[0])
    if own.published_gain and own.published_gain.over != own.gain.over:
        meanings.append(f"over {published}: {signed_gain(own.published_gain, digits)}")
    theirs = f"paper, {results.reference_name}: {signed(own.paper_gain, digits)} over {published}"
    return Card(
        f"{split.upper()}: {results.label(row)} over {results.label(own.gain.over)}",
        signed_gain(own.gain, digits),
        meanings,
        paper="" if own.paper_gain is None else theirs,
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
            f" A gain is {said.gain_rule(results)}, on the seeds that both have, with the standard "
            "deviation of the seeds' own gains and the 95 % interval of its mean; n.s. is not "
            "significant."
        )
    text += " Each seed leads to its experiment."
    if unshared := len(results.measured) - sum(map(len, results.records.values())):
        text += (
            " Settings are compared on the seeds that all of them have; the file has "
            f"{said.counted(unshared, 'more experiment')}."
        )
    return text


def _with_links(text: str, records: list[Record]) -> Field:
    return Field(Markup("{} {}").format(text, _links(records).text))


def number_sheets(results: Results) -> list[Sheet]:
    table = results.table
    if not table.splits:
        return [check_sheet(results, _links)]
    if table.along:
        return table_sizes.sheets(results, _with_links)
    return [
        metric_sheet(results, split, metric, _links)
        for metric in table.metrics
        for split in table.splits
    ]


def drawn(results: Results, split: str) -> list[Figure | None]:
    sized = bool(results.table.along)
    return table_sizes.size_figures(results, split) if sized else figures(results, split)


def render_table(results: Results) -> str:
    table, splits = results.table, results.table.splits
    charts = [
        PageSection(f"charts-{split}", f"Charts of {split.upper()}", drawn(results, split))
        for split in splits
    ]
    maps = clouds = []
    if "accuracy_by_arrival" in table.details:
        maps = [Figure(sheet=own) for split in splits for own in arrival_maps(results, split)]
    seed = results.all_records[0].seed if results.all_records else ""
    if "embedding" in table.details:
        clouds = [own for split in splits for own in embeddings(results, split)]
    return render_page(
        "table.html.j2",
        [
            *charts,
            PageSection("domains", "Old and new domains", maps),
            PageSection("features", "Features in the plane", clouds, f"{TSNE} Seed {seed}."),
            PageSection(
                "numbers",
                "Numbers",
                [Figure(sheet=own) for own in number_sheets(results)],
                _about_numbers(results),
                "broad" if splits else "single",
            ),
        ],
        table=table,
        benchmark=results.benchmark,
        measured=sum(bool(own) for own in results.records.values()),
        cells=len(results.records),
        cards=split_cards(results) if splits else check_cards(results),
        held_out=said.HELD_OUT if table.held_out else "",
        about_significance=said.about_significance(results),
        significance=said.significance(results),
        beside=said.beside(results),
        facts=[*map(with_code, said.facts(results))],
        notes=[*map(with_code, table.notes)],
        records=results.all_records,
        older=results.older,
        duration=duration,
        from_mirror=from_mirror,
    )


def write_page(results: Results) -> Path:
    path = results_path(results.table.name, results.benchmark, "html")
    write_text(path, render_table(results))
    return path
