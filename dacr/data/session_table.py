"""The table of one session: which images it trains on and which it is tested with.

Its columns are id, label, domain, part and pixels. It is all that a session depends on of a
benchmark: an image that is added elsewhere changes nothing in it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dacr.errors import UserError

COLUMNS = {"id": "int64", "label": "int64", "domain": "int64", "part": "str", "pixels": "str"}


def session_file(folder: Path, key: str) -> Path:
    return folder / f"session-{key}.csv"


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
