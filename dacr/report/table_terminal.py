"""The tables, plans and results of the paper in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from dacr.evaluation.formats import NOTHING, duration
from dacr.experiments.devices import Device
from dacr.experiments.plan import THREADS, Task, to_run
from dacr.experiments.records import Record
from dacr.experiments.results import Results
from dacr.experiments.sweep import Ended
from dacr.experiments.tables import Paper
from dacr.experiments.worker import Outcome
from dacr.report import table_sizes
from dacr.report import table_words as said
from dacr.report.html import Sheet
from dacr.report.table_checks import check_sheet
from dacr.report.table_figures import detail_sheets, metric_sheet
from dacr.report.terminal import table_of

if TYPE_CHECKING:
    from dacr.experiments.work import Work

PETA, GIGA = 1e15, 1e9


def show_list(paper: Paper, console: Console) -> None:
    rows = [
        [
            name,
            table.title + " (held-out images)" * table.held_out,
            table.source or NOTHING,
            " ".join(dict.fromkeys(own for own, *_ in paper.rows_by_split(table, "icifar20"))),
            str(len(paper.rows(table, "icifar20"))),
        ]
        for name, table in paper.tables.items()
    ]
    columns = ["name", "what", "in the paper", "splits", "rows"]
    console.print(table_of(Sheet("", columns, rows, "left")))


def show_plan(
    planned: Sequence[Task],
    redo: str | None,
    jobs: int,
    console: Console,
    device: Device | None = None,
) -> None:
    """What would run, what is there, and how long it will take; on a device if one is given."""
    waiting = {task.experiment.name for task in to_run(planned, redo)}
    rows = [
        [
            task.experiment.name,
            " ".join(f"{k}={v}" for k, v in task.experiment.overrides if k != THREADS),
            _state(task, task.experiment.name in waiting),
            *([_petaflop(task.work.flops)] if task.work else []),
            _about(task),
        ]
        for task in planned
    ]
    columns = ["experiment", "with", "state", *(["PFLOP"] if device else []), "about"]
    console.print(table_of(Sheet("", columns, rows, "left")))
    console.print(summary(planned, redo, jobs, device))


def _about(task: Task) -> str:
    if task.seconds is None:
        return NOTHING
    return "~ " * task.rough + duration(task.seconds)


def _state(task: Task, waiting: bool) -> str:
    if task.record is None and task.elsewhere:
        return f"to run (at {task.elsewhere.revision[:8]} it was measured on other images)"
    if task.record is None:
        return f"to run (failed before: {task.failure})" if task.failure else "to run"
    made = f"at {task.record.revision[:8]}"
    if waiting:
        return f"to run again (there, {made})"
    return f"there, {made}, made with other code" if task.changed else f"there, {made}"


def summary(
    planned: Sequence[Task], redo: str | None, jobs: int, device: Device | None = None
) -> str:
    chosen = to_run(planned, redo)
    there = len(planned) - len(chosen)
    text = f"{there} of {len(planned)} experiments there, {len(chosen)} to run"
    changed = sum(task.changed for task in planned) if redo is None else 0
    if changed:
        text += f". {changed} made with other code or settings: --redo changed runs them again"
    elsewhere = sum(task.elsewhere is not None for task in planned)
    if elsewhere:
        text += f". {elsewhere} measured on other images than those of today: they do not count"
    times = [task.seconds for task in chosen if task.seconds is not None]
    if device and chosen:
        text += f". {_needs([task.work for task in chosen if task.work], sum(times), device)}"
    elif times:
        total = sum(times) / len(times) * len(chosen) / min(jobs, len(chosen))
        text += f". About {duration(total)} with {jobs} at a time, from earlier experiments"
        if any(task.rough for task in chosen):
            text += " (~: counted work at the rate of others)"
    elif chosen:
        text += ". No earlier experiment tells how long they take; --device counts it"
    return text + "."


def _petaflop(flops: float) -> str:
    number = flops / PETA
    return f"{number:,.1f}" if number >= 1 else f"{number:.2g}"


def _tenths(number: float) -> str:
    return f"{number:.1f}" if number >= 0.05 else "less than 0.1"


def _needs(works: Sequence[Work], seconds: float, device: Device) -> str:
    """The counted work: hours of one device, its memory, and disk."""
    flops = sum(own.flops for own in works)
    memory = max(own.memory for own in works) / GIGA
    room = f" of {device.memory:g}" if device.memory else ""
    disk = sum(own.disk for own in works) / GIGA
    return (
        f"{_petaflop(flops)} PFLOP, about {duration(seconds)} on {device.words} "
        f"(computed from passes of the extractors alone, whatever --jobs). Up to "
        f"{_tenths(memory)}{room} GB of its memory per experiment, {_tenths(disk)} GB of disk for "
        "the models"
    )


def show_results(results: Results, console: Console) -> None:
    table = results.table
    source = table.source or "not in the paper"
    where = f", on {results.benchmark}" if table.splits else ""
    console.print(Text.assemble((table.title, "bold"), f" ({source}){where}"))
    console.print(*map(table_of, _sheets(results)))
    told = ["Nothing was measured yet.", *said.left_out(results)]
    if results.all_records:
        told = [*_about_gains(results), *said.facts(results), said.beside(results)]
    if table.held_out:
        told.insert(0, said.HELD_OUT)
    console.print("\n".join(told), highlight=False, markup=False)


def _sheets(results: Results) -> list[Sheet]:
    table, sheets = results.table, []
    if not table.splits:
        return [check_sheet(results, _how_many)]
    if table.along:
        return table_sizes.sheets(results)
    for split in table.splits:
        sheets += [metric_sheet(results, split, metric, _how_many) for metric in table.metrics]
        for detail in table.terminal:
            sheets += detail_sheets(results, split, detail)
    return sheets


def _how_many(records: Sequence[Record]) -> str:
    return str(len(records))


def _about_gains(results: Results) -> list[str]:
    told = said.significance(results)
    return [*told, said.about_significance(results)] if told else []


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
            how = f"average accuracy {average:.2f} % in {duration(outcome.record.seconds)}"
        self.console.print(
            f"[{done}/{self.total}] {outcome.name}: {how}", highlight=False, soft_wrap=True
        )
