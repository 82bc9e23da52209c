"""Do the metrics, plots and the page follow from the results?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from dacr.experiments.reading import Workspace
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.pipeline import Lock

REPORTS = Path("reports")
PAGE = Path("index.html")
Maker = Callable[[Path], None]
"""Writes what a stage writes to ``reports`` to another folder, from what is there already."""


def check_derived(report: Report, lock: Lock, page: Maker | None) -> None:
    """Everything in ``reports`` made again from the results, byte for byte.

    ``page`` writes the page; it comes from above, where pages are made.
    """
    from dacr.evaluation.evaluate import evaluate
    from dacr.evaluation.measures import measure
    from dacr.experiments.budget import budget

    makers: list[Maker] = [evaluate, measure, budget, *([page] if page else [])]
    with report.guard("metrics"), TemporaryDirectory() as name:
        folder = Path(name)
        for make in makers:
            make(folder)
        made = {own.relative_to(folder) for own in folder.rglob("*") if own.is_file()}
        outs = [Path(out) for stage in lock.values() for out in stage.outs]
        wanted = {own for own in made if _belongs(REPORTS / own, outs)}
        recorded = set(_files(outs)) - (set() if page else {PAGE})
        faults = [
            f"{REPORTS / path} does not follow from the {_origin(path)}"
            for path in sorted(wanted | recorded)
            if path not in made
            or Workspace(REPORTS).read(str(path)) != (folder / path).read_bytes()
        ]
        told = f"{len(wanted)} files follow from the predictions and the state"
        report.add("metrics", faults, told + ", the page too" * bool(page))


def _belongs(path: Path, outs: Iterable[Path]) -> bool:
    """Whether a file is an out or in one. What a stage writes beside is no result."""
    return any(path.is_relative_to(out) for out in outs)


def _files(outs: Iterable[Path]) -> Iterable[Path]:
    """The files of all outs in ``reports``, relative to it."""
    for out in outs:
        if out.is_relative_to(REPORTS):
            files = out.rglob("*") if out.is_dir() else [out]
            yield from (file.relative_to(REPORTS) for file in files if file.is_file())


def _origin(path: Path) -> str:
    """What a file of ``reports/`` is made from, and how it is made again."""
    if path == PAGE:
        return "metrics and plots; run `dvc repro -f report`"
    if path.name == "budget.json":
        return "state and the parameters; run `dvc repro -f budget`"
    stage = "measure" if path.parts[0].startswith("measures") else "evaluate"
    return f"predictions; run `dvc repro -f {stage}`"
