"""The report's sections about the learner: its mixtures, memory and losses.

A section that a run has nothing for is None, and the page leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dacr.report.charts import Bar, Line, bar_chart, line_chart, number, ticks
from dacr.report.figures import (
    Cell,
    Figure,
    Grid,
    by_session,
    grid_of,
    legend_of,
    line_legend,
)


@dataclass(frozen=True)
class MixtureSection:
    counts: Figure
    purity: Figure
    by_class: Grid
    kappa: Figure | None
    kappa_text: str
    reductions: pd.DataFrame


def mixture(tables: dict[str, pd.DataFrame], benchmark: dict[str, Any]) -> MixtureSection | None:
    """How the mixtures grew and shrank; None for a method with one prototype a class."""
    by_class = tables["components_by_class"]
    if by_class.empty:
        return None
    kappa = tables["kappa"]
    moving = kappa["kappa"].nunique() > 1
    purity = tables["purity_by_session"]
    return MixtureSection(
        counts=_components(tables["components_by_session"]),
        purity=by_session(
            purity,
            {"purity": "this mixture", "single_component": "a single component a class"},
            y_name="purity",
            y_range=(0.0, 1.0),
            caption="Purity of the components on test images, every domain of a class weighing the "
            "same; a single component is the least that any mixture reaches.",
        ),
        by_class=_components_grid(by_class, benchmark["classes"]),
        kappa=_kappa(kappa) if moving else None,
        kappa_text="" if moving or kappa.empty else number(float(kappa["kappa"].iloc[0])),
        reductions=_reductions(by_class, tables["merges"]),
    )


def _components(table: pd.DataFrame) -> Figure:
    names = {"before": "after expansion", "after": "after reduction"}
    groups = [
        (str(row["session"]), [Bar(names[k], float(row[k]), i) for i, k in enumerate(names)])
        for row in table.to_dict("records")
    ]
    caption = "Components a class, mean over the classes seen: expansion adds m, reduction merges."
    chart = bar_chart(groups, label=caption, x_name="session", y_name="components", stacked=False)
    return Figure(chart, caption, legend_of(names.values()), table)


def _components_grid(by_class: pd.DataFrame, classes: Sequence[str]) -> Grid:
    most = int(by_class["after"].max())
    cells = {
        (row["class"], str(row["session"])): Cell(
            str(row["after"]),
            0.9 * row["after"] / most,
            f"{row['class']}, session {row['session']}: {row['before']} → {row['after']}",
        )
        for row in by_class.to_dict("records")
    }
    sessions = [str(t) for t in sorted(by_class["session"].unique())]
    return grid_of(cells, "Components of each class after reduction", "class", classes, sessions)


def _kappa(table: pd.DataFrame) -> Figure:
    values = table["kappa"]
    return by_session(
        table,
        {"kappa": "κ"},
        y_name="κ",
        y_range=(float(values.min()), float(values.max())),
        caption="The shared concentration κ after each session.",
    )


def _reductions(by_class: pd.DataFrame, merges: pd.DataFrame) -> pd.DataFrame:
    """Per session: components before, dropped, merged, after, and the mean distance of merges."""
    table = by_class.groupby("session")[["before", "dropped", "merged", "after"]].sum()
    distance = merges.groupby("session")["distance"].mean()
    return table.assign(mean_distance=distance).round(3).reset_index()


def memory(table: pd.DataFrame, domains: Sequence[str]) -> Figure | None:
    """Exemplars in memory by domain; None where the run did not record them."""
    if table.empty:
        return None
    wide = table.pivot_table(index="session", columns="domain", values="count", fill_value=0)
    wide = wide.reindex(columns=list(domains), fill_value=0)
    groups = [
        (str(session), [Bar(d, float(row[d]), i) for i, d in enumerate(domains)])
        for session, row in wide.iterrows()
    ]
    caption = "Exemplars in memory after each session, by the domain that the learner never sees."
    chart = bar_chart(groups, label=caption, x_name="session", y_name="exemplars", stacked=True)
    return Figure(chart, caption, legend_of(domains), wide.astype(int).reset_index())


def losses(table: pd.DataFrame) -> Figure | None:
    """The weighted terms of the loss by epoch, and their sum, which training descends on."""
    if table.empty:
        return None
    terms = [str(term) for term in table["term"].unique()]
    total = table.groupby("step")["value"].sum()
    curves = {"sum": total} | {
        term: table[table["term"] == term].set_index("step")["value"] for term in terms
    }
    if len(terms) == 1:
        del curves["sum"]
    lines = [
        Line(name, [(float(x), float(y)) for x, y in curve.items()], colour)  # type: ignore[arg-type]
        for colour, (name, curve) in enumerate(curves.items())
    ]
    last = int(table["step"].max())
    starts = table.groupby("session")["step"].min()
    caption = "Loss terms by epoch, weighted as they enter the loss; dots part the sessions."
    chart = line_chart(
        lines,
        label=caption,
        x_name="epoch, over all sessions",
        y_name="loss",
        y_range=(min(0.0, table["value"].min()), max(total.max(), table["value"].max())),
        x_labels=[(t, number(t)) for t in ticks(1, last) if 1 <= t <= last],
        dividers=[float(step) - 0.5 for step in starts.iloc[1:]],
        end_values=False,
    )
    ends = table[table["step"].isin(table.groupby("session")["step"].max())]
    numbers = ends.pivot_table(index="session", columns="term", values="value").round(4)
    return Figure(chart, caption, line_legend(lines), numbers.reset_index())
