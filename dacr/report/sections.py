"""What the page about a run says: its main numbers, the paper's beside them, and its figures.

A figure that a run has no data for is None, and the page leaves it out.
"""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from PIL import Image

from dacr.data.shares import first_appearances
from dacr.evaluation.formats import UNITS, decimals, format_metric
from dacr.experiments.published import PaperNumbers
from dacr.report.charts import (
    Bar,
    Line,
    bar_chart,
    bars_by_session,
    line_chart,
    lines_by_session,
    percent_range,
    scatter,
    scatter_legend,
    scatters_by_session,
    short,
    ticks,
)
from dacr.report.html import Card, Fact, Figure, Sheet, heat_map, percent_map, sheet_of

MOST_CLASSES_IN_A_GRID = 25
HEAT = (0, 114, 178)
TSNE = (
    "t-SNE of some test images, the same number of each class-domain pair. Where the mixture "
    "works, a class falls into one group per domain."
)

Tables = dict[str, pd.DataFrame]
Json = dict[str, Any]


# -- in words and numbers ---------------------------------------------------------------------


def in_words(metrics: Json, benchmark: Json) -> str:
    """The run in a few sentences."""
    sessions = len(metrics["accuracy_by_session"])
    domains = sorted(metrics["accuracy_by_domain"], key=lambda record: -record["accuracy"])
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
        best, worst = (
            f"{benchmark['domains'][record['domain']]} ({record['accuracy']:.1f} %)"
            for record in (domains[0], domains[-1])
        )
        sentences.append(f"Its best domain is {best}, its worst {worst}.")
    return " ".join(sentences)


