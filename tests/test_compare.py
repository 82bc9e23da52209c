"""``dacr compare``: what differs, by how much, and whether that is good; loud where it is void."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from dacr.errors import UserError
from dacr.evaluation.budget import NAMES
from dacr.experiments.comparison import (
    Comparison,
    Side,
    change_of,
    compare_experiments,
    direction,
    read_side,
    refuse_bounds,
    warnings_of,
    why_incomparable,
)
from dacr.experiments.reading import open_experiment
from dacr.report.cards import model_card, read_subject
from dacr.report.comparison import changes_sheet, mixture_curves, text_curves
from dacr.report.terminal import table_of
from stages import evaluate
from tests.experiment_project import call, dacr, put_under_dvc, run, save
from tests.legends import line_figures
from tests.synthetic_run import SyntheticRun

STAGES = {
    "evaluate": {
        "cmd": "true",
        "deps": ["data/benchmark/benchmark.json", "data/benchmark/index.parquet"],
        "outs": [
            {"reports/metrics.json": {"cache": False}},
            {"reports/plots": {"cache": False}},
        ],
    },
    "report": {
        "cmd": "true",
        "deps": ["reports/metrics.json"],
        "params": [
            *("seed", "method", "benchmark", "split", "data", "schedule"),
            *("memory.size", "memory.strategy", "memory.inside"),
        ],
    },
}


def lay_out(folder: Path, synthetic: SyntheticRun) -> None:
    """The run's files and its metrics."""
    for name in ("data", "runs", "reports"):
        shutil.rmtree(folder / name, ignore_errors=True)
    synthetic.write(folder)
    with chdir(folder):
        evaluate.main()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    lay_out(folder, SyntheticRun("nd", "replay"))
    put_under_dvc(folder, STAGES)
    for name, split in (("ours", "nd"), ("nc", "nc")):
        lay_out(folder, SyntheticRun(split))
        save(folder, name)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    data = params["data"] | {"benchmark": "other"}
    (folder / "params.yaml").write_text(
        yaml.safe_dump(params | {"benchmark": "other", "data": data})
    )
    save(folder, "other")
    shutil.rmtree(folder / "reports")
    run(folder, "git", "checkout", "-q", "-f", "-b", "unfinished", "main")
    run(folder, "git", "rm", "-q", "reports/metrics.json")
    run(folder, "git", "commit", "-qm", "without metrics")
    run(folder, "git", "checkout", "-q", "-f", "main")
    return folder


def compared(project: Path, a: str, b: str) -> Comparison:
    with chdir(project):
        return compare_experiments(a, b)


def test_only_what_differs_is_told_and_metrics_are_subtracted(project: Path) -> None:
    comparison = compared(project, "workspace", "ours")
    params = {name: (a, b) for name, a, b in comparison.params}
    assert params["method"] == ('"replay"', '"der_dacr"')
    assert params["memory.strategy"] == ('"random"', '"bilevel"')
    assert params["options.auxiliary"] == (None, "1.0")
    assert "options" not in params
    assert not {"seed", "split", "train.lr"} & params.keys()
    assert (comparison.incomparable, comparison.warnings) == ([], [])
    a, b = comparison.a.metrics, comparison.b.metrics
    budget = json.loads((project / "reports/budget.json").read_text())
    assert a["training_flops"] == budget["training_flops"]
    metrics = json.loads((project / "reports/metrics.json").read_text())
    assert {name: value for name, value in a.items() if name not in NAMES} == metrics
    rows = {row.name: row for row in comparison.rows if row.name not in NAMES}
    for name, row in rows.items():
        assert float(row.difference) == pytest.approx(b[name] - a[name], abs=0.005)
        assert float(row.a) == pytest.approx(a[name], abs=0.005)
        assert float(row.b) == pytest.approx(b[name], abs=0.005)
    assert b["final_accuracy"] > a["final_accuracy"]
    assert rows["final_accuracy"].verdict == "better"
    assert rows["components_per_class"].verdict == ""
    assert [row.name for row in comparison.domains] == SyntheticRun("nd").domains


