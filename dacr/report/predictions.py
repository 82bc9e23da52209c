"""Predictions as a table for people, or as lines for programs."""

from __future__ import annotations

import csv
import json
import sys
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dacr.sessions.predict import Prediction

NOTHING = "–"


class Output(Protocol):
    def add(self, image: str, prediction: Prediction) -> None:
        """One image's prediction."""

    def close(self) -> None:
        """All are told."""


class JsonLines:
    """One JSON object a line, written as soon as it is known."""

    def add(self, image: str, prediction: Prediction) -> None:
        line = {
            "image": image,
            "class": prediction.class_name,
            "label": prediction.label,
            "confidence": round(prediction.confidence, 6),
            "component": prediction.component,
            "components": prediction.components,
            "component_exemplars": prediction.component_exemplars,
            "exemplars": [
                {
                    "id": exemplar.id,
                    "class": exemplar.class_name,
                    "label": exemplar.label,
                    "domain": exemplar.domain,
                    "similarity": round(exemplar.similarity, 6),
                }
                for exemplar in prediction.exemplars
            ],
        }
        print(json.dumps(line), flush=True)

    def close(self) -> None:
        """Nothing is left."""


class CsvLines:
    """One row an image; each exemplar has four columns. What there is none of stays empty."""

    def __init__(self, exemplars: int) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        # A file's name may hold bytes that are no text; they go out as they came in.
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        columns = [
            f"exemplar_{n}_{fact}"
            for n in range(1, exemplars + 1)
            for fact in ("id", "class", "domain", "similarity")
        ]
        mixture = ["component", "components", "component_exemplars"]
        self._writer.writerow(["image", "class", "label", "confidence", *mixture, *columns])

    def add(self, image: str, prediction: Prediction) -> None:
        near = [
            value
            for exemplar in prediction.exemplars
            for value in (
                exemplar.id,
                exemplar.class_name,
                exemplar.domain,
                f"{exemplar.similarity:.6f}",
            )
        ]
        self._writer.writerow(
            [
                image,
                prediction.class_name,
                prediction.label,
                f"{prediction.confidence:.6f}",
                prediction.component,
                prediction.components,
                prediction.component_exemplars,
                *near,
            ]
        )
        sys.stdout.flush()

    def close(self) -> None:
        """Nothing is left."""


class PrettyTable:
    """All at once, since a column is as wide as its widest entry."""

    def __init__(self, title: str) -> None:
        self._table = Table(title=Text(title), title_justify="left")
        self._table.add_column("image", overflow="fold")
        self._table.add_column("class", overflow="fold")
        self._table.add_column("confidence", justify="right", min_width=5)
        self._table.add_column("component, from 0", justify="right", min_width=len("0 of 10"))
        self._table.add_column("nearest exemplars: class (domain, id, similarity)", overflow="fold")

    def add(self, image: str, prediction: Prediction) -> None:
        of = f"{prediction.component} of {prediction.components}"
        component = NOTHING if prediction.component is None else of
        near = "  ".join(
            f"{exemplar.class_name} ({exemplar.domain}, {exemplar.id}, {exemplar.similarity:.3f})"
            for exemplar in prediction.exemplars
        )
        cells = (image, prediction.class_name, f"{prediction.confidence:.3f}", component)
        self._table.add_row(*(Text(printable(text)) for text in (*cells, near or NOTHING)))

    def close(self) -> None:
        if self._table.row_count:
            # In a pipe there is no width to keep to, and lines that are cut help nobody.
            Console(width=None if sys.stdout.isatty() else 160).print(self._table)


def printable(text: str) -> str:
    """The text without what a terminal would obey or cannot show."""
    return "".join(character if character.isprintable() else "�" for character in text)