def headline_cards(
    metrics: Json, benchmark: Json, paper: PaperNumbers, mixture: bool
) -> list[Card]:
    sessions = len(metrics["accuracy_by_session"])
    worst = min(metrics["accuracy_by_domain"], key=lambda record: record["accuracy"])
    shown = {
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
        shown["components_per_class"] = ("Components per class", "after the last reduction")
        shown["purity"] = ("Purity of components", f"with one component per class: {single}")
    return [
        Card(
            title,
            format_metric(name, metrics[name]),
            [meaning],
            UNITS.get(name, ""),
            name,
            f"paper {format_metric(name, paper.values[name])}" if name in paper.values else "",
        )
        for name, (title, meaning) in shown.items()
    ]


def metric_facts(metrics: Json, names: dict[str, tuple[str, str]]) -> list[Fact]:
    return [
        (what, name, format_metric(name, metrics[name]), unit)
        for name, (what, unit) in names.items()
    ]


def beside_the_paper(paper: PaperNumbers, metrics: Json) -> list[Figure]:
    """Table 1's column of this benchmark and split with this run among it, and number by number."""
    if not paper.table:
        return []
    bars = [Bar(words, value, None) for words, value in paper.table]
    bars.append(Bar("this run", metrics["average_incremental_accuracy"], 1))
    caption = "Average incremental accuracy of the paper's methods (Table 1), and of this run."
    chart = bar_chart(sorted(bars, key=lambda bar: -(bar.value or 0.0)), caption, 2, "%")
    rows = [
        [
            name.replace("_", " "),
            format_metric(name, metrics[name]),
            format_metric(name, value),
            f"{metrics[name] - value:+.{decimals(name)}f}",
        ]
        for name, value in paper.values.items()
    ]
    settings = (
        "The run does not have the paper's settings (see the note at the top), so the differences "
        "say little."
        if paper.reason
        else "The settings are the paper's."
    )
    label = f"{paper.method}, this run and the paper's"
    sheet = Sheet(label, ["metric", "this run", "paper", "difference"], rows)
    note = f"{settings} The paper measures purity on images that it does not name."
    return [chart, Figure(note, sheet=sheet)] if rows else [chart]


# -- accuracy ---------------------------------------------------------------------------------


def accuracy_curve(table: pd.DataFrame) -> Figure:
    names = {"accuracy": "all test images pooled", "pair_averaged": "mean over class-domain pairs"}
    caption = "Accuracy on the test images of everything seen so far, after each session."
    lowest = float(table[list(names)].min().min())
    return lines_by_session(table, names, caption, "accuracy, %", percent_range(lowest))


def domain_accuracies(table: pd.DataFrame, metrics: Json, domains: list[str]) -> Figure:
    values = table.pivot(index="domain", columns="session", values="accuracy").reindex(
        list(domains)
    )
    facts = {
        "pair_averaged_incremental_accuracy": (
            "Average over sessions, with equal weight for all class-domain pairs",
            "%",
        ),
        "pair_averaged_final_accuracy": ("The same after the last session", "%"),
        "forgetting_session_only": (
            "Forgetting, on only the pairs that the session before brought",
            "points",
        ),
    }
    return Figure(
        "After each session, on the test images of the domain's pairs seen so far.",
        sheet=percent_map("Accuracy by domain and session, %", "domain", values, ", session "),
        facts=metric_facts(metrics, facts),
    )


def _by_pair(table: pd.DataFrame, column: str, benchmark: Json) -> pd.DataFrame:
    """A column of a table with one row per pair: classes as rows, domains as columns."""
    classes, domains = benchmark["classes"], benchmark["domains"]
    wide = table.pivot(index="class", columns="domain", values=column)
    wide = wide.reindex(index=range(len(classes)), columns=range(len(domains)))
    return wide.set_axis(classes, axis=0).set_axis(domains, axis=1)


def pair_accuracies(metrics: Json, benchmark: Json) -> Figure:
    values = _by_pair(pd.DataFrame(metrics["accuracy_by_pair"]), "accuracy", benchmark)
    sheet = percent_map("Accuracy by class and domain, %", "class", values, " in ")
    return Figure("After the last session.", sheet=sheet)


def arrival_figure(schedule: pd.DataFrame, benchmark: Json) -> Figure:
    """The first session of each pair; some splits bring pairs again."""
    classes, domains, last = benchmark["classes"], benchmark["domains"], schedule["session"].max()
    first = first_appearances(schedule)
    rows = first[["class", "domain", "new_class"]].itertuples(index=False)
    new = {(classes[c], domains[d]) for c, d, new_class in rows if new_class}
    again = "first " * (len(first) < len(schedule))

    def field(c: str, d: str, t: float) -> tuple[str, float, str]:
        brings = f"session {t:.0f} {again}brings {c} in {d}"
        title = f"{brings}{', a new class' * ((c, d) in new)}"
        return f"{t:.0f}", 0.7 * t / last, title

    sheet = heat_map(
        f"The session that {again}brings each pair",
        "class",
        _by_pair(first, "session", benchmark),
        field,
        new,
    )
    ring = '<span class="ringed">A ring</span> marks the session in which a class is new.'
    return Figure(Markup(ring), sheet=sheet)


def confusion_figures(table: pd.DataFrame, classes: list[str]) -> list[Figure]:
    """Shares of each actual class (rows) by predicted class; a picture where there are many."""
    counts = pd.crosstab(table["actual"], table["predicted"])
    counts = counts.reindex(index=list(classes), columns=list(classes), fill_value=0)
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0) * 100.0
    if len(classes) <= MOST_CLASSES_IN_A_GRID:
        sheet = heat_map(
            "Of each actual class (row), % taken for each class (column)",
            "actual",
            shares,
            lambda a, p, v: (f"{v:.0f}" * (v >= 0.5), v / 100, f"{a} taken for {p}: {v:.1f} %"),
        )
        matrix = Figure("After the last session.", sheet=sheet)
    else:
        what = f"Confusion matrix of {len(classes)} classes; the rows are the actual, the columns "
        picture = image(matrix_png(shares.to_numpy()), "matrix", f"{what}the predicted classes")
        matrix = Figure("After the last session.", picture)
    found = zip(classes, shares.to_numpy().tolist(), strict=True)
    pairs = [(a, p, v) for a, row in found for p, v in zip(classes, row, strict=True)]
    wrong = sorted((own for own in pairs if own[0] != own[1] and own[2]), key=lambda own: -own[2])
    most = [[a, p, f"{v:.1f}"] for a, p, v in wrong[:5]]
    label, columns = "Most often confused", ["actual", "taken for", "% of the class"]
    if not most:
        return [matrix, Figure("Nothing: every test image was recognised.", title=label)]
    return [matrix, Figure(sheet=Sheet(label, columns, most, "numbers full words"))]


