"""Two experiments side by side: parameters that differ, metrics, accuracy by session.

An experiment is a name of `dvc exp list`, a git revision, or `workspace`. Differences are B − A.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from dacr.errors import UserError

HELP = "two experiments side by side, in the terminal and as a page"


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
    from dacr.comparison import compare_experiments, render_comparison
    from dacr.comparison_text import show

    page = page_path(arguments.a, arguments.b, arguments.page)
    comparison = compare_experiments(arguments.a, arguments.b)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render_comparison(comparison), encoding="utf-8")
    show(comparison)
    print(f"page: {page}")


def page_path(a: str, b: str, wanted: Path | None) -> Path:
    """Where the page goes: never to a place that belongs to a stage."""
    from dacr.experiments import Workspace, project_root, read_lock

    root = project_root()
    name = "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in ("compare", a, b))
    page = wanted or root / "reports" / f"{name}.html"
    if page.is_dir():
        raise UserError(f"--page {page} is a folder; name a file in it")
    outs = [out for stage in read_lock(Workspace(root)).values() for out in stage.outs]
    for out in outs:
        if page.resolve().is_relative_to(root / out):
            raise UserError(f"--page {page} is an out of the pipeline; choose another name")
    return page
