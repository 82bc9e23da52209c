"""The whole pipeline as a user runs it: real DVC, real stages, in a copy of the project."""

import json
import shutil

import pytest
import yaml

from dacr.runtime.compose import compose
from tests.tiny_project import ROOT, copy_code, run

TINY = [
    "-S", "split=two",
    "-S", "train.epochs=1",
    "-S", "train.threads=1",
    "-S", "data.sources=[handwritten,rendered]",
    "-S", "data.domains=[handwritten,rendered]",
    "-S", "data.per_pair=4",
    "-S", "memory.size=20",
    "-S", "mixture.components=2",
]  # fmt: skip

TWO_SESSIONS = """\
# @package _global_
split: two
schedule:
  split: two
  rule: table
  seed: 1993
  domain_order: listed
  domains_per_session: null
  new_classes: null
  table: data/schedules/two.csv
  sessions: ${sessions:2}
  last: ${last_session:2}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project's own files in a fresh repository, with a split of two sessions of our own."""
    folder = tmp_path_factory.mktemp("project")
    copy_code(folder)
    shutil.copy(ROOT / "params.yaml", folder)
    (folder / "conf/split/two.yaml").write_text(TWO_SESSIONS)
    rows = [f"1,{c},0" for c in range(4)] + [f"2,{c},1" for c in range(2, 6)]
    (folder / "data/schedules/two.csv").write_text("\n".join(["session,class,domain", *rows, ""]))
    run(folder, "git", "init", "-q")
    run(folder, "git", "config", "user.email", "test@example.org")
    run(folder, "git", "config", "user.name", "test")
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-qm", "start")
    return folder


@pytest.fixture(scope="module")
def experiment(project):
    """DER w/ ours on the tiny split, run once for all tests of this file."""
    return run(project, "dvc", "exp", "run", "-n", "first", "-S", "method=der_dacr", *TINY)


def lock(project):
    return yaml.safe_load((project / "dvc.lock").read_text())["stages"]


def test_an_experiment_runs_every_stage_and_leaves_all_its_outs(project, experiment):
    stages = [line.split("'")[1] for line in experiment.splitlines() if "Running stage" in line]
    sessions = ["learn@01", "consolidate@01", "learn@02", "consolidate@02"]
    assert stages[-8:-4] == sessions
    assert set(stages[-4:-1]) == {"evaluate", "measure", "budget"}
    assert stages[-1] == "report"
    assert not (project / "dvclive/dvc.yaml").exists()
    assert (project / "dvclive/metrics.json").exists()  # what was seen of the last session
    assert "dvclive" not in run(project, "git", "status", "--short")
    for name in ("state/state.json", "state/state.safetensors", "state/memory.csv"):
        assert (project / "runs/02" / name).exists()
    assert (project / "runs/02/results/predictions.parquet").exists()
    metrics = json.loads((project / "reports/metrics.json").read_text())
    assert {
        "average_incremental_accuracy", "final_accuracy", "forgetting", "accuracy_by_session",
        "components_per_class", "purity", "purity_single_component", "worst_domain_accuracy",
    } <= metrics.keys()  # fmt: skip
    assert len(metrics["accuracy_by_session"]) == 2
    assert (project / "reports/index.html").stat().st_size > 10_000


def test_what_a_stage_ran_with_is_what_the_lock_says(project, experiment):
    """The note inside an out has the inputs and parameters that DVC wrote into dvc.lock."""
    for stage, note in (("learn", "learned"), ("consolidate", "state")):
        for key in ("01", "02"):
            told = json.loads((project / f"runs/{key}/{note}/made.json").read_text())
            entry = lock(project)[f"{stage}@{key}"]
            code = f"runs/code/{stage}.json"
            deps = {dep["path"]: dep["md5"] for dep in entry["deps"]}
            assert told["stage"] == f"{stage}@{key}"
            assert told["inputs"] == {path: md5 for path, md5 in deps.items() if path != code}
            assert told["code"] == json.loads((project / code).read_text())["identity"]
            assert told["parameters"] == entry["params"]["params.yaml"]


def test_frozen_extractors_keep_their_bytes_from_session_to_session(project, experiment):
    first, second = (project / f"runs/{t}/state/extractors/01.safetensors" for t in ("01", "02"))
    assert first.read_bytes() == second.read_bytes()
    assert (project / "runs/02/state/extractors/02.safetensors").exists()


def test_memory_keeps_to_its_size_and_to_seen_images(project, experiment):
    import pandas as pd

    memory = pd.read_csv(project / "runs/02/state/memory.csv")
    assert len(memory) <= 20
    assert memory["id"].is_unique
    seen = pd.concat(
        pd.read_csv(project / f"data/split/session-{t}.csv").query("part == 'train'")
        for t in ("01", "02")
    )
    assert set(memory["id"]) <= set(seen["id"])
    assert memory.groupby("label").size().max() <= 20 // 6