# -- the learner ------------------------------------------------------------------------------


def mixture_figures(tables: Tables, metrics: Json, classes: list[str]) -> list[Figure]:
    """How the mixtures grew and shrank; nothing for a method with one prototype per class."""
    by_class, kappa = tables["components_by_class"], tables["kappa"]
    if by_class.empty:
        return []
    figures = [
        bars_by_session(
            tables["components_by_session"],
            {"before": "after expansion", "after": "after reduction"},
            "Components per class, mean over the classes seen: expansion adds m, reduction merges.",
            "components",
            stacked=False,
        ),
        lines_by_session(
            tables["purity_by_session"],
            {"purity": "this mixture", "single_component": "one component per class"},
            "Purity of the components on test images, with equal weight for all domains of a "
            "class. One component per class gives the lowest purity that is possible.",
            "purity",
            (0.0, 1.0),
        ),
        Figure(
            "A class without data in a session keeps its components.",
            sheet=_components(by_class, classes),
        ),
    ]
    facts = {
        "purity_average": ("Purity, averaged over sessions", ""),
        "purity_single_component_average": ("The same with one component per class", ""),
    }
    told = metric_facts(metrics, facts)
    if kappa["kappa"].nunique() == 1:
        told.append(("Concentration κ, fixed", "", short(float(kappa["kappa"].iloc[0])), ""))
    elif not kappa.empty:
        ends = float(kappa["kappa"].min()), float(kappa["kappa"].max())
        caption = "The shared concentration κ after each session."
        figures.append(lines_by_session(kappa, {"kappa": "κ"}, caption, "κ", ends))
    reductions = sheet_of(
        _reductions(by_class, tables["merges"]),
        "Components of all classes seen, in each session's reduction",
    )
    figures.insert(3, Figure(sheet=reductions, facts=told))
    return figures


def _components(by_class: pd.DataFrame, classes: list[str]) -> Sheet:
    rows = by_class.to_dict("records")
    before = {(row["class"], str(row["session"])): row["before"] for row in rows}
    after = by_class.pivot(index="class", columns="session", values="after").reindex(classes)
    most = by_class["after"].max()
    return heat_map(
        "Components of each class after reduction",
        "class",
        after,
        lambda c, t, n: (
            f"{n:.0f}",
            0.9 * n / most,
            f"{c}, session {t}: {before[c, t]} → {n:.0f}",
        ),
    )


def _reductions(by_class: pd.DataFrame, merges: pd.DataFrame) -> pd.DataFrame:
    """Per session: components before, dropped, merged, after, and the mean distance of merges."""
    table = by_class.groupby("session")[["before", "dropped", "merged", "after"]].sum()
    distance = merges.groupby("session")["distance"].mean()
    return table.assign(mean_distance=distance).round(3).reset_index()


def memory_figure(table: pd.DataFrame, domains: list[str]) -> Figure | None:
    """Exemplars in memory by domain; None where the run did not record them."""
    if table.empty:
        return None
    wide = table.pivot_table(index="session", columns="domain", values="count", fill_value=0)
    wide = wide.reindex(columns=list(domains), fill_value=0).astype(int).reset_index()
    caption = "Exemplars in memory after each session, by domain (which the learner never sees)."
    names = {domain: domain for domain in domains}
    return replace(bars_by_session(wide, names, caption, "exemplars", stacked=True), id="memory")


