"""Puts ``conf/`` and ``data/schedules/`` into the wheel; everything else is in pyproject.toml.

An editable installation finds them at the root of the project (dacr/scenarios/places.py).
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CARRIED = {"conf": "conf", "data/schedules": "schedules"}
LEFT_OUT = shutil.ignore_patterns("__pycache__", "method", "reading", "paper", "paper.yaml")


class WithCarried(build_py):
    """The package, and what the library needs of the project around it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in CARRIED.items():
                place = Path(self.build_lib, "dacr", "carried", target)
                shutil.copytree(source, place, ignore=LEFT_OUT, dirs_exist_ok=True)


setup(cmdclass={"build_py": WithCarried})
