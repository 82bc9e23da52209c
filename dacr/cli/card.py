"""A model card of a run (Markdown), or the metadata of a benchmark (Croissant, JSON-LD).

`dacr card run` tells what a run is, its numbers, its budget, the command and revision that make it
again, and what `dacr verify` says. `dacr card benchmark` describes the benchmark in data/ with
licences, counts, checksums and splits, as search engines of data sets and mlcroissant read it.
"""

from __future__ import annotations

import argparse
import json
from importlib import metadata
from pathlib import Path

from dacr.errors import UserError, naming
from dacr.experiments.reading import (
    WORKSPACE,
    open_experiment,
    project_root,
    refuse_the_pipelines,
)
from dacr.experiments.records import write_text

BENCHMARK, SCHEDULE = Path("data/benchmark"), Path("data/split/schedule.csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="kind")
    run_card = kinds.add_parser("run", help="a model card in Markdown")
    run_card.add_argument(
        "name",
        metavar="RUN",
        nargs="?",
        default=WORKSPACE,
        help="an experiment, a git revision, or workspace (default)",
    )
    run_card.add_argument(
        "--no-verify", action="store_true", help="do not ask `dacr verify`, which reads every byte"
    )
    benchmark = kinds.add_parser("benchmark", help="Croissant metadata in JSON-LD")
    benchmark.add_argument(
        "--base-url", help="where the files are published (default: paths relative to the card)"
    )
    for own, default in ((run_card, "reports/card.md"), (benchmark, "reports/croissant.json")):
        own.add_argument(
            "--out", type=Path, metavar="FILE", help=f"where it goes (default: {default})"
        )


def run(arguments: argparse.Namespace) -> None:
    out = arguments.out or project_root() / "reports" / DEFAULTS[arguments.kind]
    _check_place(out)
    text = _run_card(arguments) if arguments.kind == "run" else _benchmark_card(arguments, out)
    with naming(f"--out {out}"):
        write_text(out.resolve(), text)
    print(f"card: {out}")


DEFAULTS = {"run": "card.md", "benchmark": "croissant.json"}


def _check_place(out: Path) -> None:
    suffixes = (".md", ".json", ".jsonld")
    if out.suffix not in suffixes:
        raise UserError(f"--out {out}: name a file that ends in {', '.join(suffixes)}")
    refuse_the_pipelines(out, "--out")


def _run_card(arguments: argparse.Namespace) -> str:
    from dacr.report.cards import model_card, read_subject

    return model_card(read_subject(open_experiment(arguments.name), not arguments.no_verify))


def _benchmark_card(arguments: argparse.Namespace, out: Path) -> str:
    from dacr.data.croissant import croissant

    root, base = project_root(), arguments.base_url
    if base and "://" not in base:
        raise UserError(f"--base-url {base}: give an address such as https://…")
    schedule = root / SCHEDULE
    content = croissant(
        root / BENCHMARK,
        schedule if schedule.exists() else None,
        out,
        base,
        metadata.version("dacr"),
    )
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
