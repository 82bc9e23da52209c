"""The tables of a split: the schedule of all sessions, and the images of each one.

The columns of a session's table are id, label, domain, part and pixels. It is all of a benchmark
that a session depends on: an image that is added elsewhere changes nothing in it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dacr.errors import UserError

SCHEDULE_COLUMNS = ["session", "class", "domain", "new_class"]
COLUMNS = {"id": "int64", "label": "int64", "domain": "int64", "part": "str", "pixels": "str"}


def session_file(folder: Path, key: str) -> Path:
    return folder / f"session-{key}.csv"


def read_schedule(path: Path) -> pd.DataFrame:
    """The table that stage ``schedule`` wrote."""
    try:
        return pd.read_csv(path, usecols=SCHEDULE_COLUMNS, dtype="int64")[SCHEDULE_COLUMNS]
    except FileNotFoundError:
        raise UserError(f"{path} is missing; run `dvc repro schedule`") from None
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged ({reason}); run `dvc repro -f schedule`") from None


def read_session(path: Path) -> pd.DataFrame:
    """A table that stage ``split`` wrote, with what a damaged file would break checked."""
    try:
        table = pd.read_csv(path, dtype=COLUMNS)
        if list(table.columns) != list(COLUMNS):
            raise ValueError(f"its columns are not {','.join(COLUMNS)}")
        if not table["part"].isin(["train", "test"]).all():
            raise ValueError("a part is neither train nor test")
        if not table["pixels"].str.fullmatch("[0-9a-f]{16}").all():
            raise ValueError("a hash of pixels is not 16 hexadecimal digits")
        if table["id"].duplicated().any() or (table[["id", "label", "domain"]] < 0).any(axis=None):
            raise ValueError("an id stands twice, or a number is negative")
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} is damaged ({reason}); run `dvc repro split`") from None
    return table
