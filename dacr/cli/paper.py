"""Every table and figure of the paper: what it needs, running it, the results beside the paper's.

Experiments run at the committed revision, each with one thread in a clone of its own under .dacr/,
and end as DVC experiments of this repository. What is done is not done again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from dacr.errors import UserError
from dacr.experiments.devices import device_called
from dacr.experiments.engine import Engine, LocalEngine, Project
from dacr.experiments.plan import (
    Choice,
    cells,
    check_benchmark,
    on_device,
    own_seeds,
    parse_seeds,
    tasks,
    to_run,
)
from dacr.experiments.rates import with_rough_times
from dacr.experiments.records import SCRATCH, Store, write_text
from dacr.experiments.repository import head, require_committed, require_project, uncommitted
from dacr.experiments.results import (
    Results,
    commit_results,
    results_of,
    with_counted_budgets,
)
from dacr.experiments.sweep import cache_folder, only_sweep, order_of, sweep
from dacr.experiments.tables import Needs, Paper, Table, load_paper
from dacr.report.table_markdown import insert_tables
from dacr.report.table_page import write_page
from dacr.report.table_terminal import Narrator, show_list, show_plan, show_results, summary
from dacr.report.terminal import console_of

DEFAULT = "idigits_mini"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    verbs.add_parser("list", help="the tables and figures")
    for verb, text in (
        ("plan", "what a table needs, what is there already, and how long the rest takes"),
        ("run", "run what is missing, as DVC experiments"),
        ("show", "the results beside the paper's, here and as a page"),
    ):
        own = verbs.add_parser(verb, help=text)
        own.add_argument("table", help="a name from `dacr paper list`")
        own.add_argument("--benchmark", help=f"(default: {DEFAULT}, or the table's own)")
        if verb != "show":
            _add_choice(own)
        if verb == "plan":
            own.add_argument(
                "--device",
                help="count the work, and how long it takes there: a name in conf/paper.yaml, or "
                "`here` for what `dacr doctor` measured",
            )
        if verb == "run":
            _add_engine(own)
        if verb == "show":
            own.add_argument(
                "--budgets",
                action="store_true",
                help="count parameters, exemplars and FLOPs also of experiments that are older "
                "than these counts (takes half a second per row)",
            )
    insert = verbs.add_parser("insert", help="write the tables that a Markdown file marks anew")
    insert.add_argument("file", type=Path, help="for example docs/results.md")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", help="only these, with commas: der,der_fair,der_dacr")
    parser.add_argument("--splits", help="only these, with commas: nd,ncd")
    parser.add_argument("--seeds", help="how many of those in conf/, or which: 3, or 11, or 11,12")
    parser.add_argument("--jobs", type=int, default=1, help="experiments at a time (default: 1)")
    parser.add_argument(
        "--redo",
        choices=("changed", "all"),
        help="run again what was measured with other code or settings, or everything",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--address", default="auto", help="of the Ray cluster (default: auto)")
    parser.add_argument(
        "--jobs-per-gpu", type=int, help="with Ray: experiments at a time on each GPU"
    )


def run(arguments: argparse.Namespace) -> None:

    require_project()
    paper, console = load_paper(), console_of()
    match arguments.verb:
        case "list":
            show_list(paper, console)
        case "plan":
            _plan(paper, arguments, console)
        case "run":
            _run(paper, arguments, console)
        case "show":
            table = paper.table(arguments.table)
            _show(paper, table, _benchmark(table, arguments), console, arguments.budgets)
        case "insert":
            _insert(paper, arguments.file, console)


def _insert(paper: Paper, file: Path, console: Console) -> None:
    store = Store()

    def results(table: str, benchmark: str) -> Results:
        check_benchmark(benchmark)
        return results_of(paper, paper.table(table), benchmark, store)

    try:
        before = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{file} is no Markdown file that can be read") from None
    after = insert_tables(before, results)
    if after != before:
        write_text(file, after)
    console.print(f"{file}: {'written anew' if after != before else 'as the records say'}")


def _benchmark(table: Table, arguments: argparse.Namespace) -> str:
    """The one that is asked for; a table that is about one benchmark has no other."""
    asked: str | None = arguments.benchmark
    if table.benchmark and asked not in (None, table.benchmark):
        raise UserError(f"table {table.name} names its benchmarks itself; leave out --benchmark")
    return asked or table.benchmark or DEFAULT


def _choice(paper: Paper, table: Table, arguments: argparse.Namespace) -> Choice:

    if arguments.jobs < 1:
        raise UserError(f"--jobs {arguments.jobs}: at least one experiment at a time")
    return Choice(
        _words(arguments.methods, "--methods"),
        _words(arguments.splits, "--splits"),
        parse_seeds(arguments.seeds, own_seeds(paper, table)),
    )


def _words(text: str | None, option: str) -> list[str]:
    """The words between commas; none without the option, which means all."""

    words = [stripped for word in (text or "").split(",") if (stripped := word.strip())]
    if text is not None and not words:
        raise UserError(f"{option} names nothing; leave it out for all")
    return words


def _plan(paper: Paper, arguments: argparse.Namespace, console: Console) -> None:

    table = paper.table(arguments.table)
    benchmark = _benchmark(table, arguments)
    chosen = cells(paper, table, benchmark, _choice(paper, table, arguments))
    store = Store()
    planned = tasks(table, chosen, store)
    device = device_called(arguments.device, paper) if arguments.device else None
    planned = on_device(planned, device, store) if device else with_rough_times(planned, store)
    show_plan(planned, arguments.redo, arguments.jobs, console, device)
    if changed := uncommitted():
        console.print(f"Before a run commit {', '.join(changed[:3])}: it uses what is committed.")


def _run(paper: Paper, arguments: argparse.Namespace, console: Console) -> None:

    table = paper.table(arguments.table)
    benchmark = _benchmark(table, arguments)
    chosen = cells(paper, table, benchmark, _choice(paper, table, arguments))
    needs = _needs(paper, arguments)
    require_committed()
    revision = head()
    with only_sweep() as lock:
        store = Store()
        planned = with_rough_times(tasks(table, chosen, store), store)
        waiting = to_run(planned, arguments.redo)
        failed: dict[str, str] = {}
        if not waiting:
            console.print(summary(planned, arguments.redo, arguments.jobs))
        else:
            engine = _engine(needs, arguments, revision, lock)
            console.print(summary(planned, arguments.redo, engine.jobs))
            console.print(f"What they say meanwhile is in {SCRATCH}/logs.")
            orders = [order_of(task) for task in waiting]
            failed = sweep(engine, orders, store, Narrator(len(orders), console)).failed
    _show(paper, table, benchmark, console)
    if failed:
        for name, error in failed.items():
            line = f"failed: {name}: {error} (log: {SCRATCH}/logs/{name}.log)"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        again = "the same command" + " without --redo" * bool(arguments.redo)
        raise UserError(
            f"{len(failed)} of {len(waiting)} experiments failed; {again} runs only them"
        )


def _engine(needs: Needs, arguments: argparse.Namespace, revision: str, lock: int) -> Engine:

    project = Project(Path.cwd(), revision, cache_folder(), Path(SCRATCH).resolve())
    if arguments.engine == "ray":
        from dacr.experiments.ray_engine import RayEngine

        return RayEngine(project, arguments.address, needs)
    return LocalEngine(project, arguments.jobs, lock)


def _needs(paper: Paper, arguments: argparse.Namespace) -> Needs:
    """What an experiment asks of Ray; wrong words are told before any work."""

    each = arguments.jobs_per_gpu
    if each is None:
        return paper.ray
    if arguments.engine != "ray":
        raise UserError("--jobs-per-gpu is for --engine ray; here --jobs are spread over all GPUs")
    if each < 1:
        raise UserError(f"--jobs-per-gpu {each}: at least one experiment on a GPU")
    return paper.ray.sharing(each)


def _show(
    paper: Paper, table: Table, benchmark: str, console: Console, budgets: bool = False
) -> None:

    check_benchmark(benchmark)
    store = Store()
    results = results_of(paper, table, benchmark, store)
    if budgets:
        results = with_counted_budgets(results, store)
    page = write_page(results) if results.all_records else None
    if page:
        commit_results(results)
    show_results(results, console)
    if page:
        console.print(f"The page: {page}")
