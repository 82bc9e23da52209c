"""The run before the first session: random weights, nothing seen, nothing remembered."""

from __future__ import annotations

import pandas as pd

from dacr.methods.parts.method import Method
from dacr.sessions.history import write_nothing
from dacr.sessions.places import run_folder
from dacr.sessions.state import MEMORY_COLUMNS, write_state


def start(method: Method) -> None:
    """Stage ``start``: ``runs/00``, from which the chain of sessions begins."""
    run, nothing = run_folder("00"), pd.DataFrame(columns=MEMORY_COLUMNS)
    write_state(method, run.state, session=0, seen=[], memory=nothing)
    write_nothing(run.results)
