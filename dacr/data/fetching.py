"""Options of sources, checked before anything is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dacr.config import Data
from dacr.data.sources import get_source
from dacr.errors import UserError

Options = Mapping[str, Mapping[str, Any]]


def check_options(data: Data, name: str) -> None:
    """Refuse wrong options of a source, also those that only reading needs, hours later."""
    get_source(name, data.source_options)
    try:
        get_source(name, data.source_options | data.read_options)
    except UserError as error:
        wrong = str(error).replace("data.source_options", "data.read_options")
        raise UserError(wrong) from None


def fetch_source(name: str, options: Options, folder: Path) -> None:
    """Bring the source of that name to ``folder`` (it exists and is empty), verified."""
    get_source(name, options).fetch(folder)
