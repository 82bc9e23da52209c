"""Tables that hold images out, choose a group, run at several sizes, or check expected values."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from dacr.__main__ import main
from dacr.errors import UserError
from dacr.experiments import identity as identities
from dacr.experiments.identity import identity
from dacr.experiments.plan import (
    Choice,
    Experiment,
    cells,
    composed,
    effective,
    experiment_of,
    own_seeds,
    parse_seeds,
    tasks,
)
from dacr.experiments.reading import lookup
from dacr.experiments.records import Store
from dacr.experiments.results import results_of
from dacr.experiments.tables import Axis, Paper, Table, load_paper, load_table
from dacr.report.table_page import render_table
from dacr.report.table_sizes import sheets
from dacr.report.table_terminal import show_results
from dacr.report.table_words import HELD_OUT, significance
from tests.paper_records import record_of

AVERAGE, FINAL = "average_incremental_accuracy", "final_accuracy"
MINI = "idigits_mini"


def shown(results: object) -> str:
    console = Console(record=True, width=200)
    show_results(results, console)  # type: ignore[arg-type]
    return " ".join(console.export_text().split())


# -- held-out images --------------------------------------------------------------------------


def test_overrides_and_seeds_of_a_table_are_those_of_all_its_rows(paper: Paper) -> None:
    table = paper.table("reading")
    found = [own for cell in cells(paper, table, MINI, Choice()) for own in cell]
    assert {own.seed for own in found} == {11, 12, 13}
    assert not {own.seed for own in found} & set(paper.seeds)
    assert all(dict(own.overrides)["data.validation"] == "0.2" for own in found)
    assert parse_seeds("2", own_seeds(paper, table)) == [11, 12]
    assert parse_seeds("2", own_seeds(paper, paper.table("main"))) == paper.seeds[:2]


def test_a_rows_own_override_goes_before_that_of_its_table(paper: Paper) -> None:
    table = paper.table("main").model_copy(update={"overrides": {"train.epochs": 3}})
    row = paper.method_rows["der"]
    own = row.model_copy(update={"overrides": row.overrides | {"train.epochs": 4}})
    found = [dict(experiment_of(table, r, MINI, "nd", 1).overrides) for r in (row, own)]
    assert [own["train.epochs"] for own in found] == ["3", "4"]


def test_a_page_of_held_out_images_says_so(paper: Paper, store: Store) -> None:
    for name, said in (("reading", True), ("main", False)):
        table = paper.table(name)
        experiment = cells(paper, table, MINI, Choice(seeds=[11]))[0][0]
        store.add(record_of(experiment, experiment.code))
        results = results_of(paper, table, MINI, store)
        assert (HELD_OUT in render_table(results)) is said
        assert (HELD_OUT in shown(results)) is said


def test_held_out_images_are_not_the_papers_setting(paper: Paper, store: Store) -> None:
    table = paper.table("main").model_copy(update={"overrides": {"data.validation": 0.2}})
    told = results_of(paper, table, "icifar20", store).other_settings
    assert "data.validation 0.2 (paper 0)" in told


# -- groups -----------------------------------------------------------------------------------


def test_the_choice_of_a_group_counts_by_what_it_changes() -> None:
    place = MINI, "ncd", "der_dacr"
    default = composed(*place)
    other = {"printed", "recommended"} - {default["reading"]}
    assert effective({"reading": default["reading"]}, *place) == {}
    assert effective({"reading": other.copy().pop()}, *place) == {"reading": other.pop()}


def test_overrides_are_set_on_top_of_a_group() -> None:
    place = "icifar20", "ncd", "der_dacr"
    as_printed = composed(*place, "reading=printed")["reduction"]["delta"]
    assert effective({"reading": "printed", "reduction.delta": as_printed}, *place) == {
        "reading": "printed"
    }
    own = {"reading": "printed", "reduction.delta": as_printed + 0.1}
    assert effective(own, *place) == own
    found = effective({"reading": "printed", "memory.strategy": "${memory.inside}"}, *place)
    assert found["memory.strategy"] == "random"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"reading": "backwards"}, "cannot compose .*reading=backwards"),
        ({"raeding": "printed"}, "there is no parameter 'raeding'"),
    ],
)
def test_a_choice_that_does_not_exist_is_one_line(overrides: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        effective({**overrides}, MINI, "nd", "der_dacr")


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("conf", "data/schedules"):
        shutil.copytree(folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_choice_of_settings_runs_the_code_of_its_method(
    own_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def experiment_identity(method: str, sources: list[str]) -> str:
        asked.append(method)
        return "code"

    monkeypatch.setattr(identities, "experiment_identity", experiment_identity)
    fair = own_conf / "conf/method/der_fair.yaml"
    fair.write_text("# @package _global_\ndefaults: [der, _self_]\noptions: {prior: empirical}\n")

    def code(method: str, *groups: tuple[str, str]) -> str:
        return identity.__wrapped__("idigits", "nd", method, groups)

    before = code("der_fair"), code("der")
    assert asked == ["der", "der"]
    assert before[0] != before[1]
    host = own_conf / "conf/method/der.yaml"
    host.write_text(host.read_text() + "\nmore: 1\n")
    assert code("der_fair") != before[0]  # it builds upon its host
    between = code("der")
    fair.write_text(fair.read_text() + "\nmore: 1\n")
    assert code("der") == between


def test_the_file_of_a_chosen_group_is_part_of_the_identity(
    own_conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dacr.experiments.plan.identity", identity.__wrapped__)  # nothing kept
    groups = own_conf / "conf/reading"
    (groups / "mine.yaml").write_text("# @package _global_\nreading: mine\n")

    def codes() -> tuple[str, str]:
        default = Experiment("idigits", "nd", "der_dacr", 1, ())
        mine = Experiment("idigits", "nd", "der_dacr", 1, (("reading", "mine"),))
        return default.code, mine.code

    before = codes()
    (groups / "mine.yaml").write_text("# @package _global_\nreading: mine\nmore: 1\n")
    after = codes()
    assert after[0] == before[0]
    assert after[1] != before[1]
    chosen = groups / "recommended.yaml"
    chosen.write_text(chosen.read_text() + "\nmore: 1\n")
    assert codes()[0] != before[0]
    assert codes()[1] == after[1]


# -- several sizes ----------------------------------------------------------------------------


def sized(paper: Paper) -> Table:
    """DER in its three forms with two sizes of the memory, of which one is the benchmark's own."""
    own = composed(MINI, "ncd", "der")["memory"]["size"]
    axis = Axis(parameter="memory.size", symbol="B", values={"default": [own, 7 * own]})
    return paper.table("scale").model_copy(update={"along": [axis]})


