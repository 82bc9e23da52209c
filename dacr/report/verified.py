"""``dacr verify`` as a whole: the checks of a run, the page among them."""

from __future__ import annotations

from pathlib import Path

from dacr.config import load_params
from dacr.experiments.verification import Report, verify
from dacr.report.run import report


def verify_run(seed: int = 0, everything: bool = False, remote: str | None = None) -> Report:
    """All checks of the project around the current folder."""
    return verify(make_page, seed, everything, remote)


def make_page(reports: Path) -> None:
    """The page of the workspace's run in another folder, from the metrics that are there."""
    report(load_params(), reports)