def test_nothing_is_left_to_do(project, experiment):
    assert "up to date" in run(project, "dvc", "status")
    assert "Running stage" not in run(project, "dvc", "repro")


def test_a_forced_rerun_gives_the_same_bytes(project, experiment):
    before = (project / "dvc.lock").read_text()
    output = run(project, "dvc", "repro", "-f")
    assert output.count("Running stage") == 18
    assert (project / "dvc.lock").read_text() == before


def test_another_delta_does_not_train_the_first_session_again(project, experiment):
    output = run(
        project, "dvc", "exp", "run", "-n", "delta", "-S", "method=der_dacr", *TINY,
        "-S", "reduction.delta=1.9",
    )  # fmt: skip
    assert "Stage 'learn@01' didn't change" in output
    assert "Running stage 'consolidate@01'" in output
    difference = json.loads(run(project, "dvc", "params", "diff", "first", "--json"))
    assert difference["params.yaml"].keys() == {"reduction.delta"}
    assert difference["params.yaml"]["reduction.delta"]["new"] == 1.9
    assert "reports/metrics.json" in run(project, "dvc", "metrics", "diff", "first", "--json")
    run(project, "dvc", "exp", "apply", "first")
    assert "up to date" in run(project, "dvc", "status")


def test_another_size_of_the_memory_is_another_memory(project, experiment):
    """DVC's run cache overlooks keys called `size` and hands out what another size has made."""
    tiny = ["memory.size=10" if word == "memory.size=20" else word for word in TINY]
    words = ["dvc", "exp", "run", "-n", "memory", "-S", "method=der_dacr", *tiny]
    assert "Running stage 'consolidate@01'" in run(project, *words, "consolidate@01")
    rows = (project / "runs/01/state/memory.csv").read_text().splitlines()[1:]
    assert len(rows) == 8  # two of each of the four classes, where 20 have room for five
    run(project, "dvc", "exp", "apply", "first")
    assert "up to date" in run(project, "dvc", "status")


@pytest.mark.parametrize("method", sorted(p.stem for p in (ROOT / "conf/method").glob("*.yaml")))
def test_no_parameter_has_a_name_that_the_run_cache_overlooks(tmp_path, method):
    """Inside a section that a stage watches: `size` and `nfiles` are facts of files to DVC."""
    compose([f"method={method}"], tmp_path / "params.yaml")
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    watched = {name for own in stages.values() for name in own.get("do", own).get("params", [])}
    for name in watched:
        value = params
        for key in name.split("."):
            value = value[key]
        assert not names_within(value) & {"size", "nfiles"}, name


def names_within(value):
    if isinstance(value, list):
        return set().union(*map(names_within, value))
    if isinstance(value, dict):
        return set(value).union(*map(names_within, value.values()))
    return set()


def test_plots_and_dag_and_experiments_are_shown(project, experiment):
    run(project, "dvc", "plots", "show", "-o", "shown")
    page = (project / "shown/index.html").read_text()
    for title in ("Accuracy by session", "Components per class", "Losses by epoch", "Confusion"):
        assert title in page
    shutil.rmtree(project / "shown")
    assert "consolidate@02" in run(project, "dvc", "dag")
    table = run(project, "dvc", "exp", "show", "--only-changed", "--csv")
    assert "first" in table


@pytest.mark.parametrize(
    "override",
    ["train.lr=-1", "memory.strategy=clever", "trian.lr=1", "method=nothing", "+options.nothing=1"],
)
def test_a_wrong_override_is_one_line_and_loses_nothing(project, experiment, override):
    before = (project / "params.yaml").read_text()
    output = run(project, "python", "-m", "stages.params", "method=der_dacr", override, ok=False)
    assert "Traceback" not in output
    (line,) = [text for text in output.splitlines() if text.startswith("dacr:")]
    assert override.strip("+").split("=")[0].split(".")[-1] in line
    assert (project / "params.yaml").read_text() == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("data/benchmark/images.npy", "data/benchmark/images.npy"),
        ("data/benchmark/index.parquet", "data/benchmark/index.parquet"),
        ("data/split/session-02.csv", "data/split/session-02.csv"),
        ("runs/01/state/state.safetensors", "runs/01"),
        ("runs/01/state/memory.csv", "runs/01"),
        ("params.yaml", "params.yaml"),
    ],
)
def test_a_truncated_input_is_named_in_one_line(project, experiment, damage, said):
    file = project / damage
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[: len(whole) // 3])
    try:
        output = run(project, "python", "-m", "stages.learn", "02", ok=False)
        assert "Traceback" not in output
        (line,) = [text for text in output.splitlines() if text.startswith("dacr:")]
        assert said in line
    finally:
        file.unlink()
        file.write_bytes(whole)
