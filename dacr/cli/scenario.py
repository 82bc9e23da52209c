"""The benchmarks for any method: what there is, a picture of the sessions, exports.

A scenario is a benchmark and a split, or the folder data/split of a project. Benchmarks are fetched
and built on first use, into the folder DACR_HOME (default: the user's cache folder).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from dacr.data.benchmark import SUMMARY, open_summary
from dacr.data.session_table import read_schedule
from dacr.data.splits import SCHEDULE
from dacr.errors import UserError
from dacr.report.html import Sheet
from dacr.report.split_terminal import split_picture
from dacr.report.terminal import console_of, table_of
from dacr.scenarios.cache import BENCHMARK, built
from dacr.scenarios.catalogue import Choice, Offer, download_size, offers, placeholders
from dacr.scenarios.exports import FORMS
from dacr.scenarios.opening import scenario, tables_folder
from dacr.scenarios.places import home_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    verbs.add_parser("list", help="the benchmarks, their splits and numbers of sessions")
    show = verbs.add_parser("show", help="the sessions as a picture; nothing is downloaded")
    export = verbs.add_parser("export", help="the sessions as files for other libraries")
    for own in (show, export):
        own.add_argument("name", help="a benchmark, or the folder data/split of a project")
        own.add_argument("split", nargs="?", help="a split of the benchmark")
        own.add_argument("--seed", type=int, help="of another order of classes and domains")
    export.add_argument(
        "--to",
        required=True,
        choices=FORMS,
        help="tables, or images with a Python file to load them",
    )
    export.add_argument("--out", type=Path, help="a new folder (default: ./<name>-<split>-<to>)")
    export.add_argument("--domains", action="store_true", help="domain labels for the learner, too")
    export.add_argument("--per-pair", type=int, help="at most so many training images of each pair")
    export.add_argument(
        "--validation", type=float, help="test on this fraction of the training images instead"
    )


def run(arguments: argparse.Namespace) -> None:
    match arguments.verb:
        case "list":
            _list()
        case "show":
            _show(arguments)
        case "export":
            _export(arguments)


def _list() -> None:
    rows = [_row(offer) for offer in offers()]
    columns = ["benchmark", "classes × domains", "splits (sessions)", "download", "here"]
    console = console_of()
    console.print(table_of(Sheet("", columns, rows, css="left")))
    console.print(f"`dacr scenario show <benchmark> <split>` draws one; kept in {home_folder()}")


def _row(offer: Offer) -> list[str]:
    data = offer.composed.data
    size = download_size(data)
    download = "from a mirror" if size is None else f"{size / 1e6:,.0f} MB" if size else "none"
    sessions = ", ".join(f"{split} ({count})" for split, count in offer.sessions.items())
    here = "yes" if built(offer.composed) else ""
    return [data.benchmark, f"{data.classes} × {len(data.domains)}", sessions, download, here]


def _show(arguments: argparse.Namespace) -> None:
    if arguments.split is None:
        if arguments.seed is not None:
            raise UserError("--seed is for a named benchmark and split; a project has its own")
        folder = tables_folder(arguments.name)
        summary = open_summary(folder.parent / BENCHMARK / SUMMARY)
        title, table = f"{summary['name']}, {folder}", read_schedule(folder / SCHEDULE)
        classes, domains = summary["classes"], summary["domains"]
    else:
        choice = Choice(arguments.name, arguments.split, arguments.seed)
        composed = choice.composed()
        title, table = f"{choice.benchmark} {choice.split}", choice.schedule(composed)
        place, domains = built(composed), composed.data.domains
        classes = open_summary(place / SUMMARY)["classes"] if place else placeholders(composed.data)
    console = console_of()
    console.print(f"{title}: {_size(table)}", highlight=False)
    console.print(split_picture(table, classes, domains, console.width))


def _size(schedule: pd.DataFrame) -> str:
    pairs = schedule[["class", "domain"]].drop_duplicates()
    return (
        f"{schedule['session'].max()} sessions, {len(pairs)} class-domain pairs of "
        f"{pairs['class'].nunique()} classes and {pairs['domain'].nunique()} domains"
    )


def _export(arguments: argparse.Namespace) -> None:
    from dacr.scenarios.exports.writing import check_export, export

    name = Path(arguments.name).name if arguments.split is None else arguments.name
    words = [name, *([arguments.split] if arguments.split else []), arguments.to]
    out = arguments.out or Path("-".join(words))
    check_export(arguments.to, out)
    opened = scenario(
        arguments.name,
        arguments.split,
        seed=arguments.seed,
        per_pair=arguments.per_pair,
        validation=arguments.validation,
    )
    export(opened, arguments.to, out, arguments.domains)
    print(f"{out}: {', '.join(sorted(file.name for file in out.iterdir()))}")
