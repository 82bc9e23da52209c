"""The tables, plans and results of the paper in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Lines
from rich.text import Text

from dacr.evaluation.formats import NOTHING
from dacr.experiments.plan import THREADS, Task, to_run
from dacr.experiments.results import Results
from dacr.experiments.sweep import Ended
from dacr.experiments.tables import Paper
from dacr.experiments.worker import Outcome
from dacr.report import table_words as said
from dacr.report.table_figures import detail_sheets, metric_sheet
from dacr.report.terminal import table_of


def show_list(paper: Paper, console: Console) -> None:
    lines = Lines("name", "what", "in the paper", "splits", "rows", box=None, pad_edge=False)
    for name, table in paper.tables.items():
        rows = str(len(paper.rows(table, "icifar20")))
        source = escape(table.source or NOTHING)
        lines.add_row(name, escape(table.title), source, " ".join(table.splits), rows)
    console.print(lines)


def show_plan(planned: Sequence[Task], redo: str | None, jobs: int, console: Console) -> None:
    """What would run, what is there, and how long it will take."""
    waiting = {task.experiment.name for task in to_run(planned, redo)}
    lines = Lines(box=None, pad_edge=False)
    lines.add_column("experiment", no_wrap=True, overflow="fold")
    for heading in ("with", "state", "about"):
        lines.add_column(heading, overflow="fold")
    for task in planned:
        state = _state(task, task.experiment.name in waiting)
        about = said.duration(task.seconds) if task.seconds is not None else NOTHING
        special = " ".join(f"{k}={v}" for k, v in task.experiment.overrides if k != THREADS)
        lines.add_row(task.experiment.name, escape(special), escape(state), about)
    console.print(lines)
    console.print(summary(planned, redo, jobs))


def _state(task: Task, waiting: bool) -> str:
    if task.record is None:
        return f"to run (failed before: {task.failure})" if task.failure else "to run"
    made = f"at {task.record.revision[:8]}"
    if waiting:
        return f"to run again (there, {made})"
    return f"there, {made}, made with other code" if task.changed else f"there, {made}"


def summary(planned: Sequence[Task], redo: str | None, jobs: int) -> str:
    chosen = to_run(planned, redo)
    there = len(planned) - len(chosen)
    text = f"{there} of {len(planned)} experiments there, {len(chosen)} to run"
    changed = sum(task.changed for task in planned) if redo is None else 0
    if changed:
        text += f". {changed} made with other code or settings: --redo changed runs them again"
    times = [task.seconds for task in chosen if task.seconds is not None]
    if times:
        total = sum(times) / len(times) * len(chosen) / min(jobs, len(chosen))
        text += f". About {said.duration(total)} with {jobs} at a time, from earlier experiments"
    elif chosen:
        text += ". No earlier experiment of this benchmark and split tells how long they take"
    return text + "."


def show_results(results: Results, console: Console) -> None:
    table = results.table
    source = table.source or "not in the paper"
    console.print(Text.assemble((table.title, "bold"), f" ({source}), on {results.benchmark}"))
    for split in table.splits:
        sheets = [metric_sheet(results, split, own, lambda r: str(len(r))) for own in table.metrics]
        for detail in table.terminal:
            sheets += detail_sheets(results, split, detail)
        console.print(*map(table_of, sheets))
    told = ["Nothing was measured yet."]
    if results.all_records:
        told = [*said.facts(results), said.beside(results)]
    console.print("\n".join(told), highlight=False, markup=False)


class Narrator:
    """A line for each experiment that ends."""

    def __init__(self, total: int, console: Console) -> None:
        self.total, self.console = total, console

    def __call__(self, outcome: Outcome, ended: Ended) -> None:
        done = len(ended.done) + len(ended.failed)
        if outcome.record is None:
            how = f"[red]failed[/red]: {escape(outcome.error or '')}"
        else:
            average = outcome.record.metrics["average_incremental_accuracy"]
            how = f"average accuracy {average:.2f} % in {said.duration(outcome.record.seconds)}"
        self.console.print(
            f"[{done}/{self.total}] {outcome.name}: {how}", highlight=False, soft_wrap=True
        )
