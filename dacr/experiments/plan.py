"""Which experiments a table needs, what they are called, and which of them are there already."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dacr.config import Params, load_params
from dacr.errors import UserError
from dacr.experiments.devices import Device
from dacr.experiments.identity import identity, is_group, once_per_folder
from dacr.experiments.images import TodaysImages, built_here, unlimited
from dacr.experiments.reading import differing, lookup
from dacr.experiments.records import Record, Store
from dacr.experiments.tables import Overrides, Paper, Row, Table, Value

if TYPE_CHECKING:
    from dacr.experiments.work import Work

LARGEST_NUMBER_OF_SEEDS = 9
THREADS = "train.threads"
ALWAYS: Overrides = {THREADS: 1}
"""One thread per experiment: the number of threads changes the last bits of a result, so the number
of jobs must not decide it."""


@dataclass(frozen=True)
class Experiment:
    """One run of the pipeline, whichever tables it serves."""

    benchmark: str
    split: str
    method: str
    seed: int
    overrides: tuple[tuple[str, str], ...]
    """What else differs from the benchmark's own configuration, as Hydra writes it, sorted."""

    @property
    def stem(self) -> str:
        """What experiments that differ in nothing but the seed have in common."""
        digest = hashlib.sha256(json.dumps(self.overrides).encode()).hexdigest()[:6]
        return f"{self.benchmark}-{self.split}-{self.method}-{digest}"

    @property
    def name(self) -> str:
        return f"{self.stem}-s{self.seed}"

    @property
    def arguments(self) -> list[str]:
        """The overrides of ``dvc exp run -S``."""
        groups = [f"{key}={getattr(self, key)}" for key in ("benchmark", "split", "method", "seed")]
        return groups + [f"{key}={value}" for key, value in self.overrides]

    @property
    def command(self) -> str:
        options = [f"-S {shlex.quote(argument)}" for argument in self.arguments]
        return " ".join(["dvc exp run -n", self.name, *options])

    @property
    def code(self) -> str:
        groups = tuple(own for own in self.overrides if is_group(own[0]))
        return identity(self.benchmark, self.split, self.method, groups)