def test_the_other_way_round_is_worse(project: Path) -> None:
    rows = {row.name: row for row in compared(project, "ours", "main").rows}
    assert rows["final_accuracy"].verdict == "worse"
    assert rows["final_accuracy"].difference.startswith("-")


def test_an_experiment_beside_itself_is_the_same(project: Path) -> None:
    comparison = compared(project, "ours", "ours")
    assert comparison.params == []
    assert {row.difference for row in comparison.rows} == {"0"}
    assert {row.verdict for row in comparison.rows} == {"same", ""}


@pytest.mark.parametrize(
    ("name", "a", "b", "wanted", "verdict"),
    [
        ("final_accuracy", 50.0, 51.0, "↑", "better"),
        ("forgetting", -3.0, -1.0, "↑", "better"),
        ("calibration_error", 0.1, 0.2, "↓", "worse"),
        ("components_per_class", 2.0, 3.0, "", ""),
        ("purity_single_component", 0.25, 0.5, "", ""),
        ("purity", 0.5, 0.5001, "↑", "same"),
        ("final_accuracy", None, 51.0, "↑", ""),
    ],
)
def test_the_direction_of_a_metric(
    name: str, a: float | None, b: float, wanted: str, verdict: str
) -> None:
    row = change_of(name, a, b, comparable=True)
    assert (row.wanted, row.verdict) == (wanted, verdict)
    assert direction(name) == {"↑": 1, "↓": -1, "": 0}[wanted]


