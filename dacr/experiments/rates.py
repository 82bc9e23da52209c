"""How long an experiment takes that nobody ran: its counted work, at the rate of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dacr.config import Params
from dacr.errors import UserError
from dacr.experiments.devices import read_measured
from dacr.experiments.plan import Experiment, Task, parameters_of
from dacr.experiments.records import Record, Store

SAMPLES = 3
"""Records that a rate is taken from, the latest; those from before budgets cost half a second."""
FLOPS = "training_flops"


def with_rough_times(planned: Iterable[Task], store: Store) -> list[Task]:
    """The same tasks; those that are to run and of which nothing is known with a rough time."""
    rates = Rates(list(store.records()))
    return [
        replace(task, seconds=seconds, rough=True)
        if task.record is None
        and task.seconds is None
        and (seconds := rates.seconds(task.experiment)) is not None
        else task
        for task in planned
    ]


class Rates:
    """FLOP per second of the experiments that ran from beginning to end."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records
        whole = [record for record in records if record.whole and record.seconds > 0]
        self._whole = sorted(whole, key=lambda record: record.started, reverse=True)
        self._flops: dict[str, float | None] = {}
        self._rates: dict[tuple[str, str, str], float | None] = {}

    def seconds(self, experiment: Experiment) -> float | None:
        """None where its work cannot be counted, or nothing of its network ran here."""
        flops = self._counted(experiment)
        if flops is None:
            return None
        backbone = parameters_of(experiment).model.backbone
        key = experiment.benchmark, experiment.method, backbone
        if key not in self._rates:
            self._rates[key] = self._rate(*key)
        rate = self._rates[key]
        return None if rate is None else flops / rate

    def _counted(self, experiment: Experiment) -> float | None:
        """The work of training; all seeds do the same."""
        stem = experiment.stem
        if stem not in self._flops:
            self._flops[stem] = _training_flops(experiment, self._records)
        return self._flops[stem]

    def _rate(self, benchmark: str, method: str, backbone: str) -> float | None:
        """Of the experiments that are most alike: overheads differ by benchmark and by method."""
        for alike in _likeness(benchmark, method, backbone):
            found = [(flops, r.seconds) for r, flops in self._known(alike)]
            if found:
                return sum(flops for flops, _ in found) / sum(seconds for _, seconds in found)
        try:
            return read_measured().rates.get(backbone)
        except UserError:
            return None

    def _known(self, alike: Callable[[Record], bool]) -> Iterator[tuple[Record, float]]:
        for record in list(filter(alike, self._whole))[:SAMPLES]:
            flops = record.metrics.get(FLOPS) or self._recounted(record)
            if flops:
                yield record, flops

    def _recounted(self, record: Record) -> float | None:
        """Of a record that is older than budgets, if today's parameters are still its own."""
        overrides = tuple(sorted(record.overrides.items()))
        own = Experiment(record.benchmark, record.split, record.method, record.seed, overrides)
        try:
            same = settings_of(parameters_of(own)).items() <= record.setting.items()
        except UserError:  # a parameter that is gone
            return None
        return self._counted(own) if same else None


def settings_of(params: Params) -> dict[str, object]:
    """What the time depends on, as a record keeps it."""
    return {
        "backbone": params.model.backbone,
        "epochs": params.train.epochs,
        "memory": params.memory.size,
        "sessions": len(params.schedule.sessions),
    }


def _likeness(benchmark: str, method: str, backbone: str) -> list[Callable[[Record], bool]]:
    """From the most to the least alike."""
    return [
        lambda r: (r.benchmark, r.method) == (benchmark, method),
        lambda r: r.benchmark == benchmark,
        lambda r: (r.setting.get("backbone"), r.method) == (backbone, method),
        lambda r: r.setting.get("backbone") == backbone,
    ]


def _training_flops(experiment: Experiment, records: list[Record]) -> float | None:
    from dacr.experiments.budget import counted  # needs torch
    from dacr.experiments.work import images_of

    try:
        params = parameters_of(experiment)
        return float(counted(params, images_of(params.data, records))[FLOPS])
    except UserError:  # nobody knows how many images it has
        return None
