"""The pictures of the splits in docs/images, from the committed tables: python docs/pictures.py."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from markupsafe import Markup

from dacr.data.shares import read_with_shares
from dacr.report.html import TEMPLATES
from dacr.report.stream import stream_chart

ROOT = Path(__file__).parents[1]
BENCHMARK = "idigits"
CLASSES = [str(digit) for digit in range(10)]
DOMAINS = ["mnist", "svhn", "mnist_m", "syn"]
SPLITS = ("nc", "nd", "ncd", "vil", "uil", "blurry", "repeat")


def picture(schedule: pd.DataFrame) -> str:
    """A page's chart as a file of its own: with the page's style, on white."""
    chart = stream_chart(schedule, CLASSES, DOMAINS)
    lines = (TEMPLATES / "page.css").read_text(encoding="utf-8").splitlines()
    variables = next(line.strip() for line in lines if line.strip().startswith("--c0:"))
    style = (
        f":root {{ {variables} }} text {{ font: 12px sans-serif; fill: #57606a }} "
        ".mid { text-anchor: middle } .end { text-anchor: end } "
        ".grid { stroke: #d0d7de } .bars { fill: currentColor }"
    )
    ground = '<style>{}</style><rect width="100%" height="100%" fill="#fff"/>'
    head, body = str(chart).split(">", 1)
    opened = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"')
    return f"{opened}>{Markup(ground).format(Markup(style))}{body}\n"


def main() -> None:
    for split in SPLITS:
        schedule = read_with_shares(ROOT / f"data/schedules/{BENCHMARK}_{split}.csv")
        path = ROOT / f"docs/images/split-{split}.svg"
        path.write_text(picture(schedule), encoding="utf-8")


if __name__ == "__main__":
    main()