def test_every_row_runs_at_every_size_beside_its_hosts(paper: Paper) -> None:
    table = sized(paper)
    small, large = table.along[0].of(MINI)
    rows = paper.rows(table, MINI)
    assert list(rows) == [
        f"{method} @ memory.size = {size}"
        for size in (small, large)
        for method in ("der", "der_fair", "der_dacr")
    ]
    ours = rows[f"der_dacr @ memory.size = {large}"]
    assert ours.label == f"DER w/ ours, B = {large}"
    assert ours.hosts == tuple(f"{own} @ memory.size = {large}" for own in ("der", "der_fair"))
    found = [dict(own.overrides) for (own,) in cells(paper, table, MINI, Choice(seeds=[1]))]
    assert ["memory.size" in own for own in found] == [False] * 3 + [True] * 3
    main_names = {c[0].name for c in cells(paper, paper.table("main"), MINI, Choice(seeds=[1]))}
    names = [c[0].name for c in cells(paper, table, MINI, Choice(seeds=[1]))]
    assert set(names[:3]) <= main_names  # the benchmark's own size is no other experiment


def test_the_trend_of_a_gain_is_paired_by_seed(paper: Paper, store: Store) -> None:
    table = sized(paper)
    gains = {0: [2.0, 3.0, 4.0], 1: [7.0, 8.5, 8.0]}
    for place, size in enumerate(table.along[0].of(MINI)):
        for method, value in (("der", 60.0), ("der_fair", 70.0), ("der_dacr", 70.0)):
            row = paper.rows(table, MINI)[f"{method} @ memory.size = {size}"]
            for seed in (0, 1, 2):
                own = experiment_of(table, row, MINI, "ncd", seed)
                plus = gains[place][seed] if method == "der_dacr" else 0.0
                metrics = {AVERAGE: value + plus, FINAL: value}
                store.add(record_of(own, own.code, metrics=metrics))
    results = results_of(paper, table, MINI, store)
    trend = results.trend("der_dacr", table.along[0], "ncd", AVERAGE)
    assert trend is not None
    assert [trend.first, trend.last] == table.along[0].of(MINI)
    assert trend.change.by_seed == pytest.approx({0: 5.0, 1: 5.5, 2: 4.0})
    assert trend.change.significant is True
    assert any("changes by +4.83" in own and "it grows" in own for own in significance(results))
    page = render_table(results)
    assert page.count('class="whisker own"') > 0
    values, differences = sheets(results)[:2]
    small, large = table.along[0].of(MINI)
    assert values.columns == ["", f"B = {small}", f"B = {large}"]
    assert [row[0] for row in values.rows] == ["DER", "DER (fair)", "DER w/ ours"]
    assert values.rows[2][1] == "73.00 ± 1.00"
    told = str(differences.rows[2][2])
    assert told.startswith("+7.83 (+5.94 … +9.73) over DER (fair)")
    # Six gains above 0 have the smallest p of six pairs, 2 of 64.
    ranks = [
        own for own in sheets(results) if own.label.startswith("All splits and sizes, gain in a")
    ]
    assert [list(row) for row in ranks[0].rows] == [
        ["DER (fair)", "+10.00", "6", "0.031"],
        ["DER w/ ours", "+5.50", "6", "0.031"],
    ]


