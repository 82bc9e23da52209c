"""A split as a picture: sessions × classes, coloured by domain.

Each field of the picture is a class in a session. It has a place for every domain, the same in all
fields, so that the picture can be read without its colours; a bar stands there if the session
brings the pair, as high as the root of the share of the pair's training images that it brings.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from dacr.data.shares import SHARE
from dacr.report.charts import drawing, element, paint, swatch, text_at
from dacr.report.html import Figure

WIDE = 900
NAMES, HEAD, FOOT = 118.0, 22.0, 8.0
"""Room for the names of classes, for the numbers of sessions, and below."""
MOST_NAMES, NAME = 40, 17
ROW, LOW_ROW = 17.0, 6.0
GAP = 1.5
CAPTION = (
    "What each session brings: a row per class, a column per session, a bar per domain, always at "
    "the same place of a field."
)
IN_PARTS = " A lower bar is a part of the pair's training images; the rest comes in other sessions."


def stream_figure(schedule: pd.DataFrame, classes: Sequence[str], domains: Sequence[str]) -> Figure:
    caption = CAPTION + IN_PARTS * (SHARE in schedule.columns)
    legend = [(swatch(colour), name) for colour, name in enumerate(domains)]
    return Figure(caption, stream_chart(schedule, classes, domains), legend)


def stream_chart(schedule: pd.DataFrame, classes: Sequence[str], domains: Sequence[str]) -> Markup:
    """The picture alone, as SVG."""
    sessions = int(schedule["session"].max())
    many = len(classes) > MOST_NAMES
    row, column = LOW_ROW if many else ROW, (WIDE - NAMES) / sessions
    height = HEAD + row * len(classes) + FOOT
    slot = (column - 2 * GAP) / len(domains)
    paths = [""] * len(domains)
    shares = schedule[SHARE] if SHARE in schedule.columns else [1.0] * len(schedule)
    for (t, c, z, *_), share in zip(schedule.itertuples(index=False), shares, strict=True):
        tall = (row - GAP) * share**0.5
        x = NAMES + (t - 1) * column + GAP + z * slot
        y = HEAD + (c + 1) * row - tall
        paths[z] += f"M{x:.1f} {y:.1f}h{slot:.1f}v{tall:.1f}h-{slot:.1f}z"
    edges = [NAMES + t * column for t in range(sessions + 1)]
    floors = [HEAD + c * row for c in range(0, len(classes) + 1, 10 if many else 1)]
    body = [
        *(element("line", class_="grid", x1=x, x2=x, y1=HEAD, y2=height - FOOT) for x in edges),
        *(element("line", class_="grid", x1=NAMES, x2=float(WIDE), y1=y, y2=y) for y in floors),
        *(
            text_at(NAMES + (t + 0.5) * column, HEAD - 8, str(t + 1), "tick mid")
            for t in range(sessions)
        ),
        text_at(NAMES - 8, HEAD - 8, "class \\ session", "tick end"),
        *(
            text_at(NAMES - 8, HEAD + (c + 0.5) * row + 4, _short(name), "tick end")
            for c, name in enumerate([] if many else classes)
        ),
        *(
            element("path", element("title", name), class_="bars", style=paint(z), d=d)
            for z, (name, d) in enumerate(zip(domains, paths, strict=True))
        ),
    ]
    label = f"{sessions} sessions of {len(classes)} classes in {len(domains)} domains"
    return drawing(label, body, height, WIDE)


def _short(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