def loss_figure(table: pd.DataFrame) -> Figure | None:
    """The weighted terms of the loss by epoch, and their sum, which training descends on."""
    if table.empty:
        return None
    terms = [str(term) for term in table["term"].unique()]
    curves = {"sum": table.groupby("step")["value"].sum()} if len(terms) > 1 else {}
    curves |= {term: table[table["term"] == term].set_index("step")["value"] for term in terms}
    lines = [
        Line(name, [(float(x), float(y)) for x, y in curve.items()], colour)  # type: ignore[arg-type]
        for colour, (name, curve) in enumerate(curves.items())
    ]
    last = int(table["step"].max())
    starts = table.groupby("session")["step"].min()
    ends = table[table["step"].isin(table.groupby("session")["step"].max())]
    numbers = ends.pivot_table(index="session", columns="term", values="value").round(4)
    chart = line_chart(
        lines,
        "Loss terms by epoch, weighted as in the loss; dotted lines separate the sessions.",
        "loss",
        x_name="epoch, over all sessions",
        x_ticks=[t for t in ticks(1, last) if 1 <= t <= last],
        dividers=[float(step) - 0.5 for step in starts.iloc[1:]],
        end_values=False,
    )
    return replace(chart, numbers=sheet_of(numbers.reset_index()), id="losses")


# -- pictures ---------------------------------------------------------------------------------


def embedding_figures(table: pd.DataFrame, benchmark: Json) -> list[Figure]:
    """t-SNE of test images as in Fig. 4: by class, by domain, one class; and session by session."""
    if table.empty:
        return []
    classes, domains = benchmark["classes"], benchmark["domains"]
    sessions = sorted(table["session"].unique())
    last = table[table["session"] == sessions[-1]]
    seen = last.groupby("class")["domain"].nunique()
    one = next(c for c in classes if seen.get(c) == seen.max())
    views = [
        (last, "class", classes, "After the last session, by class."),
        (last, "domain", domains, "The same images, by domain."),
        (last[last["class"] == one], "domain", domains, f"Class {one} alone, by domain."),
    ]
    figures = [
        Figure(
            caption,
            scatter(points, column, names, f"t-SNE of test images. {caption}"),
            scatter_legend(names),
        )
        for points, column, names, caption in views
    ]
    if len(sessions) > 1:
        title = "Session by session, by domain"
        figures.append(scatters_by_session(table, sessions, "domain", domains, title))
    return figures


def contact_sheet_figure(png: bytes, benchmark: Json) -> Figure:
    domains = ", ".join(benchmark["domains"])
    what = f"Contact sheet: training images of classes in each of the domains {domains}"
    which = "every class" if len(benchmark["classes"]) <= 10 else "ten classes"
    frame = Markup('<div class="scroll" tabindex="0" role="region" aria-label="{}">{}</div>')
    picture = frame.format("Contact sheet", image(png, "sheet", what))
    return Figure(f"Training images of {which}, one row per domain.", picture)


def image(png: bytes, css: str, what: str) -> Markup:
    """A picture inside the page."""
    data = base64.b64encode(png).decode("ascii")
    tag = Markup('<img class="{}" src="data:image/png;base64,{}" alt="{}">')
    return tag.format(css, data, what)


def matrix_png(shares: Any) -> bytes:
    """A matrix of percentages, one pixel per entry: one hue, its opacity the share.

    The page's own ground shows through, so the same picture serves light and dark.
    """
    opacity = np.clip(np.asarray(shares) / 100.0, 0.0, 1.0)
    pixels = np.empty((*opacity.shape, 4), dtype=np.uint8)
    pixels[..., :3] = HEAT
    pixels[..., 3] = np.round(255 * np.sqrt(opacity))  # the root lifts small shares into sight
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