def test_with_several_splits_a_sheet_is_a_size(paper: Paper, store: Store) -> None:
    results = results_of(paper, paper.table("exemplars"), MINI, store)
    sizes = paper.table("exemplars").along[0].of(MINI)
    own = sheets(results)[: len(sizes)]
    assert [sheet.label for sheet in own] == [
        f"B = {size}, average incremental accuracy" for size in sizes
    ]
    assert all(sheet.columns == ["", "NC", "NCD"] for sheet in own)


def test_seeds_are_shared_by_the_rows_of_one_size(paper: Paper, store: Store) -> None:
    """A row with one seed at a size says nothing about the seeds of another size."""
    table = sized(paper).model_copy(update={"rows": dict(paper.method_rows)})
    small, large = table.along[0].of(MINI)
    for key, seeds in (
        (f"der @ memory.size = {small}", (1, 2, 3)),
        (f"der_dacr @ memory.size = {small}", (2,)),
        (f"der @ memory.size = {large}", (1, 2, 3)),
    ):
        for seed in seeds:
            own = experiment_of(table, paper.rows(table, MINI)[key], MINI, "ncd", seed)
            store.add(record_of(own, own.code))
    results = results_of(paper, table, MINI, store)
    found = [
        results.number(f"der @ memory.size = {size}", "ncd", FINAL).seeds for size in (small, large)
    ]
    assert found == [1, 3]


def test_the_own_size_of_a_benchmark_counts_for_the_committed_configuration_alone(
    paper: Paper, store: Store
) -> None:
    table = sized(paper)
    chosen = cells(paper, table, MINI, Choice(seeds=[1], methods=["der"]))
    for (own,) in chosen:
        store.add(record_of(own, "0lder"))
    assert [task.record is None for task in tasks(table, chosen, store)] == [True, False]


def test_a_size_may_be_a_name_or_no_limit(paper: Paper) -> None:
    rows = paper.rows(paper.table("scale"), MINI)
    assert rows["der @ data.per_pair = all"].overrides == {"method": "der", "data.per_pair": None}
    assert rows["der @ model.backbone = resnet8"].label == "DER, network = resnet8"
    limited = Experiment("idigits", "nd", "der", 1, (("data.per_pair", "null"),))
    assert "-S data.per_pair=null" in limited.command


