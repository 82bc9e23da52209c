"""The tables, plans and results of the paper in a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Lines

from dacr.experiments.plan import THREADS, Task, to_run
from dacr.experiments.results import Number, Results
from dacr.experiments.sweep import Ended
from dacr.experiments.tables import Paper
from dacr.experiments.worker import Outcome
from dacr.report.figures import Grid
from dacr.report.headline import decimals
from dacr.report.table_charts import arrival_grids, curve

NOTHING = "–"
PIPED = 200  # columns, where nobody has said how many


def console_of() -> Console:
    """As wide as the terminal; into a pipe or a file as wide as lines are, since nothing wraps."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED
    return console


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
        about = duration(task.seconds) if task.seconds is not None else NOTHING
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
    console.print(f"[bold]{escape(table.title)}[/bold] ({escape(source)}), on {results.benchmark}")
    for split in table.splits:
        for metric in table.metrics:
            console.print(_lines(results, split, metric))
        for detail in table.terminal:
            for lines in _detail(results, split, detail):
                console.print(lines)
    console.print("\n".join(footnotes(results)), highlight=False, markup=False)


def _lines(results: Results, split: str, metric: str) -> Lines:
    lines = _table(f"{split.upper()}, {words(metric)}", columns(results))
    for key, row in results.rows.items():
        cells = number_cells(results, results.number(key, split, metric), metric)
        lines.add_row(escape(row.label), *cells)
    return lines


def _detail(results: Results, split: str, detail: str) -> Iterable[Lines]:
    """What a page draws, in figures: a curve a row, or a map of classes and domains a row."""
    if detail == "accuracy_by_arrival":
        return [_grid(grid) for grid in arrival_grids(results, split)]
    curves = {key: own for key in results.rows if (own := curve(results, key, split, detail))}
    if not curves:
        return []
    sessions = range(1, 1 + max(map(len, curves.values())))
    lines = _table(f"{split.upper()}, {words(detail)}", list(map(str, sessions)))
    digits = decimals(detail)
    for key, own in curves.items():
        lines.add_row(escape(results.rows[key].label), *(f"{value:.{digits}f}" for value in own))
    return [lines]


def _grid(grid: Grid) -> Lines:
    lines = _table(grid.label, grid.columns)
    for name, cells in grid.rows:
        lines.add_row(escape(name), *(cell.text if cell else NOTHING for cell in cells))
    return lines


def _table(title: str, names: Sequence[str]) -> Lines:
    """A table whose first column names the rows; what is too wide is folded and never cut."""
    lines = Lines(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    lines.add_column("", no_wrap=True, overflow="fold")
    for name in names:
        lines.add_column(escape(name), justify="right", overflow="fold")
    return lines


def columns(results: Results) -> list[str]:
    gains = results.has_gains
    names = ["measured", "seeds"] + ["gain"] * gains
    if results.reference:
        names += [f"paper, {results.reference_name}"] + ["paper's gain"] * gains
        names += ["difference"] * results.comparable
    return names


def number_cells(results: Results, number: Number, metric: str) -> list[str]:
    digits, gains = decimals(metric), results.has_gains
    cells = [spread(number.mean, number.deviation, digits), str(number.seeds or NOTHING)]
    cells += [signed(number.gain, digits, number.gain_deviation)] * gains
    if results.reference:
        cells.append(spread(number.paper, number.paper_deviation, digits))
        cells += [signed(number.paper_gain, digits)] * gains
        cells += [signed(number.difference, digits)] * results.comparable
    return cells


def spread(mean: float | None, deviation: float | None, digits: int, sign: str = "") -> str:
    if mean is None:
        return NOTHING
    about = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{mean:{sign}.{digits}f}{about}"


def signed(value: float | None, digits: int, deviation: float | None = None) -> str:
    return spread(value, deviation, digits, sign="+")


def footnotes(results: Results) -> list[str]:
    """Scale, data and machine in plain words, for the terminal and the page."""
    records = results.all_records
    if not records:
        return ["Nothing was measured yet."]
    return [scale(results), where(results), beside(results), *settings(results)]


def scale(results: Results) -> str:
    records = results.all_records
    images = every(_images(record.data) for record in records)
    parts = every(_part(record.setting) for record in records)
    parts = "" if parts == "all training images" else f"{parts}; "
    setting = {
        key: every(record.setting[key] for record in records)
        for key in ("backbone", "epochs", "batch_size", "memory", "threads")
    }
    return (
        f"Run: {len(records)} experiment{'s' * (len(records) != 1)} on {results.benchmark}: "
        f"{images}; {parts}"
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
    count = setting["per_pair"]
    limited = f"{count} training images a pair" if count else "all training images"
    return limited + (", evaluated on held-out ones" if setting["validation"] else "")


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
    if results.reference == results.benchmark:
        how = "with its settings" if results.comparable else "with other settings"
        return f"The paper's numbers are of the same benchmark, {how}."
    return (
        f"The paper's numbers are those of {results.reference_name}: other data at another scale. "
        "Directions and gains may be compared, values may not."
    )


def settings(results: Results) -> list[str]:
    """In what the benchmark's configuration is not the paper's; nothing where it is."""
    if not results.other_settings:
        return []
    return [f"Settings that are not the paper's: {'; '.join(results.other_settings)}."]


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
