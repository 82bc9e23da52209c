"""A rough time for experiments that nobody ran."""

from __future__ import annotations

import pytest

from dacr.experiments import rates
from dacr.experiments.plan import Experiment, Task
from dacr.experiments.rates import Rates, with_rough_times
from dacr.experiments.records import Record, Store
from tests.paper_records import record_of

MINI = "idigits_mini"
WORK = 600.0


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No note of `dacr doctor`, and every experiment is the same work."""
    monkeypatch.setattr(rates, "read_measured", _no_note)
    monkeypatch.setattr(rates, "_training_flops", lambda experiment, records: WORK)


def _no_note() -> None:
    raise rates.UserError("none")


def done(benchmark: str, method: str, rate: float, **changes: object) -> Record:
    """A record of 100 seconds at this rate."""
    own = Experiment(benchmark, "nd", method, 1, ())
    metrics = {"average_incremental_accuracy": 1.0, "training_flops": 100 * rate}
    return record_of(own, seconds=100.0, metrics=metrics, **changes)


NEW = Experiment(MINI, "ncd", "der", 1, ())


def test_a_rate_is_that_of_the_most_alike() -> None:
    other, bench = done("idigits_cpu", "der", 1), done(MINI, "icarl", 2)
    method = done("idigits_cpu", "icarl", 4)
    assert Rates([]).seconds(NEW) is None
    assert Rates([method]).seconds(NEW) == WORK / 4  # the same network
    assert Rates([method, other]).seconds(NEW) == WORK / 1  # and the same method
    assert Rates([method, other, bench]).seconds(NEW) == WORK / 2  # the same benchmark
    same = done(MINI, "der", 3)
    assert Rates([method, other, bench, same]).seconds(NEW) == WORK / 3


def test_rates_are_of_whole_runs_of_the_same_network() -> None:
    setting = done(MINI, "der", 1).setting | {"backbone": "resnet32"}
    assert Rates([done(MINI, "der", 1, whole=False)]).seconds(NEW) is None
    assert Rates([done("icifar20", "der", 1, setting=setting)]).seconds(NEW) is None


def test_a_record_from_before_budgets_is_counted_if_its_settings_are_todays() -> None:
    own = done(MINI, "replay", 1)
    old = own.model_copy(update={"metrics": {}})
    today = rates.settings_of(rates.parameters_of(Experiment(MINI, "nd", "replay", 1, ())))
    assert Rates([old.model_copy(update={"setting": today})]).seconds(NEW) == 100.0
    other = today | {"epochs": 99}
    assert Rates([old.model_copy(update={"setting": other})]).seconds(NEW) is None


def test_the_doctors_rate_serves_where_nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    from dacr.experiments.devices import Measured

    network = rates.parameters_of(NEW).model.backbone
    found = Measured(label="this", rates={network: 6.0})
    monkeypatch.setattr(rates, "read_measured", lambda: found)
    assert Rates([]).seconds(NEW) == WORK / 6


def test_only_what_nobody_knows_gets_a_rough_time(store: Store) -> None:
    known = done(MINI, "der", 3)
    store.add(known)
    tasks = [
        Task(NEW, None, False, None, None),
        Task(NEW, None, False, None, 7.0),
        Task(NEW, known, False, None, None),
    ]
    found = with_rough_times(tasks, store)
    assert [(task.seconds, task.rough) for task in found] == [
        (WORK / 3, True), (7.0, False), (None, False),
    ]  # fmt: skip