def test_different_benchmarks_are_loudly_incomparable(
    project: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "new/page.html"
    call(project, "compare", "ours", "other", "--page", str(page))
    shown = capsys.readouterr().out
    assert "NOT COMPARABLE: different benchmarks (idigits_mini and other)" in shown
    assert "Not comparable:" in page.read_text()
    assert "better" not in shown.replace("is better", "")
    comparison = compared(project, "nc", "other")
    assert {row.difference for row in comparison.rows} == {""}


@contextmanager
def edited(file: Path, change: Callable[[Any], object]) -> Iterator[None]:
    """For a while the YAML of a file is what ``change`` makes of it."""
    whole = file.read_text()
    content = yaml.safe_load(whole)
    change(content)
    file.write_text(yaml.safe_dump(content))
    try:
        yield
    finally:
        file.write_text(whole)


def other_images(lock: dict[str, Any], *places: int) -> None:
    for place in places:
        lock["stages"]["evaluate"]["deps"][place]["md5"] = "0" * 32


@pytest.mark.parametrize("key", ["validation", "read_options"])
def test_other_test_images_under_the_same_name_are_incomparable(project: Path, key: str) -> None:
    value = {"validation": 0.1, "read_options": {"street": {"fold": 2}}}[key]
    with (
        edited(project / "params.yaml", lambda params: params["data"].update({key: value})),
        edited(project / "dvc.lock", lambda lock: other_images(lock, 0, 1)),
    ):
        comparison = compared(project, "main", "workspace")
    assert comparison.incomparable == [f"other test images (data.{key})"]
    assert f"changed after its numbers were made (data.{key}" in comparison.warnings[0]


def test_equal_checksums_are_the_same_images_whatever_the_parameters_say(project: Path) -> None:
    options = {"street": {"mirror": "elsewhere"}}
    with edited(
        project / "params.yaml", lambda params: params["data"].update(source_options=options)
    ):
        assert compared(project, "main", "workspace").incomparable == []


def test_a_validation_part_of_another_seed_is_incomparable(project: Path) -> None:
    """The pixels and their counts can be the same: only the index tells."""
    sides = [validated(project, seed, other) for seed, other in ((1, []), (2, [1]))]
    (reason,) = why_incomparable(*sides)
    assert "validation" in reason
    (warning,) = (line for line in warnings_of(*sides) if "sessions differ" in line)
    assert "(schedule.seed)" in warning


def validated(project: Path, seed: int, other: list[int]) -> Side:
    def validate(params: dict[str, Any]) -> None:
        params["data"]["validation"] = 0.5
        params["schedule"]["seed"] = seed

    with (
        edited(project / "params.yaml", validate),
        edited(project / "dvc.lock", lambda lock: other_images(lock, *other)),
        chdir(project),
    ):
        return read_side(open_experiment("workspace"))


def test_a_benchmark_that_was_built_from_other_images_is_incomparable(project: Path) -> None:
    with edited(project / "dvc.lock", lambda lock: other_images(lock, 0)):
        (reason,) = compared(project, "main", "workspace").incomparable
    assert "other images" in reason


def test_another_size_of_the_memory_is_told(project: Path) -> None:
    with edited(project / "params.yaml", lambda params: params["memory"].update(size=7)):
        (warning,) = compared(project, "main", "workspace").warnings
    assert "changed after its numbers were made (memory.size)" in warning


def test_an_upper_bound_beside_a_memory_is_refused(project: Path) -> None:
    side = compared(project, "workspace", "ours").a
    broken = side.params | {"method": "joint", "options": {"protocol": "broken"}}
    joint = replace(side, name="all", params=broken)
    for pair in ((side, joint), (joint, side)):
        with pytest.raises(UserError) as error:
            refuse_bounds(*pair)
        assert "all (joint) keeps every image, which breaks the protocol" in str(error.value)
        assert "workspace (replay) keeps a memory" in str(error.value)
        assert "\n" not in str(error.value)
    refuse_bounds(joint, joint)
    refuse_bounds(side, side)


def test_of_different_splits_only_the_end_is_compared(project: Path) -> None:
    comparison = compared(project, "ours", "nc")
    assert comparison.incomparable == []
    assert "split nd and nc" in comparison.warnings[0]
    rows = {row.name: row for row in comparison.rows}
    assert rows["average_incremental_accuracy"].difference == ""
    assert rows["forgetting"].verdict == ""
    assert rows["final_accuracy"].difference != ""
    assert not any(name.startswith("schedule.sessions") for name, _, _ in comparison.params)


def test_the_terminal_and_the_page_show_both_curves(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(project, "compare", "ours")
    shown = capsys.readouterr().out
    page = project / "reports/compare-ours-workspace.html"
    assert str(page) in shown.replace("\n", "")
    plot = shown[shown.index("Accuracy by session") :].split("└")[0]
    marks = [line.count("●") + line.count("○") + 2 * line.count("◉") for line in plot.splitlines()]
    assert sum(marks) == 2 * 4
    text = page.read_text()
    comparison = compared(project, "ours", "workspace")
    for side in (comparison.a, comparison.b):
        for session, accuracy in enumerate(side.metrics["accuracy_by_session"], start=1):
            assert f"<title>{side.name}, session {session}: {accuracy:.4g}</title>" in text
    accuracy, *others = line_figures(text)
    assert accuracy[0].shape != accuracy[1].shape
    assert others == [accuracy] * (len(comparison.domains) + len(("components", "purity")))
    for name in ("components_per_class", "purity"):
        for side in (comparison.a, comparison.b):
            assert f"<title>{side.name}, session 4: {side.metrics[name]:.4g}</title>" in text
    for row in comparison.domains:
        for name, value in ((comparison.a.name, row.a), (comparison.b.name, row.b)):
            assert f"<title>{name}, session 4: {float(value):.4g}</title>" in text
    for row in comparison.rows:
        assert f'data-difference="{row.name}"' in text
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_without_a_mixture_there_is_no_curve_of_it(project: Path) -> None:
    comparison = compared(project, "main", "workspace")
    assert comparison.a.curves["components"] == [(session, 1.0) for session in range(1, 5)]
    assert mixture_curves(comparison) == []


@pytest.mark.parametrize("sessions", [1, 4, 20])
@pytest.mark.parametrize("width", [40, 60, 120])
def test_the_plot_keeps_to_the_width_of_the_terminal(sessions: int, width: int) -> None:
    accuracies = {"accuracy_by_session": [99.0 - session for session in range(sessions)]}
    side = Side("a", {}, accuracies, (), [])
    lines = text_curves(Comparison(side, side, [], [], [], [], []), width).plain.splitlines()
    assert max(map(len, lines)) <= width
    (axis,) = (line.split("└")[1].split() for line in lines if "└" in line)
    numbers = [int(text) for text in axis[:-1]]
    assert numbers == list(range(1, sessions + 1))[:: numbers[1] - 1 if sessions > 1 else 1]


def test_numbers_are_whole_where_there_is_little_room(project: Path) -> None:
    rows = compared(project, "ours", "main").rows
    console = Console(width=40, file=io.StringIO())
    console.print(table_of(changes_sheet("Metrics", "metric", rows, verdicts=False)))
    shown = console.file.getvalue()
    assert all(text in shown for row in rows for text in (row.a, row.b, row.difference))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "'nothing' is no experiment"),
        (["ours", "main~9"], "'main~9' is no experiment"),
        (["unfinished"], "unfinished has no reports/metrics.json"),
        (["", "ours"], "name is empty"),
        (["ours", "\udcff"], "is no experiment"),
        (["ours", "--page", "reports/plots/x.html"], "reports/plots belongs to the pipeline"),
        (["ours", "--page", "reports"], r"ends in \.html"),
        (["ours", "--page", "params.yaml"], r"ends in \.html"),
        (["ours", "--page", "params.yaml/x.html"], "not a directory"),
        (["ours", "--page", "mine.html"], "is no page of this command"),
        (["ours", "--page", "circle.html"], "too many levels of symbolic links"),
        (["ours", "--page", f"{'x' * 300}.html"], "name too long"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    project: Path, arguments: list[str], said: str
) -> None:
    (project / "mine.html").write_text("<p>my own</p>")
    (project / "circle.html").unlink(missing_ok=True)
    (project / "circle.html").symlink_to("circle.html")
    with pytest.raises(UserError, match=said):
        call(project, "compare", *arguments)
    assert (project / "mine.html").read_text() == "<p>my own</p>"


def test_a_page_that_cannot_be_written_takes_nothing_away(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / f"x.html.{os.getpid()}.part").mkdir()  # where it is written first
    with pytest.raises(UserError, match=r"--page x\.html: is a directory"):
        call(project, "compare", "ours", "--page", "x.html")
    assert "Accuracy by session" in capsys.readouterr().out


def test_outside_of_a_project_it_is_one_line(tmp_path: Path) -> None:
    stdout, stderr = dacr(tmp_path, "compare", "main", ok=False)
    assert stdout == ""
    (line,) = stderr.splitlines()
    assert "not inside a dacr project" in line


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: json.dumps(json.loads(text) | {"accuracy_by_session": ["90", "80"]}),
        lambda text: json.dumps(json.loads(text) | {"accuracy_by_session": [90.0, math.nan]}),
        lambda text: json.dumps(json.loads(text) | {"forgetting": math.nan}),
        lambda text: "[1]",
    ],
)
def test_a_damaged_file_of_metrics_is_named(project: Path, damage: Callable[[str], str]) -> None:
    file = project / "reports/metrics.json"
    whole = file.read_text()
    file.write_text(damage(whole))
    try:
        with pytest.raises(UserError, match=r"reports/metrics\.json of workspace is damaged"):
            compared(project, "main", "workspace")
    finally:
        file.write_text(whole)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("dvc.lock", {"stages": 7}),
        ("dvc.lock", {"stages": {"evaluate": {"deps": [{"md5": "0"}]}}}),
        ("params.yaml", {"data": 3}),
        ("params.yaml", {"schedule": None}),
        ("params.yaml", {"data": {"benchmark": "b", "domains": 3}}),
    ],
)
def test_files_of_a_wrong_shape_are_named(
    project: Path, file: str, damage: dict[str, object]
) -> None:
    with (
        edited(project / file, lambda content: content.update(damage)),
        pytest.raises(UserError, match=file),
    ):
        compared(project, "main", "workspace")


def test_the_card_of_an_experiment_names_the_commit_that_it_was_started_from(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    start = run(project, "git", "rev-parse", "HEAD")[0].strip()
    ours = read_subject(open_experiment("ours"), check=True)
    assert ours.revision == start
    assert ours.params["method"] == "der_dacr"
    card = model_card(ours)
    assert f"git checkout {start[:12]}\n" in card
    assert "`dvc exp apply ours`" in card
    assert read_subject(open_experiment("main"), check=True).revision == start
