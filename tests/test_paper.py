"""The paper as data, the planning of its tables, and what is made of the records."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from rich.console import Console

from dacr.config import load_params
from dacr.errors import UserError
from dacr.experiments import identity as identities
from dacr.experiments.gains import deviation
from dacr.experiments.identity import identity
from dacr.experiments.plan import (
    Choice,
    Experiment,
    cells,
    composed,
    estimate,
    experiment_of,
    parse_seeds,
    tasks,
    to_run,
)
from dacr.experiments.records import Record, Store, _facts, read_results, write_results
from dacr.experiments.results import Results, commit_results, results_of
from dacr.experiments.tables import Paper, Table, load_paper, load_table
from dacr.experiments.worker import by_arrival
from dacr.report.charts import WIDTH, Bar, bar_chart, look
from dacr.report.html import Field
from dacr.report.table_figures import (
    METHOD_COLOURS,
    arrival_map,
    colour_of,
    mean,
    series_of,
    signed_gain,
)
from dacr.report.table_page import leading_row, render_table, with_code
from dacr.report.table_terminal import show_plan, show_results
from dacr.report.table_words import beside, scale, where
from dacr.runtime.compose import compose
from tests.chromium import Chromium, executable
from tests.legends import line_figures
from tests.paper_records import record_of

AVERAGE, FINAL = "average_incremental_accuracy", "final_accuracy"
MINI = "idigits_mini"


def printed(table: Table) -> Table:
    """The table with the paper to the letter."""
    return table.model_copy(update={"overrides": {"reading": "printed"}})


# -- the paper's numbers ----------------------------------------------------------------------


def test_the_bold_figures_of_table_1_are_its_maxima(paper: Paper) -> None:
    table = paper.table("main")
    for benchmark in ("icifar20", "idomainnet", "idigits"):
        for split in ("nc", "nd", "ncd"):
            column = table.column(AVERAGE, benchmark, split)
            assert list(column) == [
                own for own in paper.methods if not (paper.is_fair(own) or paper.is_bound(own))
            ]
            best = "ucir_dacr" if (benchmark, split) == ("idigits", "ncd") else "der_dacr"
            assert max(column, key=column.__getitem__) == best
            for host in ("ucir", "geodl", "der"):
                assert column[f"{host}_dacr"] > column[host]


@pytest.mark.parametrize(
    ("split", "row", "host", "gain"),
    [  # Sec. 4.4, "Ablation Study"
        ("ncd", "mixture", "none", 8.07),
        ("nd", "reduction", "mixture", 0.89),
        ("nd", "regularisation", "reduction", 0.76),
        ("nd", "bilevel", "regularisation", 2.07),
        ("ncd", "bilevel", "regularisation", 1.20),
    ],
)
def test_the_gains_that_the_text_names_follow_from_the_ablation(
    paper: Paper, split: str, row: str, host: str, gain: float
) -> None:
    column = paper.table("ablation").column(AVERAGE, "icifar20", split)
    assert column[row] - column[host] == pytest.approx(gain, abs=0.005)
    assert paper.rows(paper.table("ablation"), "icifar20")[row].hosts[0] == host


def test_the_final_gain_of_the_text(paper: Paper) -> None:
    column = paper.table("curves").column(FINAL, "icifar20", "ncd")
    assert column["der_dacr"] - column["der"] == pytest.approx(16.36, abs=0.005)


def test_tables_of_the_paper_agree_where_they_should(paper: Paper) -> None:
    ablation = paper.table("ablation").column(AVERAGE, "icifar20", "ncd")["bilevel"]
    assert paper.table("memory").column(AVERAGE, "icifar20", "ncd")["2000"] == ablation
    assert paper.table("delta").column(AVERAGE, "icifar20", "ncd")["0.7"] == ablation
    memory = list(paper.table("memory").column(FINAL, "icifar20", "ncd").values())
    assert memory == sorted(memory)  # "continuously improves as the memory size increases"
    counts = list(paper.table("delta").column("components_per_class", "icifar20", "ncd").values())
    assert counts == sorted(counts, reverse=True)
    for split in ("nc", "nd", "ncd"):
        forgetting = paper.table("forgetting").column("forgetting", "icifar20", split)
        assert all(forgetting[f"{h}_dacr"] > forgetting[h] for h in ("ucir", "geodl", "der"))
        seeds = paper.table("seeds")
        mean = seeds.number(AVERAGE, "icifar20", split, "der_dacr")
        spread = seeds.deviation(AVERAGE, "icifar20", split, "der_dacr")
        table_1 = paper.table("main").number(AVERAGE, "icifar20", split, "der_dacr")
        assert None not in (mean, spread, table_1)
        assert abs((mean or 0.0) - (table_1 or 0.0)) <= (spread or 0.0)


def test_imbalance_is_larger_for_der(paper: Paper) -> None:
    arrival = paper.table("imbalance").arrival["icifar20"]["ncd"]
    for name, der in arrival["der"].items():
        ours = arrival["der_dacr"][name]
        assert len(der) == len(ours) == 5
        assert der[-1] == max(der)  # "high performance on new domains and low on old ones"
        assert ours[0] > der[0]


def test_rows_of_a_grid_are_what_the_benchmark_says(paper: Paper) -> None:
    memory = paper.table("memory")
    assert list(paper.rows(memory, "icifar20")) == ["500", "1000", "1500", "2000", "2500", "3000"]
    assert list(paper.rows(memory, MINI)) == ["20", "50", "100", "150"]
    row = paper.rows(memory, MINI)["150"]
    assert row.overrides == {"method": "der_dacr", "memory.size": 150}


def test_every_method_has_a_colour_of_its_own_and_hosts_are_dashed(paper: Paper) -> None:
    assert METHOD_COLOURS.keys() == paper.methods.keys()
    assert len(set(METHOD_COLOURS.values())) == len(METHOD_COLOURS)
    for host in ("ucir", "geodl", "der"):
        drawn = [look(METHOD_COLOURS[f"{host}{kind}"])[1] for kind in ("", "_fair", "_dacr")]
        assert drawn == ["dashed", "dotted", ""]


def test_the_lines_of_all_methods_can_be_told_apart_without_colour(
    paper: Paper, store: Store
) -> None:
    charts = line_figures(
        render_table(fill(paper, store, "main"))
    )  # which compares the legends, too
    assert [len(lines) for lines in charts] == [15, 15, 15]
    for lines in charts:
        method = dict(zip(paper.methods, lines, strict=True))
        assert len({(look.shape, look.stroke) for look in lines}) == 15
        for host in ("ucir", "geodl", "der"):
            fair, ours = method[f"{host}_fair"], method[f"{host}_dacr"]
            strokes = [method[host].stroke, fair.stroke, ours.stroke]
            assert strokes == ["dashed", "dotted", ""]
            assert method[host].shape != ours.shape
    ablation = line_figures(render_table(fill(paper, store, "ablation")))
    assert [len({look.shape for look in lines}) for lines in ablation] == [6, 6, 6]
    counts = line_figures(render_table(fill(paper, store, "delta")))[-1]
    assert len(counts) == len(paper.rows(paper.table("delta"), MINI))


def test_a_number_without_a_cell_is_named(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    (conf / "paper").mkdir(parents=True)
    (conf / "paper.yaml").write_text(Path("conf/paper.yaml").read_text())
    for file in Path("conf/paper").glob("*.yaml"):
        (conf / "paper" / file.name).write_text(file.read_text())
    content = yaml.safe_load(Path("conf/paper/forgetting.yaml").read_text())
    content["paper"]["forgetting"]["icifar20"]["nd"]["replay"] = -1.0
    (conf / "paper/forgetting.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match="nd, replay belongs to no cell"):
        load_paper(conf)
    (conf / "paper/forgetting.yaml").write_text("title: [")
    with pytest.raises(UserError, match=r"forgetting.yaml cannot be read"):
        load_table(conf / "paper/forgetting.yaml")
    (conf / "paper/forgetting.yaml").write_text("titel: x")
    with pytest.raises(UserError, match=r"forgetting\.yaml"):
        load_table(conf / "paper/forgetting.yaml")


# -- planning ---------------------------------------------------------------------------------


def names(paper: Paper, table: str, **choice: list[str]) -> list[str]:
    chosen = cells(paper, paper.table(table), MINI, Choice(**choice))  # type: ignore[arg-type]
    return [experiment.name for cell in chosen for experiment in cell]


def test_the_same_experiment_serves_several_tables(paper: Paper) -> None:
    main = set(names(paper, "main"))
    assert set(names(paper, "forgetting")) < main
    assert set(names(paper, "curves")) == main
    assert len(set(names(paper, "delta")) & main) == 1  # δ as it is anyway
    assert len(set(names(paper, "memory")) & main) == 1
    assert len(set(names(paper, "ablation")) & main) == 9  # DER, the fair one, and w/ ours


def test_the_ablation_chooses_exemplars_as_bilevel_memory_does_inside(paper: Paper) -> None:
    table = paper.table("ablation")
    row = paper.rows(table, "idigits")["reduction"]
    inside = composed("idigits", "nd", "der_dacr")["memory"]["inside"]
    for own, chosen in ((table, inside), (printed(table), "random")):
        overrides = dict(experiment_of(own, row, "idigits", "nd", 1993).overrides)
        assert overrides["memory.strategy"] == chosen


def test_names_differ_where_experiments_do(paper: Paper) -> None:
    for table in paper.tables.values():
        for split in table.splits:
            seen: dict[str, object] = {}
            for key, row in paper.rows(table, "icifar20").items():
                experiment = experiment_of(table, row, "icifar20", split, 7)
                assert seen.setdefault(experiment.name, experiment) == experiment, key
                assert experiment.name.endswith("-s7")


def test_a_name_does_not_change_from_version_to_version() -> None:
    experiment = Experiment(MINI, "nd", "der", 3, (("train.threads", "1"),))
    assert experiment.name == "idigits_mini-nd-der-2a90e0-s3"
    assert experiment.command == (
        "dvc exp run -n idigits_mini-nd-der-2a90e0-s3 -S benchmark=idigits_mini -S split=nd "
        "-S method=der -S seed=3 -S train.threads=1"
    )


@pytest.mark.parametrize("table", ["ablation", "components", "memory", "delta"])
def test_planned_experiments_compose(paper: Paper, table: str, tmp_path: Path) -> None:
    """Every override exists, and one thread is always among them."""
    for cell in cells(paper, paper.table(table), MINI, Choice())[:6]:
        words = shlex.split(cell[0].command)
        compose(words[6::2], tmp_path / "params.yaml")
        assert load_params(tmp_path / "params.yaml").train.threads == 1


@pytest.mark.parametrize(
    "benchmark",  # all that have domains to bring
    sorted({p.stem for p in Path("conf/benchmark").glob("*.yaml")} - {"cifar100"}),
)
def test_the_study_of_m_has_a_schedule_on_every_benchmark(
    paper: Paper, benchmark: str, tmp_path: Path
) -> None:
    """Three sessions that bring all domains, however many there are."""
    cell = cells(paper, paper.table("components"), benchmark, Choice())[0]
    compose(cell[0].arguments, tmp_path / "params.yaml")
    params = load_params(tmp_path / "params.yaml")
    assert len(params.schedule.sessions) == 3
    each = params.schedule.domains_per_session
    assert isinstance(each, list)
    assert sum(each) == len(params.data.domains)


@pytest.mark.parametrize("benchmark", ["icifar20", "idigits", MINI, "idigits_cpu", "icifar20_cpu"])
def test_the_study_of_the_memory_has_the_benchmarks_own_size(paper: Paper, benchmark: str) -> None:
    sizes = paper.table("memory").grid.of(benchmark)  # type: ignore[union-attr]
    assert composed(benchmark, "ncd", "der_dacr")["memory"]["size"] in sizes


def test_the_ablation_switches_what_its_rows_say(paper: Paper, tmp_path: Path) -> None:
    table = printed(paper.table("ablation"))
    found = {}
    for key, row in paper.rows(table, "icifar20").items():
        experiment = experiment_of(table, row, "icifar20", "nd", 1993)
        compose(experiment.arguments, tmp_path / "params.yaml")
        params = load_params(tmp_path / "params.yaml")
        mixture = params.method == "der_dacr"
        expansion = mixture and params.mixture.components > 1 and params.reduction.enabled
        regularised = mixture and params.loss.eta > 0
        found[key] = (mixture, expansion, regularised, params.memory.strategy == "bilevel")
    assert list(found.values()) == [
        (False, False, False, False),
        (False, False, False, False),
        (True, False, False, False),
        (True, True, False, False),
        (True, True, True, False),
        (True, True, True, True),
        (False, False, False, True),
        (False, False, False, True),
    ]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"methods": ["dre"]}, "unknown method 'dre' in table main"),
        ({"splits": ["nd3"]}, "unknown split 'nd3' in table main; choose from nc, nd, ncd"),
    ],
)
def test_unknown_choices_are_one_line(
    paper: Paper, choice: dict[str, list[str]], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        names(paper, "main", **choice)


def test_unknown_tables_and_benchmarks_are_one_line(paper: Paper) -> None:
    with pytest.raises(UserError, match=r"no table 'mian'.*ablation"):
        paper.table("mian")
    with pytest.raises(UserError, match=r"unknown benchmark 'mnist'.*idigits_mini"):
        cells(paper, paper.table("main"), "mnist", Choice())


def test_seeds_are_a_number_or_a_list() -> None:
    known = [1993, 1994, 1995]
    assert parse_seeds(None, known) == []
    assert parse_seeds("2", known) == [1993, 1994]
    assert parse_seeds("11,12,11", known) == [11, 12]
    assert parse_seeds("11", known) == parse_seeds("11,", known) == [11]
    assert parse_seeds("4,", known) == [4]
    for wrong in ("0", "4", "x", "-1", "1,x", ",", "", "1,-2", "4294967296,", "4294967296"):
        with pytest.raises(UserError, match="--seeds"):
            parse_seeds(wrong, known)


# -- what is there ----------------------------------------------------------------------------


def test_what_is_done_is_not_done_again(paper: Paper, store: Store, tmp_path: Path) -> None:
    choice = Choice(methods=["der_dacr"], splits=["nd"], seeds=[1, 2, 3])
    chosen = cells(paper, paper.table("seeds"), MINI, choice)
    one, two, three = chosen[0]
    store.add(record_of(one, code=one.code))
    store.add(record_of(two, code="other"))
    store.fail(three.name, "it went wrong")
    again = Store(tmp_path / "scratch", tmp_path / "results")  # as another process finds it
    plan = tasks(paper.table("seeds"), chosen, again)
    assert [task.changed for task in plan] == [False, True, False]
    assert [task.failure for task in plan] == [None, None, "it went wrong"]
    assert [task.experiment.name for task in to_run(plan, None)] == [three.name]
    assert [task.experiment.name for task in to_run(plan, "changed")] == [two.name, three.name]
    assert len(to_run(plan, "all")) == 3
    console = Console(record=True, width=200)
    show_plan(plan, None, 2, console)
    text = console.export_text()
    assert "made with other code" in text
    assert "to run (failed before: it went wrong)" in text
    assert "2 of 3 experiments there, 1 to run" in text
    store.add(record_of(three))
    assert store.failure(three.name) is None


def test_a_damaged_record_is_measured_again(store: Store, tmp_path: Path) -> None:
    experiment = Experiment(MINI, "nd", "der", 3, ())
    store.add(record_of(experiment))
    (tmp_path / "scratch/done" / f"{experiment.name}.json").write_text('{"name": "x')
    assert Store(tmp_path / "scratch", tmp_path / "results").find(experiment.name, []) is None


def test_time_is_estimated_from_like_experiments() -> None:
    def done(split: str, method: str, seconds: float, whole: bool = True) -> Record:
        own = Experiment(MINI, split, method, 1, ())
        return record_of(own, seconds=seconds, whole=whole)

    records = [
        done("nd", "der", 100.0), done("nd", "der", 120.0), done("nd", "icarl", 10.0),
        done("ncd", "der", 999.0), done("nd", "der", 1.0, whole=False),
    ]  # fmt: skip
    assert estimate(Experiment(MINI, "nd", "der", 9, ()), records) == 110.0
    assert estimate(Experiment(MINI, "nd", "ucir", 9, ()), records) == pytest.approx(230 / 3)
    assert estimate(Experiment(MINI, "nc", "ucir", 9, ()), records) is None
    assert estimate(Experiment("idigits", "nd", "der", 9, ()), records) is None


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the configuration that a test may edit."""
    for folder in ("conf", "data/schedules"):
        shutil.copytree(folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def code_of(method: str, benchmark: str = "idigits", split: str = "nd") -> str:
    return identity.__wrapped__(benchmark, split, method)


def test_the_code_of_an_experiment_is_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The method and the sources that are asked for are those of the experiment."""
    asked = []

    def experiment_identity(method: str, sources: Sequence[str]) -> str:
        asked.append((method, list(sources)))
        return str(len(asked))

    monkeypatch.setattr(identities, "experiment_identity", experiment_identity)
    assert code_of("der") != code_of("der")  # only the answer of the code differs
    code_of("der_dacr", MINI)
    embedded = ["handwritten", "street", "blended", "rendered"]
    digits = ("der", ["mnist", "svhn", "mnist_m", "syn"])
    assert asked == [digits, digits, ("der_dacr", embedded)]


def test_the_configuration_of_an_experiment_is_its_identity(own_conf: Path) -> None:
    def changed_by(file: str, method: str, benchmark: str = "idigits") -> bool:
        before, text = code_of(method, benchmark), (own_conf / file).read_text()
        (own_conf / file).write_text(f"{text}\n# a comment\n")
        assert code_of(method, benchmark) == before or file.endswith(".csv")
        more = "\nmore: 1\n" if file.endswith(".yaml") else "\nMORE = 1\n"
        (own_conf / file).write_text(text + more)
        after = code_of(method, benchmark)
        (own_conf / file).write_text(text)
        return before != after

    assert changed_by("conf/config.yaml", "der")
    assert changed_by("conf/plugins/hydra_plugins/dacr_sessions.py", "der")
    assert changed_by("conf/method/der.yaml", "der")
    assert changed_by("conf/split/nd.yaml", "der")
    assert changed_by("conf/benchmark/idigits.yaml", "der")
    assert changed_by("conf/cpu.yaml", "der", MINI)  # idigits_mini.yaml builds upon it
    assert not changed_by("conf/cpu.yaml", "der")
    assert not changed_by("conf/method/ucir.yaml", "der")
    assert not changed_by("conf/benchmark/icifar20.yaml", "der")
    assert not changed_by("conf/split/nc.yaml", "der")
    assert not changed_by("conf/paper.yaml", "der")
    before = code_of("der")
    (own_conf / "data/schedules/mine.csv").write_text("session,class,domain\n")
    assert code_of("der") != before


@pytest.mark.parametrize(("text", "words"), [("a: [", "cannot be read"), ("", "not hold")])
def test_a_configuration_that_is_none_is_no_traceback(
    own_conf: Path, text: str, words: str
) -> None:
    (own_conf / "conf/method/der.yaml").write_text(text)
    with pytest.raises(UserError, match=words):
        code_of("der")


def test_every_experiment_on_file_is_read_and_marked_as_earlier(paper: Paper) -> None:
    """Results that were committed under another identity are shown, and said to be older."""
    for file in sorted(Path("reports/paper").glob("*.json")):
        table, benchmark = file.stem.split("-")
        results = results_of(paper, paper.table(table), benchmark, Store(Path("nowhere")))
        other = {r.name for r in results.all_records if r.code != own_code(r)}
        assert results.all_records
        assert {r.name for r in results.all_records} & results.older == other


def own_code(record: Record) -> str:
    groups = {own.name for own in Path("conf").iterdir() if own.is_dir()}
    others = tuple((key, value) for key, value in record.overrides.items() if key in groups)
    return identity(record.benchmark, record.split, record.method, others)


# -- results ----------------------------------------------------------------------------------


def fill(
    paper: Paper, store: Store, table: str, benchmark: str = MINI, seeds: Sequence[int] = (1, 2, 3)
) -> Results:
    own = paper.table(table)
    for cell in cells(paper, own, benchmark, Choice(seeds=seeds)):
        for experiment in cell:
            store.add(record_of(experiment, experiment.code))
    return results_of(paper, own, benchmark, store)


def test_means_spreads_and_gains(paper: Paper, store: Store) -> None:
    table = printed(paper.table("main"))

    def add(method: str, seed: int, value: float) -> None:
        own = experiment_of(table, paper.method_rows[method], "icifar20", "nd", seed)
        store.add(record_of(own, metrics={AVERAGE: value}))

    for seed, value in ((1, 80.0), (2, 84.0)):
        add("der_dacr", seed, value)
    for seed, value in ((2, 70.0), (3, 1.0)):
        add("der", seed, value)
    number = results_of(paper, table, "icifar20", store).number("der_dacr", "nd", AVERAGE)
    assert (number.mean, number.seeds) == (82.0, 2)
    assert number.deviation == pytest.approx(8**0.5)
    assert number.gain is not None
    assert number.gain.by_seed == {2: pytest.approx(14.0)}  # which both have
    assert (number.gain.seeds, number.gain.deviation, number.gain.interval) == (1, None, None)
    assert number.paper == 84.03
    assert number.paper_gain == pytest.approx(84.03 - 74.87)
    assert number.difference == pytest.approx(82.0 - 84.03)
    assert deviation([5.0]) is None
    add("der", 1, 68.0)
    results = results_of(paper, table, "icifar20", store)
    number = results.number("der_dacr", "nd", AVERAGE)
    assert number.gain is not None
    assert (number.gain.mean, number.gain.deviation) == (13.0, pytest.approx(2**0.5))
    assert signed_gain(number.gain, 2) == "+13.00 ± 1.41"


def test_settings_that_are_not_the_papers_are_said(paper: Paper, store: Store) -> None:
    mini = fill(paper, store, "seeds")
    real = results_of(paper, printed(paper.table("seeds")), "icifar20", store)
    assert "loss.eta 0 (paper 0.1)" in mini.other_settings
    assert "mixture.prior empirical (paper uniform)" in mini.other_settings
    assert "loss.eta 0 (paper 0.1)" in render_table(mini)
    assert (real.other_settings, real.comparable) == ([], True)
    assert "Settings that are not" not in render_table(real)
    changed = replace(real)
    changed.__dict__["other_settings"] = ["train.epochs 1 (paper 200)"]
    assert changed.number("der_dacr", "nd", AVERAGE).difference is None


def test_the_headline_is_the_benchmarks_own_setting_and_not_the_best(
    paper: Paper, store: Store
) -> None:
    leading = {}
    for table in ("main", "ablation", "departures", "delta", "memory", "components"):
        results = fill(paper, store, table, seeds=[1])
        split = results.table.splits[0]
        leading[table] = leading_row(results, split, results.table.metrics[0])
    assert leading == {
        "main": "der_dacr", "ablation": "bilevel", "departures": "ours",
        "delta": "0.5", "memory": "50", "components": "3",
    }  # fmt: skip


def test_a_method_has_its_colour_in_every_table(paper: Paper, store: Store) -> None:
    for table in (own for own in paper.tables.values() if own.splits):
        results = results_of(paper, table, MINI, store)
        own = {series_of(results, key): colour_of(results, key) for key in results.rows}
        for key, row in results.rows.items():
            if row.overrides.keys() - {axis.parameter for axis in table.along} == {"method"}:
                assert own[series_of(results, key)] == METHOD_COLOURS[row.method]
        if table.details:  # curves; where there are bars alone, labels tell the rows apart
            assert len(set(own.values())) == len(own)


def test_values_of_bars_stand_in_columns() -> None:
    rows = [Bar("a", 10.0, 1, None, 90.0), Bar("b", 0.5, 2, 0.1, None)]
    chart = ElementTree.fromstring(str(bar_chart(rows, "", digits=3).chart))
    texts = {e.text: float(e.attrib["x"]) for e in chart.iter("text")}
    assert texts["10.000"] == texts["0.500"] == texts["measured"]
    assert texts["90.000"] == texts["–"] == texts["◇ paper"] == WIDTH
    furthest = max(float(e.attrib["x"]) + float(e.attrib["width"]) for e in chart.iter("rect"))
    assert furthest < texts["measured"] - 40
    alone = bar_chart(rows[1:], "", digits=3)
    assert "paper" not in alone.chart


def test_what_others_wrote_is_no_markup(paper: Paper, store: Store) -> None:
    table = paper.table("purity")
    chosen = cells(paper, table, MINI, Choice())
    (name,) = (experiment.name for cell in chosen for experiment in cell)
    (store.scratch / "failed").mkdir(parents=True)
    (store.scratch / "failed" / name).write_bytes(b"no [/data/x] [type=int] \xff")
    console = Console(record=True, width=200)
    show_plan(tasks(table, chosen, store), None, 1, console)
    assert "no [/data/x] [type=int] \ufffd" in console.export_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"details": ["accuracy_by_sesion"]}, "details"),
        ({"grid": {"parameter": "p"}}, r"'grid.symbol' is missing; the other tables"),
        ({"grid": {"parameter": "p", "symbol": "p", "method": "m", "values": {}}}, "`default`"),
    ],
)
def test_a_table_that_cannot_work_is_one_line(
    tmp_path: Path, content: dict[str, object], words: str
) -> None:
    path = tmp_path / "own.yaml"
    own = {"title": "t", "splits": ["nd"], "metrics": [FINAL]}
    path.write_text(yaml.safe_dump(own | content))
    with pytest.raises(UserError, match=words):
        load_table(path)


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("host: mixture", "host: mixtrue", "'mixtrue', the host of reduction, is no row"),
        ("{method: der}", "{seed: 1}", "the overrides of row none name no method"),
    ],
)
def test_a_row_that_cannot_work_is_one_line(
    tmp_path: Path, right: str, wrong: str, words: str
) -> None:
    shutil.copytree("conf", tmp_path / "conf")
    table = tmp_path / "conf/paper/ablation.yaml"
    table.write_text(table.read_text().replace(right, wrong))
    with pytest.raises(UserError, match=words):
        load_paper(tmp_path / "conf")


def test_settings_are_compared_on_the_seeds_that_all_have(paper: Paper, store: Store) -> None:
    """δ = 0.6 has one seed; two more of δ = 0.55 must not look like an effect of δ."""
    table = paper.table("delta")
    rows = paper.rows(table, "icifar20")
    for key, seeds in {"0.55": (1, 2, 3), "0.6": (2,)}.items():
        for seed in seeds:
            own = experiment_of(table, rows[key], "icifar20", "ncd", seed)
            store.add(record_of(own, metrics={AVERAGE: 10.0 * seed}))
    results = results_of(paper, table, "icifar20", store)
    numbers = [results.number(key, "ncd", AVERAGE) for key in ("0.55", "0.6")]
    assert [(own.mean, own.seeds) for own in numbers] == [(20.0, 1), (20.0, 1)]
    assert len(results.all_records) == 2
    assert len(results.measured) == 4  # nothing that was measured leaves the files


def test_what_other_code_measured_is_said(paper: Paper, store: Store) -> None:
    own = Experiment("icifar20", "nd", "der", 1, (("train.threads", "1"),))
    code = own.code
    store.add(record_of(own, code))
    store.add(record_of(replace(own, seed=2), "0ther"))
    results = results_of(paper, paper.table("main"), "icifar20", store)
    assert results.older == {replace(own, seed=2).name}
    said = where(results)
    assert "1 of 2 were measured with other code or settings than the committed ones" in said
    assert "Some rows mix seeds measured with different code." in said
    assert render_table(results).count("The committed code or settings are others by now.") == 1
    store.add(record_of(replace(own, seed=2), code, started="2025-01-01T00:00:00+00:00"))
    again = results_of(paper, paper.table("main"), "icifar20", store)
    assert again.older == frozenset()  # the plan takes the committed code's record, and so do we


def test_rows_of_one_method_with_different_settings_do_not_mix(paper: Paper, store: Store) -> None:
    """The ablation's first and last row are both DER, measured with different code perhaps."""
    table = paper.table("ablation")
    for key, code in (("none", "one"), ("der_bilevel", "two")):
        row = paper.rows(table, "icifar20")[key]
        store.add(record_of(experiment_of(table, row, "icifar20", "nd", 1), code))
    assert "mix seeds" not in where(results_of(paper, table, "icifar20", store))


def test_a_grids_own_value_is_known_for_the_committed_configuration_alone(
    paper: Paper, store: Store
) -> None:
    """B = 50 is no override where 50 is the benchmark's own; measured before, it may have been
    another size under the same name."""
    table = paper.table("memory")
    for key in ("20", "50"):
        row = paper.rows(table, MINI)[key]
        store.add(record_of(experiment_of(table, row, MINI, "ncd", 1), "0lder"))
    results = results_of(paper, table, MINI, store)
    assert [results.number(key, "ncd", FINAL).seeds for key in ("20", "50")] == [1, 0]
    chosen = cells(paper, table, MINI, Choice(seeds=[1]))[:2]
    planned = tasks(table, chosen, store)
    assert [task.record is None for task in planned] == [False, True]  # the plan knows the same


def test_the_scale_names_every_setting(paper: Paper, store: Store) -> None:
    for seed, epochs in ((1, 24), (2, 12)):
        own = Experiment("icifar20", "nd", "der", seed, (("train.threads", "1"),))
        setting = record_of(own).setting | {"epochs": epochs}
        store.add(record_of(own, setting=setting))
    results = results_of(paper, paper.table("main"), "icifar20", store)
    assert "resnet8, 12 or 24 epochs per session" in scale(results)


def test_curves_of_different_lengths_have_no_mean() -> None:
    assert mean([[1.0, 2.0], [3.0, 6.0]]) == [2.0, 4.0]
    assert mean([[1.0, 2.0], [3.0]]) is None
    assert mean([]) is None


def test_every_measured_line_leads_to_its_experiments(paper: Paper, store: Store) -> None:
    results = fill(paper, store, "main")
    page = render_table(results)
    for own in results.records.values():
        for record in own:
            assert page.count(f'href="#{record.name}"') == len(results.table.metrics)
            assert page.count(f'id="{record.name}"') == 1
            assert record.command in page
    assert scale(results) in page
    assert beside(results) in page.replace("&#39;", "'")


@pytest.mark.parametrize(("kind", "needed"), [("mirror sample", 1), ("published set", 0)])
def test_images_of_a_mirror_are_part_of_the_command(
    paper: Paper, store: Store, kind: str, needed: int
) -> None:
    own = Experiment("icifar20", "nd", "der", 1, (("train.threads", "1"),))
    data = record_of(own).data | {"origins": {"cifar100": kind}}
    store.add(record_of(own, data=data))
    page = render_table(results_of(paper, paper.table("main"), "icifar20", store))
    assert page.count("It needs the same mirror (<code>DACR_MIRROR</code>).") == needed


def test_a_pair_without_test_images_has_no_accuracy() -> None:
    schedule = pd.DataFrame({"session": [1, 2], "class": [0, 0], "domain": [1, 0]})
    metrics = {"accuracy_by_pair": [{"class": 0, "domain": 0, "accuracy": 70.0}]}
    assert by_arrival(metrics, schedule, ["cat"]) == {"cat": [70.0]}


def test_numbers_of_another_benchmark_have_no_difference(paper: Paper, store: Store) -> None:
    results = fill(paper, store, "main")
    assert results.reference == "idigits"
    number = results.number("der_dacr", "nd", AVERAGE)
    assert number.paper == 97.07
    assert number.difference is None
    console = Console(record=True, width=120)
    show_results(results, console)
    text = console.export_text()
    assert "other data at another scale" in " ".join(text.split())
    assert "difference" not in text


def test_committed_results_are_enough(paper: Paper, store: Store, tmp_path: Path) -> None:
    """A fresh clone has neither scratch nor experiments, and shows the same page."""
    results = fill(paper, store, "delta")
    folder = tmp_path / "committed"
    write_results("delta", MINI, results.measured, results.table.details, folder)
    with (folder / f"delta-{MINI}.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 27
    assert float(rows[0][AVERAGE]) == results.measured[0][2].metrics[AVERAGE]
    fresh = results_of(paper, paper.table("delta"), MINI, Store(tmp_path / "nothing", folder))
    assert render_table(fresh) == render_table(results)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    write_results("delta", MINI, fresh.measured, fresh.table.details, folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    facts = json.loads((folder / f"delta-{MINI}.json").read_text())["experiments"]
    assert "metrics" not in next(iter(facts.values()))  # the numbers have one home


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "row,split\n",
        lambda text: text[:-1],  # the last number may have lost a digit
        lambda text: text[:-40],
        lambda text: text[: text.rindex(",")] + "\n",
        lambda text: text[: text.rindex(",")] + ",nan\n",
    ],
)
def test_a_damaged_file_of_results_is_one_line(
    paper: Paper, store: Store, tmp_path: Path, damage: Callable[[str], str]
) -> None:
    results = fill(paper, store, "memory")
    write_results("memory", MINI, results.measured, results.table.details, tmp_path)
    path = tmp_path / f"memory-{MINI}.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match=r"damaged .*restore both from git"):
        read_results(path.with_suffix(".json"))


def test_what_was_measured_stays_in_the_files(
    paper: Paper, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shown or not: the grid's own value is not shown when other code measured it."""
    results = fill(paper, store, "memory")
    older = replace(results, found={key: own[:1] for key, own in results.found.items()})
    monkeypatch.chdir(tmp_path)
    commit_results(results)
    commit_results(older)
    kept = read_results(Path(f"reports/paper/memory-{MINI}.json"))
    assert {record.name for record in kept} == {record.name for _, _, record in results.measured}


def test_details_serve_other_tables_but_the_large_ones() -> None:
    record = record_of(Experiment(MINI, "nd", "der", 1, ()))
    facts = _facts(record, ["accuracy_by_session"])
    assert {"purity_by_session", "accuracy_by_arrival"} < facts["details"].keys()
    assert "embedding" not in facts["details"]
    assert "embedding" in _facts(record, ["embedding"])["details"]


def test_arrival_runs_from_the_oldest_domain_to_the_newest() -> None:
    sheet = arrival_map({"a": [10.0, 20.0, 30.0], "b": [30.0]}, "x")
    assert sheet.columns == ["class", "1 oldest", "2", "3 newest"]
    rows = [row[1:] for row in sheet.rows]
    texts = [[cell.text if isinstance(cell, Field) else None for cell in row] for row in rows]
    assert texts == [["10", "20", "30"], ["30", None, None], ["20", "20", "30"]]


@pytest.mark.browser
@pytest.mark.skipif(executable() is None, reason="chromium is not installed")
def test_every_page_opens_alone_and_links_to_its_experiments(
    paper: Paper, store: Store, tmp_path: Path
) -> None:
    with Chromium(tmp_path / "profile") as browser:
        for table in paper.tables:
            page = tmp_path / f"{table}.html"
            results = fill(paper, store, table, seeds=[1, 2])
            page.write_text(render_table(results), encoding="utf-8")
            for width, dark in ((390, True), (1200, False)):
                browser.open(page, width=width, dark=dark)
                assert browser.complaints() == []
                assert browser.requests() == [page.as_uri()]
                assert browser.evaluate("document.documentElement.scrollWidth") == width
            broken = "[...document.querySelectorAll('a')].filter(a => !document.querySelector("
            broken += "CSS.escape ? '#' + CSS.escape(a.hash.slice(1)) : a.hash)).length"
            assert browser.evaluate(broken) == 0
            count = "document.querySelectorAll('details.experiment').length"
            assert browser.evaluate(count) == len(results.all_records)
            browser.evaluate("document.querySelector('table.numbers td a').click()")
            assert browser.evaluate("document.querySelectorAll('details[open]').length") == 1
            drawn = browser.evaluate("document.querySelectorAll('svg, table.grid').length")
            assert (drawn > 0) == bool(results.table.splits)


def test_a_page_says_whether_the_paper_has_its_table(paper: Paper, store: Store) -> None:
    names = ("departures", "delta")
    own, theirs = (render_table(fill(paper, store, name, seeds=[1])) for name in names)
    assert "a study that the paper does not have" in own
    assert "the paper&#39;s Table 3" in theirs or "the paper's Table 3" in theirs


def test_what_is_code_in_a_note_is_code_on_the_page() -> None:
    assert with_code("see `a<b>` & `c`") == "see <code>a&lt;b&gt;</code> &amp; <code>c</code>"


def test_composition_is_the_benchmarks_own() -> None:
    assert composed(MINI, "ncd", "der_dacr")["reduction"]["delta"] == 0.5
    as_printed = composed("idigits", "ncd", "der_dacr", "reading=printed")
    assert as_printed["reduction"]["delta"] == 0.7
