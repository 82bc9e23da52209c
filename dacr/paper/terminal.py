"""The tables, plans and results of the paper in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Lines

from dacr.evaluation.headline import decimals
from dacr.paper.plan import THREADS, Task, to_run
from dacr.paper.results import Number, Results
from dacr.paper.spec import Paper
from dacr.paper.sweep import Ended
from dacr.paper.worker import Outcome

NOTHING = "–"


def words(metric: str) -> str:
    return metric.replace("_", " ")


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def show_list(paper: Paper, console: Console) -> None:
    lines = Lines("name", "what", "in the paper", "splits", "rows", box=None, pad_edge=False)
    for name, table in paper.tables.items():
        rows = str(len(paper.rows(table, "icifar20")))
        lines.add_row(name, table.title, table.source or NOTHING, " ".join(table.splits), rows)
    console.print(lines)


def show_plan(planned: Sequence[Task], redo: str | None, jobs: int, console: Console) -> None:
    """What would run, what is there, and how long it will take."""
    waiting = {task.experiment.name for task in to_run(planned, redo)}
    lines = Lines(box=None, pad_edge=False)
    for heading in ("experiment", "with", "state", "about"):
        lines.add_column(heading, overflow="fold")
    for task in planned:
        state = _state(task, task.experiment.name in waiting)
        about = duration(task.seconds) if task.seconds is not None else NOTHING
        special = " ".join(f"{k}={v}" for k, v in task.experiment.overrides if k != THREADS)
        lines.add_row(task.experiment.name, special, state, about)
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
        text += f". {changed} made with other code or settings: --redo changed does that anew"
    times = [task.seconds for task in chosen if task.seconds is not None]
    if times:
        total = sum(times) / len(times) * len(chosen) / min(jobs, len(chosen))
        text += f". About {duration(total)} with {jobs} at a time, from earlier experiments"
    elif chosen:
        text += ". No earlier experiment of this benchmark and split tells how long they take"
    return text + "."


def show_results(results: Results, console: Console) -> None:
    table = results.table
    source = table.source or "not in the paper"
    console.print(f"[bold]{table.title}[/bold] ({source}), on {results.benchmark}")
    for split in table.splits:
        for metric in table.metrics:
            console.print(_lines(results, split, metric))
    console.print("\n".join(footnotes(results)), highlight=False)


def _lines(results: Results, split: str, metric: str) -> Lines:
    reference = results.reference and results.paper.benchmark_name(results.reference)
    same = results.reference == results.benchmark
    lines = Lines(title=f"{split.upper()}, {words(metric)}", title_justify="left", pad_edge=False)
    lines.add_column("")
    numbers = {row: results.number(row, split, metric) for row in results.rows}
    gains = any(row.host for row in results.rows.values())
    for name in columns(gains, reference, same):
        lines.add_column(name, justify="right")
    for key, row in results.rows.items():
        cells = number_cells(numbers[key], metric, gains, reference, same)
        lines.add_row(row.label, *cells)
    return lines


def columns(gains: bool, reference: str | None, same: bool) -> list[str]:
    names = ["measured", "seeds"] + ["gain"] * gains
    if reference:
        names += [f"paper, {reference}"] + ["paper's gain"] * gains + ["difference"] * same
    return names


def number_cells(
    number: Number, metric: str, gains: bool, reference: str | None, same: bool
) -> list[str]:
    digits = decimals(metric)
    cells = [spread(number.mean, number.deviation, digits), str(number.seeds or NOTHING)]
    cells += [signed(number.gain, digits)] * gains
    if reference:
        cells.append(spread(number.paper, number.paper_deviation, digits))
        cells += [signed(number.paper_gain, digits)] * gains
        cells += [signed(number.difference, digits)] * same
    return cells


def spread(mean: float | None, deviation: float | None, digits: int) -> str:
    if mean is None:
        return NOTHING
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation is not None else "")


def signed(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:+.{digits}f}"


def footnotes(results: Results) -> list[str]:
    """Scale, data and machine in plain words, for the terminal and the page."""
    records = results.all_records
    if not records:
        return ["Nothing was measured yet."]
    return [scale(results), where(results), beside(results)]


def scale(results: Results) -> str:
    records = results.all_records
    images = every(_images(record.data) for record in records)
    parts = every(_part(record.setting) for record in records)
    setting = {
        key: every(record.setting[key] for record in records)
        for key in ("backbone", "epochs", "batch_size", "memory", "threads")
    }
    return (
        f"Run: {len(records)} experiments on {results.benchmark}: {images}{parts}; "
        f"{setting['backbone']}, {setting['epochs']} epochs a session, batch "
        f"{setting['batch_size']}, memory {setting['memory']}; "
        f"{setting['threads']} thread{'s' * (setting['threads'] != '1')} an experiment."
    )


def every(values: Iterable[Any]) -> str:
    """All different values, since records of one table may come from different configurations."""
    return " or ".join(map(str, sorted(set(values))))


def _images(data: dict[str, Any]) -> str:
    kinds = ", ".join(sorted(set(data["origins"].values()))) or "made from installed packages"
    return (
        f"{len(data['classes'])} classes × {len(data['domains'])} domains, "
        f"{data['counts']['train']:,} training and {data['counts']['test']:,} test images of "
        f"{data['image_size']} × {data['image_size']} ({kinds})"
    )


def _part(setting: dict[str, Any]) -> str:
    limited = f", {setting['per_pair']} training images a pair" if setting["per_pair"] else ""
    held = ", evaluated on held-out training images" if setting["validation"] else ""
    return f"{limited}{held}"


def where(results: Results) -> str:
    records = results.all_records
    machines = sorted(
        {
            f"{m['cores']} cores of {m['processor']}, device {m['device']}, torch {m['torch']}"
            for m in (record.machine for record in records)
        }
    )
    revisions = sorted({r.revision[:8] for r in records})
    warnings = []
    if older := sum(record.name in results.older for record in records):
        warnings.append(
            f"{older} of {len(records)} were measured with other code or settings than the "
            "committed ones: `dacr paper plan` names them, `--redo changed` measures them anew."
        )
    if any(len({record.code for record in own}) > 1 for own in results.records.values()):
        warnings.append("Some rows mix seeds measured with different code.")
    said = [f"Machine: {'; '.join(machines)}. Revision {', '.join(revisions)}.", *warnings]
    return " ".join(said)


def beside(results: Results) -> str:
    if results.reference is None:
        return "The paper has no numbers here."
    name = results.paper.benchmark_name(results.reference)
    if results.reference == results.benchmark:
        return (
            "The paper's numbers are of the same benchmark; the report of a run says whether its "
            "settings are the paper's too."
        )
    return (
        f"The paper's numbers are those of {name}: other data at another scale. Directions and "
        "gains may be compared, values may not."
    )


class Narrator:
    """A line for each experiment that ends."""

    def __init__(self, total: int, console: Console) -> None:
        self.total, self.console = total, console

    def __call__(self, outcome: Outcome, ended: Ended) -> None:
        count = len(ended.done) + len(ended.failed)
        if outcome.record is None:
            how = f"[red]failed[/red]: {escape(outcome.error or '')}"
        else:
            average = outcome.record.metrics["average_incremental_accuracy"]
            how = f"average accuracy {average:.2f} % in {duration(outcome.record.seconds)}"
        self.console.print(
            f"[{count}/{self.total}] {outcome.name}: {how}", highlight=False, soft_wrap=True
        )
