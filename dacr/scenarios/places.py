"""Where the library finds what it carries, and where it keeps what it makes.

A wheel carries ``conf/`` and ``data/schedules/`` inside the package (setup.py puts them there); in
a clone they are at the root of the project.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from dacr.errors import UserError

HOME = "DACR_HOME"
PACKAGE = Path(__file__).resolve().parents[1]
CARRIED = "carried"
"""The folder of the package that setup.py fills."""


def conf_folder() -> Path:
    return _carried("conf", "conf")


def schedules_folder() -> Path:
    """The committed schedules, ``<benchmark>_<split>.csv``."""
    return _carried("schedules", "data/schedules")


def _carried(name: str, in_clone: str) -> Path:
    for folder in (PACKAGE / CARRIED / name, PACKAGE.parent / in_clone):
        if folder.is_dir():
            return folder
    raise UserError(
        f"this installation of dacr has no {in_clone}; install a wheel that `python -m build` "
        "made, or work in a clone of the project"
    )


def home_folder() -> Path:
    """The folder of the user's in which benchmarks are kept; it need not exist."""
    chosen = os.environ.get(HOME)
    folder = Path(chosen).expanduser().absolute() if chosen else user_cache_path("dacr")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{HOME} is {chosen}, which is a file; name a folder")
    return folder
