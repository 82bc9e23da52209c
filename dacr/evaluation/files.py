"""The files that evaluation reads, checked: a damaged file is one line, not a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from dacr.errors import UserError

Content = TypeVar("Content")

PREDICTIONS = {"session", "id", "label", "domain", "predicted", "component"}
EMBEDDING = {"session", "label", "domain", "component"}


def checked(path: Path, stage: str, read: Callable[[Path], Content]) -> Content:
    """``read(path)``; if the file is missing or damaged, ``dvc repro <stage>`` makes it again."""
    try:
        return read(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run `dvc repro {stage}`") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is damaged ({reason}); run `dvc repro -f {stage}`") from None


def _columns(table: pd.DataFrame, wanted: set[str]) -> pd.DataFrame:
    """The table, if it has the ``wanted`` columns and they hold whole numbers."""
    missing = sorted(wanted - set(table.columns))
    if missing:
        raise ValueError(f"it has no column {', '.join(missing)}")
    wrong = [name for name in sorted(wanted) if not pd.api.types.is_integer_dtype(table[name])]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: not whole numbers")
    return table


def _json(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}")
    return dict(content)


def read_predictions(path: Path) -> pd.DataFrame:
    return checked(path, "consolidate", lambda p: _columns(pd.read_parquet(p), PREDICTIONS))


def read_history(path: Path) -> dict[str, Any]:
    """What the sessions recorded; which records there are depends on the method."""
    return checked(path, "consolidate", lambda p: _json(p, ("losses", "memory")))


def read_embedding(path: Path) -> pd.DataFrame:
    return checked(path, "consolidate", lambda p: _columns(pd.read_parquet(p), EMBEDDING))


def read_benchmark(folder: Path) -> dict[str, Any]:
    """``benchmark.json``: the names and counts, without the images."""
    keys = ("name", "classes", "domains", "image_size", "counts", "paper", "origins")
    return checked(folder / "benchmark.json", "build", lambda p: _json(p, keys))


def read_domains(folder: Path) -> pd.Series[int]:
    """The domain of every image of the benchmark, by its id."""
    path = folder / "index.parquet"
    index = checked(path, "build", lambda p: _columns(pd.read_parquet(p), {"id", "domain"}))
    return index.set_index("id")["domain"]


def read_metrics(path: Path) -> dict[str, Any]:
    keys = ("average_incremental_accuracy", "accuracy_by_session", "accuracy_by_pair")
    return checked(path, "evaluate", lambda p: _json(p, keys))