@pytest.mark.parametrize("benchmark", [MINI, "idigits_cpu", "icifar20_cpu", "icifar20"])
def test_the_scale_has_three_sizes_and_the_benchmarks_own(paper: Paper, benchmark: str) -> None:
    params = composed(benchmark, "ncd", "der")
    for axis in paper.table("scale").along:
        assert len(axis.of(benchmark)) >= 3
        assert lookup(params, axis.parameter) in axis.of(benchmark)


# -- expected values --------------------------------------------------------------------------


def test_the_calibration_runs_in_its_order(paper: Paper) -> None:
    table = paper.table("calibration")
    found = [own for (own,) in cells(paper, table, "icifar20", Choice())]
    places = [(own.benchmark, own.split, own.method) for own in found]
    assert places[:3] == [
        ("cifar100", "nc", "der"), ("idigits", "nc", "replay"), ("icifar20", "ncd", "der_dacr"),
    ]  # fmt: skip
    assert places[-1][2] == "geodl"
    planned = [task.experiment for task in tasks(table, [[own] for own in found], Store())]
    assert planned == list(dict.fromkeys(found))
    expected = paper.rows(table, "icifar20")
    assert all(row.expected for row in expected.values())
    main_table, average = paper.table("main"), "average_incremental_accuracy"
    for key in ("ours", "der", "ucir", "geodl"):
        row = expected[key]
        assert row.expected is not None
        assert row.expected.value == main_table.number(average, "icifar20", "ncd", row.method)


def test_what_is_measured_stands_beside_what_is_expected(paper: Paper, store: Store) -> None:
    table = paper.table("calibration")
    values = {"der_cifar100": 74.5, "replay_idigits": 80.0}
    for key, value in values.items():
        row = paper.rows(table, "icifar20")[key]
        own = experiment_of(table, row, "icifar20", row.split or "", 1993)
        store.add(record_of(own, own.code, metrics={AVERAGE: value, FINAL: value}))
    results = results_of(paper, table, "icifar20", store)
    text, page = shown(results), render_table(results)
    assert "75.40 ± 1 74.50 1 ok" in text
    assert "83.22 ± 2 80.00 1 off by -3.22" in text
    assert "to be measured" in text
    assert '<td class="better">ok</td>' in page
    assert "the first that is off: 2. Replay, off by -3.22" in page
    assert f"1 of {len(results.rows)}" in page


def test_a_table_of_its_own_benchmarks_takes_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "plan", "calibration", "--benchmark", "idigits"
    monkeypatch.setattr(sys, "argv", ["dacr", "paper", *words])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err
    assert told == "dacr: table calibration names its benchmarks itself; leave out --benchmark\n"


ROW = {"label": "a", "overrides": {"method": "der"}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"rows": {"a": ROW}}, "needs splits"),
        ({"benchmark": MINI, "rows": {"a": ROW}}, "needs splits"),
        ({"splits": ["nd"], "rows": {"a": ROW | {"split": "nc"}}}, "no row may name its own"),
        ({"splits": ["nd"], "rows": ["der"], "seeds": []}, "seeds"),
        (
            {
                "splits": ["nd"],
                "along": [{"parameter": "p", "symbol": "p", "values": {"default": [1]}}],
                "grid": {
                    "parameter": "p", "symbol": "p", "method": "m", "values": {"default": [1]},
                },
            },
            "cannot go along",
        ),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_is_one_line(
    tmp_path: Path, content: dict[str, object], words: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"title": "t", "metrics": [FINAL]} | content))
    with pytest.raises(UserError, match=words):
        load_table(path)


def test_a_host_that_is_no_method_is_named(tmp_path: Path) -> None:
    shutil.copytree("conf", tmp_path / "conf")
    file = tmp_path / "conf/paper.yaml"
    file.write_text(file.read_text().replace("fair: ucir}", "fair: ucri}"))
    with pytest.raises(UserError, match="'ucri', the host of ucir_fair, is no method there"):
        load_paper(tmp_path / "conf")
