"""Two experiments side by side: parameters that differ, metrics, accuracy by session.

An experiment is a name of `dvc exp list`, a git revision, or `workspace`. Differences are B − A.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from dacr.errors import UserError, naming
from dacr.experiments.comparison import compare_experiments
from dacr.experiments.reading import project_root, refuse_the_pipelines
from dacr.experiments.records import write_text
from dacr.report.comparison import KICKER, render_comparison, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="an experiment, a git revision, or workspace")
    parser.add_argument(
        "b", metavar="B", nargs="?", default="workspace", help="the same (default: workspace)"
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        type=Path,
        help="where the page goes (default: reports/compare-A-B.html)",
    )


def run(arguments: argparse.Namespace) -> None:

    page = page_path(arguments.a, arguments.b, arguments.page)
    comparison = compare_experiments(arguments.a, arguments.b)
    # Shown first: a page that cannot be written takes nothing away.
    show(comparison)
    sys.stdout.flush()
    with naming(f"--page {page}"):
        write_text(page.resolve(), render_comparison(comparison))  # what a link leads to
    print(f"page: {page}")


def page_path(a: str, b: str, wanted: Path | None) -> Path:
    """Where the page goes: never to a place that belongs to a stage or holds something else."""

    name = "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in ("compare", a, b))
    page = wanted or project_root() / "reports" / f"{name}.html"
    if page.suffix != ".html":
        raise UserError(f"--page {page}: name a file that ends in .html")
    refuse_the_pipelines(page, "--page")
    _refuse_others(page)
    return page


def _refuse_others(page: Path) -> None:
    """A page may take the place of an older one, and of nothing else."""

    with naming(f"--page {page}"):
        try:
            content = page.read_bytes()
        except FileNotFoundError:
            return
    if content and KICKER.encode() not in content:
        raise UserError(f"--page {page} exists and is no page of this command; choose another name")
