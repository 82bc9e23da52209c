"""Predictions as a table for people, or as lines for programs."""

from __future__ import annotations

import csv
import json
import sys
from typing import Any

from dacr.evaluation.formats import NOTHING
from dacr.report.html import Sheet
from dacr.report.terminal import console_of, table_of
from dacr.sessions.predict import Prediction

NEAREST = "nearest exemplars: class (domain, id, similarity)"
HEADINGS = ("image", "class", "confidence", "component, from 0", NEAREST)
OF_MIXTURE = ("component", "components", "component_exemplars")
OF_IMAGE = ("image", "class", "label", "confidence", *OF_MIXTURE)
OF_EXEMPLAR = ("id", "class", "domain", "similarity")


class Output:
    def add(self, image: str, prediction: Prediction) -> None:
        """One image's prediction."""
        raise NotImplementedError

    def flush(self) -> None:
        """A batch has been added: nothing of it may stay unseen."""


def prediction_facts(image: str, prediction: Prediction) -> dict[str, Any]:
    return {
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


class JsonLines(Output):
    """One JSON object per line, written as soon as it is known."""

    def add(self, image: str, prediction: Prediction) -> None:
        print(json.dumps(prediction_facts(image, prediction)), flush=True)


class CsvLines(Output):
    """One row per image; each exemplar has four columns. A missing value is an empty field."""

    def __init__(self, exemplars: int) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        # A file's name may hold bytes that are no text; they are written unchanged.
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        near = [f"exemplar_{n}_{fact}" for n in range(1, exemplars + 1) for fact in OF_EXEMPLAR]
        self._writer.writerow([*OF_IMAGE, *near])

    def add(self, image: str, prediction: Prediction) -> None:
        told = prediction_facts(image, prediction)
        values = [told[name] for name in OF_IMAGE]
        values += [exemplar[name] for exemplar in told["exemplars"] for name in OF_EXEMPLAR]
        self._writer.writerow([f"{v:.6f}" if isinstance(v, float) else v for v in values])
        sys.stdout.flush()


class PrettyTable(Output):
    """A table per batch, since a column is as wide as its widest entry; the first has the title."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._rows: list[list[str]] = []

    def add(self, image: str, prediction: Prediction) -> None:
        of = f"{prediction.component} of {prediction.components}"
        component = NOTHING if prediction.component is None else of
        near = "  ".join(
            f"{exemplar.class_name} ({exemplar.domain}, {exemplar.id}, {exemplar.similarity:.3f})"
            for exemplar in prediction.exemplars
        )
        cells = (image, prediction.class_name, f"{prediction.confidence:.3f}", component)
        self._rows.append([printable(text) for text in (*cells, near or NOTHING)])

    def flush(self) -> None:
        if self._rows:
            sheet = Sheet(self._title, HEADINGS, self._rows, "left")
            console_of().print(table_of(sheet))
            self._title, self._rows = "", []


def printable(text: str) -> str:
    """The text without what a terminal would obey or cannot show."""
    return "".join(character if character.isprintable() else "�" for character in text)
