"""What a run tells about itself: tables and records that grow by a session's rows.

The last session's folder holds all that `evaluate` needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dacr.errors import UserError
from dacr.model.heads import MixtureHead
from dacr.runtime.json_files import read_json, write_json

if TYPE_CHECKING:
    from dacr.learning.reduction import Reduced

History = dict[str, list[dict[str, Any]]]
PREDICTIONS, EMBEDDING, HISTORY = "predictions.parquet", "embedding.parquet", "history.json"
COLUMNS = {
    PREDICTIONS: ["session", "id", "label", "domain", "predicted", "component", "confidence"],
    EMBEDDING: ["session", "id", "label", "domain", "component", "x", "y"],
}
REMEDY = "run `dvc repro`"


def write_nothing(folder: Path) -> None:
    """The results before the first session."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / HISTORY, {})
    for name, columns in COLUMNS.items():
        pd.DataFrame(columns=columns).to_parquet(folder / name, index=False)


def extend_results(before: Path, folder: Path, new: History, **tables: pd.DataFrame) -> None:
    """The results of all sessions up to this one: those in ``before``, and this session's."""
    folder.mkdir(parents=True, exist_ok=True)
    old: History = read_json(before / HISTORY, REMEDY)
    both = {name: old.get(name, []) + new.get(name, []) for name in {*old, *new}}
    write_json(folder / HISTORY, both)
    for name, table in tables.items():
        _extend_table(before, folder, f"{name}.parquet", table)


def _extend_table(before: Path, folder: Path, name: str, new: pd.DataFrame) -> None:
    try:
        old = pd.read_parquet(before / name)
    except (OSError, ValueError):
        raise UserError(f"{before / name} is missing or damaged; {REMEDY}") from None
    table = pd.concat([old, new], ignore_index=True) if len(old) else new
    table[COLUMNS[name]].to_parquet(folder / name, index=False)


def memory_history(session: int, memory: pd.DataFrame) -> History:
    """Which exemplars each component of each class keeps."""
    groups = sorted(memory.groupby(["label", "component"])["id"], key=lambda group: group[0])
    return {
        "memory": [
            {"session": session, "class": key[0], "component": key[1], "ids": ids.tolist()}
            for key, ids in groups
        ]
    }


def mixture_history(
    session: int, seen: list[int], before: list[int], reduced: Reduced | None, head: MixtureHead
) -> History:
    """How the reduction changed the numbers of components ``before``, and what was merged."""
    after = head.counts().tolist()
    dropped = [0] * len(before)
    if reduced is not None:
        dropped = [int((new < 0).sum()) for new in reduced.relabelling]
    return {
        "components": [
            {
                "session": session,
                "row": row,
                "class": seen[row],
                "before": before[row],
                "dropped": dropped[row],
                "merged": before[row] - dropped[row] - after[row],
                "after": after[row],
            }
            for row in range(len(after))
        ],
        "merges": [
            {
                "session": session,
                "row": merge.row,
                "class": seen[merge.row],
                "left": list(merge.left),
                "right": list(merge.right),
                "distance": round(merge.distance, 6),
                "left_support": merge.left_support,
                "right_support": merge.right_support,
            }
            for merge in (reduced.merges if reduced else [])
        ],
        "kappa": [{"session": session, "kappa": round(head.kappa.item(), 6)}],
    }
