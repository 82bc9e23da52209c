"""``ORIGIN.json``: what a folder of fetched data really is, beside the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dacr.errors import UserError
from dacr.runtime.json_files import read_json

ORIGIN = "ORIGIN.json"


def write_origin(folder: Path, facts: Mapping[str, Any]) -> None:
    text = json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / ORIGIN).write_text(text + "\n", encoding="utf-8")


def read_origin(folder: Path) -> dict[str, Any]:
    """What was written when the data were fetched; empty for sources made by this project."""
    path, remedy = folder / ORIGIN, f"run `dvc repro -f fetch@{folder.name}`"
    facts = read_json(path, remedy) if path.exists() else {}
    if not isinstance(facts, dict):
        raise UserError(f"{path} is damaged; {remedy}")
    return facts
