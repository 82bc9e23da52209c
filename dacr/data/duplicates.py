"""Images that stand twice in a benchmark where they must not.

The same pixels to train and to test: the accuracy then counts what was learned by heart. The same
pixels under two labels: at most one of them is right. Pixels are compared as they are packed. Other
copies, such as those of a training image in the training part, are left alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pandas as pd

from dacr.errors import UserError

FOLDER = Path(".dacr/duplicates")
SHOWN = 3
ADVICE = "data.duplicates: drop leaves them out (docs/data.md#duplicates)"


def find_duplicates(index: pd.DataFrame) -> pd.DataFrame:
    """The rows of such images, copies below each other, with what is wrong with each image."""
    copies = index[index["pixels"].duplicated(keep=False)]
    if copies.empty:
        return copies.assign(in_both=False, two_labels=False)
    groups = copies.groupby("pixels")
    copies = copies.assign(
        in_both=groups["part"].transform("nunique") > 1,
        two_labels=groups["label"].transform("nunique") > 1,
        first=groups["id"].transform("min"),
    )
    wrong = copies[copies["in_both"] | copies["two_labels"]]
    return wrong.sort_values(["first", "id"], kind="stable").drop(columns="first")


def to_drop(found: pd.DataFrame) -> list[int]:
    """The ids to leave out: training copies of test images, and all images with two labels.

    So the test part stays the published one, but for images whose label is unknown.
    """
    wrong = found["two_labels"] | (found["part"] == "train")
    return sorted(found.loc[wrong, "id"].tolist())


def describe(found: pd.DataFrame, classes: list[str]) -> str:
    """How many images they are, and the first of them by name."""
    images = found.drop_duplicates("pixels")
    both, labels = int(images["in_both"].sum()), int(images["two_labels"].sum())
    shown = found[found["pixels"].isin(images["pixels"][:SHOWN])]
    names = shown.assign(
        name=[
            f"{source_id} ({part}, {classes[label]})"
            for source_id, part, label in shown[["source_id", "part", "label"]].to_numpy()
        ]
    )
    copies = names.groupby("pixels", sort=False)["name"].agg(_some)
    more = "; …" if len(images) > SHOWN else ""
    return (
        f"{both:,} images are both to train and to test, {labels:,} have two labels "
        f"({'; '.join(copies)}{more})"
    )


def _some(names: pd.Series[str]) -> str:
    more = " = …" if len(names) > SHOWN else ""
    return " = ".join(names[:SHOWN]) + more


def refuse_duplicates(found: pd.DataFrame, classes: list[str]) -> None:
    if len(found):
        raise UserError(f"{describe(found, classes)}; remove the copies, or {ADVICE}")


def tell_duplicates(
    found: pd.DataFrame, name: str, classes: list[str], domains: list[str]
) -> list[str]:
    """A warning, and where all of them are listed."""
    if found.empty:
        return []
    place = Path(os.environ.get("DVC_ROOT", ".")) / FOLDER / f"{name}.csv"
    place.parent.mkdir(parents=True, exist_ok=True)
    listed = found.assign(
        label=[classes[label] for label in found["label"]],
        domain=[domains[domain] for domain in found["domain"]],
    )
    listed.rename(columns={"label": "class"}).to_csv(place, index=False)
    return [f"  warning: {describe(found, classes)}; {place} lists all; {ADVICE}"]


def cut(
    file: BinaryIO, start: int, row: int, index: pd.DataFrame, ids: Iterable[int]
) -> tuple[pd.DataFrame, str]:
    """Cut the rows ``ids`` out of an array in a file; the index and the digest of what is left.

    The array begins at ``start``, each of its rows has ``row`` bytes.
    """
    kept = index[~index["id"].isin(list(ids))].reset_index(drop=True)
    digest = hashlib.sha256()
    for place, image in enumerate(_rows(file, start, row, kept["id"])):
        digest.update(image)
        file.seek(start + place * row)
        file.write(image)
    file.truncate(start + len(kept) * row)
    return kept.assign(id=range(len(kept))), digest.hexdigest()


def _rows(file: BinaryIO, start: int, row: int, places: Iterable[int]) -> Iterator[bytes]:
    """Rows only ever move towards the beginning, so that none is read after it was written over."""
    for place in places:
        file.seek(start + place * row)
        yield file.read(row)
