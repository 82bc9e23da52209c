"""What the line charts of a page look like without colour, and whether their legends say so."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass(frozen=True)
class Look:
    """How a line is drawn, in a chart or in a legend."""

    colour: str
    stroke: str
    """``dashed``, ``dotted``, or nothing."""
    shape: str
    """The path of its marks, less where it starts."""


def of_class(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [e for e in element.iter() if name in e.attrib.get("class", "").split()]


def place_and_shape(mark: ElementTree.Element) -> tuple[float, float, str]:
    found = re.fullmatch(r"M([\d.]+) ([\d.]+)(m.+)", mark.attrib["d"])
    assert found, mark.attrib["d"]
    return float(found[1]), float(found[2]), found[3]


def looks(drawing: ElementTree.Element) -> list[Look]:
    """Line by line; all marks in a line's colour must have one shape."""
    found = []
    for line in of_class(drawing, "line"):
        colour = line.attrib["style"]
        marks = [mark for mark in of_class(drawing, "point") if mark.attrib["style"] == colour]
        (shape,) = {place_and_shape(mark)[2] for mark in marks}
        stroke = line.attrib["class"].removeprefix("line").strip()
        found.append(Look(colour, stroke, shape))
    return found


def line_figures(page: str) -> list[list[Look]]:
    """The looks of each line chart's lines, once it is certain that its legend shows the same."""
    found = []
    figures = re.findall(r'<figure class="panel"[^>]*>.*?</figure>', page, re.DOTALL)
    for figure in (ElementTree.fromstring(text) for text in figures if "<svg" in text):
        (chart,) = of_class(figure, "chart")
        lines = looks(chart)
        keys = [look for key in of_class(figure, "key") for look in looks(key)]
        assert keys == (lines if len(lines) > 1 else [])
        if lines:
            assert not of_class(figure, "swatch")
            assert len({(look.shape, look.stroke) for look in lines}) == len(lines)
            found.append(lines)
        elif legends := of_class(figure, "legend"):
            assert len(of_class(figure, "swatch")) == len(list(legends[0]))
    return found
