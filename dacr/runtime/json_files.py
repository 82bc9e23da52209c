"""JSON that is the same bytes for the same content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dacr.errors import UserError


def write_json(path: Path, content: Any, indent: int = 1) -> None:
    text = json.dumps(content, indent=indent, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, remedy: str) -> Any:
    """The content; a missing or damaged file is one line that ends with the ``remedy``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {remedy}") from None
    except (ValueError, UnicodeDecodeError):
        raise UserError(f"{path} is damaged; {remedy}") from None
