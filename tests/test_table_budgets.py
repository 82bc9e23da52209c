"""Budgets beside accuracies and intransigence in the tables, with records of all ages."""

from __future__ import annotations

from dataclasses import replace

from dacr.evaluation.budget import NAMES
from dacr.experiments.plan import Experiment, composed, experiment_of
from dacr.experiments.records import Record, Store
from dacr.experiments.results import Results, results_of, with_counted_budgets
from dacr.experiments.tables import Axis, Paper, Row
from dacr.report.html import Sheet
from dacr.report.table_checks import check_sheet
from dacr.report.table_figures import metric_sheet
from dacr.report.table_markdown import markdown
from dacr.report.table_page import render_table
from dacr.report.table_sizes import sheets
from tests.paper_records import record_of

MINI = "idigits_mini"
METRIC = "average_incremental_accuracy"
BUDGET = {name: 1_000_000.0 * (place + 1) for place, name in enumerate(NAMES)}
COLUMNS = ["parameters", "exemplars", "trained on", "training"]


def experiment(paper: Paper, method: str, seed: int = 11) -> Experiment:
    table = paper.table("main")
    return experiment_of(table, paper.method_rows[method], MINI, "nd", seed)


def counted(record: Record, **more: float) -> Record:
    return record.model_copy(update={"metrics": record.metrics | BUDGET | more})


def shown(results: Results, row: str) -> dict[str, object]:
    sheet = metric_sheet(results, "nd", METRIC, lambda own: str(len(own)))
    label = results.rows[row].label
    (found,) = (own for own in sheet.rows if own[0] == label)
    return dict(zip(sheet.columns, found, strict=True))


def test_older_records_alone_leave_the_table_as_it_was(paper: Paper, store: Store) -> None:
    store.add(record_of(experiment(paper, "der")))
    results = results_of(paper, paper.table("main"), MINI, store)
    assert results.budget("der", "nd") == {}
    assert not {"parameters", "training"} & shown(results, "der").keys()
    render_table(results)


def test_budgets_stand_beside_accuracies_of_any_age(paper: Paper, store: Store) -> None:
    store.add(counted(record_of(experiment(paper, "der"))))
    store.add(counted(record_of(experiment(paper, "der", 12)), parameters=3_000_000.0))
    store.add(record_of(experiment(paper, "replay")))
    results = results_of(paper, paper.table("main"), MINI, store)
    der, replay = shown(results, "der"), shown(results, "replay")
    assert [der[name] for name in COLUMNS] == ["2 M", "4 MB", "5 M", "7 MFLOP"]
    assert [replay[name] for name in COLUMNS] == ["–"] * 4
    forgetting = metric_sheet(results, "nd", "forgetting", lambda own: "")
    assert "parameters" not in forgetting.columns
    assert "7 MFLOP" in render_table(results)


def test_a_table_of_sizes_says_what_each_size_costs(paper: Paper, store: Store) -> None:
    own = composed(MINI, "ncd", "der")["memory"]["size"]
    axis = Axis(parameter="memory.size", symbol="B", values={"default": [own, 7 * own]})
    table = paper.table("scale").model_copy(update={"along": [axis]})
    assert not costs(results_of(paper, table, MINI, store))
    row = paper.rows(table, MINI)[f"der @ memory.size = {7 * own}"]
    store.add(counted(record_of(experiment_of(table, row, MINI, "ncd", 11))))
    (sheet,) = costs(results_of(paper, table, MINI, store))
    assert sheet.columns == ["", f"B = {own}", f"B = {7 * own}"]
    assert sheet.rows[0] == ["DER", "–", "1 M, 7 MFLOP"]


def costs(results: Results) -> list[Sheet]:
    return [own for own in sheets(results) if own.label == "NCD, parameters and training"]


def test_a_table_of_checks_says_what_each_row_costs(paper: Paper, store: Store) -> None:
    table = paper.table("calibration")
    rows = paper.rows(table, MINI)
    first = next(iter(rows.values()))
    assert first.split
    results = results_of(paper, table, MINI, store)
    assert "parameters" not in check_sheet(results, lambda own: "").columns
    results = replace(results, counted={(next(iter(rows)), first.split): BUDGET})
    sheet = check_sheet(results, lambda own: "")
    assert sheet.columns[-4:] == COLUMNS
    assert sheet.rows[0][-4:] == ["1 M", "4 MB", "5 M", "7 MFLOP"]
    assert sheet.rows[1][-4:] == ["–"] * 4


def test_a_markdown_table_says_what_its_accuracies_cost(paper: Paper, store: Store) -> None:
    store.add(counted(record_of(experiment(paper, "der"))))
    store.add(record_of(experiment(paper, "replay")))
    lines = markdown(results_of(paper, paper.table("main"), MINI, store), [METRIC]).splitlines()
    assert lines[0].endswith("| over | parameters | training | seeds |")
    assert [line.split(" | ")[-3:] for line in lines[2:]] == [
        ["–", "–", "1 |"],
        ["1 M", "7 MFLOP", "1 |"],
    ]


def test_budgets_of_older_records_can_be_counted(paper: Paper, store: Store) -> None:
    for method in ("replay", "der"):
        store.add(record_of(experiment(paper, method)))
    results = results_of(paper, paper.table("main"), MINI, store)
    found = with_counted_budgets(results, store)
    replay, der = (found.budget(method, "nd") for method in ("replay", "der"))
    assert replay.keys() == der.keys() == NAMES.keys()
    assert der["parameters"] == 4 * replay["parameters"]  # a network per session
    assert der["training_flops"] > replay["training_flops"] > 0
    assert found.budget("icarl", "nd") == {}  # not measured


def test_intransigence_is_the_gap_to_joint_on_the_seeds_of_both(paper: Paper, store: Store) -> None:
    table = paper.table("main")
    joint = Row(label="joint", overrides={"method": "replay"})
    results = results_of(paper, table, MINI, store)
    ours = [
        record_of(experiment(paper, "der", seed)).model_copy(
            update={"details": {"accuracy_matrix": [[90.0], [50.0, 80.0]]} if seed < 13 else {}}
        )
        for seed in (11, 12, 13)
    ]
    theirs = record_of(experiment(paper, "replay", 11)).model_copy(
        update={"details": {"accuracy_matrix": [[92.0], [91.0, 90.0]]}}
    )
    rows = {
        "der": results.rows["der"],
        "joint": joint.model_copy(update={"overrides": {"method": "joint"}}),
    }
    cells = {("der", "nd"): ours, ("joint", "nd"): [theirs]}
    whole = Results(paper, table, MINI, rows, None, cells)
    assert whole.values("der", "nd", "intransigence") == {11: (2 + 10) / 2}
    assert whole.number("der", "nd", "intransigence").seeds == 1
    assert results.values("der", "nd", "intransigence") == {}
