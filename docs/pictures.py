"""The pictures in docs/images that are made from committed files: python docs/pictures.py.

The splits from ``data/schedules``, the curves from the records in ``reports/paper``, the features
from the committed run in ``reports/plots``; and the images of the benchmark, where it is built.
report.png, compare.png and repro.png are photographs of pages and of a terminal.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from markupsafe import Markup
from PIL import Image

from dacr.data.benchmark import Benchmark
from dacr.data.contact_sheet import contact_sheet
from dacr.data.shares import read_with_shares
from dacr.experiments.records import Store
from dacr.experiments.results import results_of
from dacr.experiments.tables import load_paper
from dacr.report.charts import (
    HEIGHT,
    WIDTH,
    Line,
    element,
    line_chart,
    percent_range,
    scatter,
    scatter_legend,
)
from dacr.report.html import TEMPLATES
from dacr.report.stream import stream_chart
from dacr.report.table_figures import curve

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
BENCHMARK = "idigits"
CLASSES = [str(digit) for digit in range(10)]
DOMAINS = ["mnist", "svhn", "mnist_m", "syn"]
SPLITS = ("nc", "nd", "ncd", "vil", "uil", "blurry", "repeat")
MINI = "idigits_mini"
MINI_DOMAINS = ["handwritten", "street", "blended", "rendered"]
METHODS = {"der": 5, "der_fair": 1, "der_dacr": 0}
"""method → its colour, in the picture of what the paper's method is worth"""
STYLE = (
    "text { font: 12px sans-serif; fill: #57606a } .value { font-weight: 600; fill: currentColor } "
    ".mid { text-anchor: middle } .end { text-anchor: end } "
    ".grid { stroke: #d0d7de } .bars { fill: currentColor } "
    ".line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round } "
    ".dashed { stroke-dasharray: 7 4 } "
    ".point { fill: currentColor; stroke: #fff; stroke-width: 1.5; paint-order: stroke } "
    ".dots { fill: currentColor; fill-opacity: .75 } "
    ".dots.hollow { fill: none; stroke: currentColor; stroke-width: 1.6 }"
)
LEGEND_ROW, LEGEND_COLUMN = 22, 120


def standing_alone(chart: Markup | str) -> str:
    """A page's chart as a file of its own: with the page's colours, on white."""
    lines = (TEMPLATES / "page.css").read_text(encoding="utf-8").splitlines()
    variables = next(line.strip() for line in lines if line.strip().startswith("--c0:"))
    ground = '<style>{}</style><rect width="100%" height="100%" fill="#fff"/>'
    head, body = str(chart).split(">", 1)
    opened = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    style = Markup(f":root {{ {variables} }} {STYLE}")
    return f"{opened}>{Markup(ground).format(style)}{body}\n"


def with_legend(
    chart: Markup | str, legend: Sequence[tuple[Markup, str]], label: str, height: float
) -> Markup:
    """A chart below its legend, which a page writes in HTML."""
    parts = []
    for number, (sample, name) in enumerate(legend):
        x = 12 + number * LEGEND_COLUMN
        place = f'<svg x="{x}" y="4" '
        width = int(str(sample).partition('width="')[2].partition('"')[0])
        parts.append(Markup(str(sample).replace("<svg ", place, 1)))
        parts.append(element("text", name, x=x + width + 7, y=15))
    inside = f'<svg y="{LEGEND_ROW}" width="{WIDTH}" height="{height:g}" '
    parts.append(Markup(str(chart).replace("<svg ", inside, 1)))
    box = f"0 0 {WIDTH} {height + LEGEND_ROW:g}"
    return element("svg", *parts, viewBox=box, role="img", aria_label=label)


def split_picture(split: str) -> str:
    schedule = read_with_shares(ROOT / f"data/schedules/{BENCHMARK}_{split}.csv")
    return standing_alone(stream_chart(schedule, CLASSES, DOMAINS))


def curves_picture() -> str:
    """What the paper's method is worth: NCD, the mean of the committed seeds."""
    paper = load_paper()
    with tempfile.TemporaryDirectory() as nothing:
        results = results_of(paper, paper.table("main"), MINI, Store(Path(nothing)))
    lines = [
        Line(
            results.rows[method].label,
            list(enumerate(map(float, curve(results, method, "ncd", "accuracy_by_session")), 1)),
            colour,
        )
        for method, colour in METHODS.items()
    ]
    label = f"{MINI}, NCD: accuracy on everything seen so far, by session"
    figure = line_chart(lines, label, "accuracy, %", percent_range(0.0))
    return standing_alone(with_legend(figure.chart, figure.legend, label, HEIGHT))


def features_picture() -> str:
    """t-SNE of the committed run's test images after its last session, by domain."""
    table = pd.read_csv(ROOT / "reports/plots/embedding.csv")
    last = table[table["session"] == table["session"].max()]
    label = "Features of test images after the last session (t-SNE), by domain"
    chart = str(scatter(last, "domain", MINI_DOMAINS, label))
    wide, high = last["x"].max() - last["x"].min(), last["y"].max() - last["y"].min()
    height = round(min(high / wide, 1.0) * (WIDTH - 32)) + 32  # the chart itself is a square
    box = f'viewBox="0 {(WIDTH - height) / 2:g} {WIDTH} {height}"'
    cut = Markup(chart.replace(f'viewBox="0 0 {WIDTH} {WIDTH}"', box, 1))
    return standing_alone(with_legend(cut, scatter_legend(MINI_DOMAINS), label, height))


def sheet_picture(path: Path) -> None:
    """The report's contact sheet, small enough for a repository."""
    contact_sheet(Benchmark.open(ROOT / "data/benchmark"), path)
    with Image.open(path) as whole:
        size = whole.width * 3 // 4, whole.height * 3 // 4
        small = whole.resize(size, Image.Resampling.LANCZOS)
    small.quantize(96).save(path, optimize=True)


PICTURES: dict[str, Callable[[], str]] = {
    **{f"split-{split}.svg": lambda split=split: split_picture(split) for split in SPLITS},
    "ncd.svg": curves_picture,
    "features.svg": features_picture,
}


def main() -> None:
    os.chdir(ROOT)  # the records and conf/ are found from there
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")
    if (ROOT / "data/benchmark/benchmark.json").is_file():  # after `make repro`
        sheet_picture(IMAGES / "domains.png")


if __name__ == "__main__":
    main()