def hydra_text(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list():
            return f"[{','.join(map(str, value))}]"
        case _:
            return str(value)


@once_per_folder
def composed(benchmark: str, split: str, method: str, *overrides: str) -> dict[str, Any]:
    """The parameters of an experiment."""
    from dacr.runtime.compose import compose

    chosen = [f"benchmark={benchmark}", f"split={split}", f"method={method}", *overrides]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "params.json"
        compose(chosen, path)
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def hydra_texts(overrides: Overrides) -> list[str]:
    return [f"{key}={hydra_text(value)}" for key, value in overrides.items()]


def effective(overrides: Overrides, benchmark: str, split: str, method: str) -> Overrides:
    """The overrides that change something: δ = 0.7 where it is so anyway is no other experiment.

    ``${memory.inside}`` stands for what the benchmark has there. The choice of a group counts by
    the parameters that it changes; the other overrides are set on top of it.
    """
    if not overrides:
        return {}
    base = composed(benchmark, split, method)
    groups = {
        key: value
        for key, value in overrides.items()
        if is_group(key)
        and any(
            name != key
            for name, *_ in differing(
                base, composed(benchmark, split, method, *hydra_texts({key: value}))
            )
        )
    }
    params = composed(benchmark, split, method, *hydra_texts(groups)) if groups else base
    try:
        plain = {
            key: lookup(params, str(value)[2:-1]) if str(value).startswith("${") else value
            for key, value in overrides.items()
            if not is_group(key)
        }
        changed = {key: value for key, value in plain.items() if lookup(params, key) != value}
    except KeyError as error:
        raise UserError(f"there is no parameter {error}; correct it in conf/paper/") from None
    return groups | changed


def experiment_of(table: Table, row: Row, benchmark: str, split: str, seed: int) -> Experiment:
    where = row.benchmark or benchmark
    own = {key: value for key, value in row.overrides.items() if key != "method"}
    own = table.overrides | own | table.benchmark_overrides.get(where, {})
    changed = effective(own, where, split, row.method) | ALWAYS
    texts = tuple(sorted((key, hydra_text(value)) for key, value in changed.items()))
    return Experiment(where, split, row.method, seed, texts)


@dataclass(frozen=True)
class Choice:
    """The part of a table that the user asks for; empty means all."""

    methods: Sequence[str] = ()
    splits: Sequence[str] = ()
    seeds: Sequence[int] = ()


def _check(chosen: Iterable[str], known: Sequence[str], what: str, where: str) -> None:
    for name in chosen:
        if name not in known:
            raise UserError(f"unknown {what} {name!r} {where}; choose from {', '.join(known)}")


def check_benchmark(benchmark: str) -> None:
    known = sorted(path.stem for path in Path("conf/benchmark").glob("*.yaml"))
    _check([benchmark], known, "benchmark", "in conf/benchmark")


def own_seeds(paper: Paper, table: Table) -> list[int]:
    """The seeds that a table names, or may take from."""
    return table.seeds if isinstance(table.seeds, list) else paper.seeds


def cells(paper: Paper, table: Table, benchmark: str, choice: Choice) -> list[list[Experiment]]:
    """Every cell of the part of ``table`` that is asked for: the experiments over the seeds."""
    places = paper.rows_by_split(table, benchmark)
    for _, _, row in places:
        check_benchmark(row.benchmark or benchmark)
    methods = list(dict.fromkeys(row.method for _, _, row in places))
    splits = list(dict.fromkeys(split for split, _, _ in places))
    _check(choice.methods, methods, "method", f"in table {table.name}")
    _check(choice.splits, splits, "split", f"in table {table.name}")
    named = own_seeds(paper, table)
    seeds = choice.seeds or (named if isinstance(table.seeds, list) else named[: table.seeds])
    return [
        [experiment_of(table, row, benchmark, split, seed) for seed in seeds]
        for split, _, row in places
        if not choice.splits or split in choice.splits
        if not choice.methods or row.method in choice.methods
    ]


def parse_seeds(text: str | None, known: Sequence[int]) -> list[int]:
    """``3``: the first three that are known; ``11,12`` or ``11``: these. None: the table's own.

    A number below ten is never a seed of one's own, unless a comma follows: it may be a mistake.
    """
    if text is None:
        return []
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise UserError(f"--seeds {text}: give a number of seeds, or seeds with commas") from None
    if "," in text or numbers[:1] > [LARGEST_NUMBER_OF_SEEDS]:
        if not numbers or not all(0 <= number < 2**32 for number in numbers):
            raise UserError(f"--seeds {text}: seeds are numbers from 0 to 2³² − 1")
        return list(dict.fromkeys(numbers))
    if not numbers or not 1 <= numbers[0] <= len(known):
        raise UserError(
            f"--seeds {text}: conf/ names {len(known)} seeds ({', '.join(map(str, known))}); "
            f"ask for 1 to {len(known)}, or name your own: --seeds 11, --seeds 11,12, --seeds 4,"
        )
    return list(known[: numbers[0]])


@dataclass(frozen=True)
class Task:
    """An experiment of the plan, with what is known about it."""

    experiment: Experiment
    record: Record | None
    changed: bool
    """It was measured, but with other code or configuration than the committed one."""
    failure: str | None
    seconds: float | None
    """How long it will take, from earlier experiments or on a device."""
    work: Work | None = None
    """What it takes, where that was counted."""
    elsewhere: Record | None = None
    """It was measured, but on other images than today's."""
    rough: bool = False
    """``seconds`` is its counted work at the rate of other experiments."""


def counts(record: Record, table: Table, experiment: Experiment) -> bool:
    """Whether a record of the experiment's name is one of its row.

    Where the value that makes the row is the configuration's own, the name does not tell it:
    measured under another configuration, it may have been another value.
    """
    varied = table.varied(experiment.method)
    if not varied or record.code == experiment.code:
        return True
    return not varied.isdisjoint(dict(experiment.overrides))


def tasks(table: Table, chosen: Sequence[Sequence[Experiment]], store: Store) -> list[Task]:
    """Each experiment once, seed by seed, so that the first seed of the table is whole early."""
    ordered = [experiment for seed in zip(*chosen, strict=True) for experiment in seed]
    timed, today = list(store.records()), todays_images(ordered, store)
    found = []
    for experiment in dict.fromkeys(ordered):
        name, code = experiment.name, experiment.code
        record = store.find(name, table.details, code, today.include)
        if record and not counts(record, table, experiment):
            record = None
        elsewhere = store.find(name, table.details, code, lambda r: not today.include(r))
        changed = record is not None and record.code != code
        failure, seconds = store.failure(name), estimate(experiment, timed)
        found.append(
            Task(
                experiment,
                record,
                changed,
                failure,
                seconds,
                elsewhere=None if record else elsewhere,
            )
        )
    return found


def todays_images(experiments: Iterable[Experiment], store: Store) -> TodaysImages:
    """The images that a run here would use: those in data/ where they are an experiment's."""
    built = built_here()
    asked = next((own for own in experiments if built and own.benchmark == built.name), None)
    if built and asked:
        data = composed(asked.benchmark, asked.split, asked.method)["data"]
        if unlimited(data) == built.data:
            return TodaysImages(store.every(), built.images)
    return TodaysImages(store.every())


def estimate(experiment: Experiment, records: Iterable[Record]) -> float | None:
    """Mean seconds of whole runs on the same benchmark and split, of the same method if any was."""
    like = [r for r in records if r.whole and r.benchmark == experiment.benchmark]
    like = [r for r in like if r.split == experiment.split]
    same = [r for r in like if r.method == experiment.method] or like
    return sum(r.seconds for r in same) / len(same) if same else None


@once_per_folder
def parameters_of(experiment: Experiment) -> Params:
    """All parameters of an experiment, its overrides included."""
    from dacr.runtime.compose import compose

    with TemporaryDirectory() as folder:
        path = Path(folder) / "params.yaml"
        compose(experiment.arguments, path)
        return load_params(path)


def on_device(planned: Iterable[Task], device: Device, store: Store) -> list[Task]:
    """The same tasks with their counted work, and the time that it takes on a device."""
    from dacr.experiments.work import images_of, work_of  # needs torch

    known: dict[str, Work] = {}
    found, records = [], list(store.records())
    for task in planned:
        stem = task.experiment.stem
        if stem not in known:  # all seeds do the same work
            params = parameters_of(task.experiment)
            known[stem] = work_of(params, images_of(params.data, records))
        work = known[stem]
        seconds = work.flops / device.rate(work.backbone, work.precision)
        found.append(replace(task, seconds=seconds, work=work))
    return found


def to_run(planned: Iterable[Task], redo: str | None) -> list[Task]:
    """What is missing; with ``redo`` also what other code measured ("changed"), or everything."""
    return [
        task
        for task in planned
        if task.record is None or redo == "all" or (redo == "changed" and task.changed)
    ]
