"""``dacr predict``: the run's own answers, from any image, with the run's own parameters."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

from dacr.cli import predict as command
from dacr.data.any_image import named_images, read_image
from dacr.data.benchmark import Benchmark
from dacr.data.packing import pack_image
from dacr.errors import UserError
from dacr.experiments.reading import open_experiment
from dacr.experiments.trained import open_run
from dacr.report.predictions import CsvLines, JsonLines, Output, PrettyTable
from dacr.runtime.stage import termination_is_an_interrupt
from dacr.sessions.predict import BATCH, Prediction, Predictor, TrainedRun
from tests import tiny_pipeline
from tests.experiment_project import call, dacr, put_under_dvc, refusal, run, save

SESSION_PARAMS = ["seed", "method", "options", "augmentation", "model", "mixture"]


def stages(keys: list[str]) -> dict[str, object]:
    """The part of the pipeline's dvc.yaml that a run is found by."""
    table, summary = "data/split/session-${item}.csv", "data/benchmark/benchmark.json"
    learn = {"cmd": "true", "params": [*SESSION_PARAMS, "train"], "outs": ["runs/${item}/learned"]}
    consolidate = {
        "cmd": "true",
        "params": [*SESSION_PARAMS, "reduction", "memory.size", "memory.strategy"],
        "deps": [table],
        "outs": ["runs/${item}/state", "runs/${item}/results"],
    }
    packed = [
        f"data/benchmark/{name}" for name in ("benchmark.json", "index.parquet", "images.npy")
    ]
    schedule = {"cmd": "true", "params": ["schedule"], "outs": ["data/split/schedule.csv"]}
    split = {"cmd": "true", "deps": [summary], "outs": [table]}
    return {
        "build": {"cmd": "true", "params": ["data"], "outs": packed},
        "schedule": schedule,
        "split": {"foreach": keys, "do": split},
        "learn": {"foreach": keys, "do": learn},
        "consolidate": {"foreach": keys, "do": consolidate},
        "report": {"cmd": "true", "deps": ["data/benchmark"]},
    }


def train(folder: Path, *overrides: str) -> str:
    """A tiny run in ``folder``; the name of its last session."""
    for name in ("data", "runs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    params = tiny_pipeline.tiny_params("split=nd", *overrides)
    tiny_pipeline.run(folder, params)
    return params.schedule.last


def last_predictions(folder: Path, key: str) -> pd.DataFrame:
    table = pd.read_parquet(folder / f"runs/{key}/results/predictions.parquet")
    return table[table["session"] == table["session"].max()].set_index("id")


def write_pngs(folder: Path, ids: list[int], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    images = Benchmark.open(folder / "data/benchmark").images
    for number in ids:
        Image.fromarray(images[number]).save(out / f"{number}.png")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DER w/ ours committed as ``main``, replay saved as the experiment ``replay``."""
    folder = tmp_path_factory.mktemp("project")
    # Without reduction a class keeps several components, as after a long training.
    blocks = "mixture.normalisation=blocks"
    key = train(folder, "method=der_dacr", "reduction.enabled=false", blocks)
    write_pngs(folder, list(last_predictions(folder, key).index), folder / "pngs")
    put_under_dvc(folder, stages(["01", "02"]))
    train(folder, "method=replay", "augmentation.mean=[0.2,0.2,0.2]")
    last_predictions(folder, key).to_parquet(folder / "replay.parquet")
    save(folder, "replay")
    run(folder, "git", "checkout", "-q", "-f", "main")
    run(folder, "dvc", "checkout", "-q", "-f")
    return folder


def answers(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> pd.DataFrame:
    call(project, "predict", name, "pngs", "--csv")
    table = pd.read_csv(io.StringIO(capsys.readouterr().out), dtype={"class": "str"})
    return table.set_index(pd.Index([int(Path(image).stem) for image in table["image"]]))


def test_png_files_get_the_predictions_of_the_run(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = last_predictions(project, "02")
    for name in ("runs/02", "workspace", "main"):
        found = answers(project, name, capsys).loc[expected.index]
        assert (found["label"] == expected["predicted"]).all()
        right = expected["predicted"] == expected["label"]
        assert right.any()
        # The table has the component of the true class, so they agree where that was chosen.
        assert (found["component"] == expected["component"])[right].all()
        assert (found["class"] == [tiny_pipeline.CLASSES[i] for i in found["label"]]).all()


def test_an_experiment_is_read_from_the_cache_with_its_own_parameters(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = pd.read_parquet(project / "replay.parquet")
    before = sorted(project.rglob("*"))
    found = answers(project, "replay", capsys).loc[expected.index]
    assert (found["label"] == expected["predicted"]).all()
    # The confidence is the one that the run itself wrote down.
    np.testing.assert_allclose(found["confidence"], expected["confidence"], atol=2e-6)
    assert found["component"].isna().all()
    assert [p for p in sorted(project.rglob("*")) if ".dvc" not in p.parts] == [
        p for p in before if ".dvc" not in p.parts
    ]


def test_a_classifier_by_exemplars_predicts_the_same(tmp_path: Path) -> None:
    key = train(tmp_path, "method=icarl")
    expected = last_predictions(tmp_path, key)
    predictor = Predictor(open_run(str(tmp_path / "runs" / key), tmp_path, True), 0)
    images = Benchmark.open(tmp_path / "data/benchmark").images
    found = predictor(np.asarray(images[expected.index]))
    assert [p.label for p in found] == expected["predicted"].tolist()
    np.testing.assert_allclose([p.confidence for p in found], expected["confidence"], atol=2e-6)


def test_the_confidence_of_a_mixture_is_its_posterior(project: Path, tmp_path: Path) -> None:
    predictor = Predictor(open_run(str(project / "runs/02"), tmp_path, True), 1)
    ids = last_predictions(project, "02").index
    images = np.asarray(Benchmark.open(project / "data/benchmark").images[ids])
    head = predictor.method.head
    with torch.no_grad():
        features = predictor.method.features(
            predictor.method.augmentation.test(torch.from_numpy(images))
        )
    # Written out: every extractor's block has length 1, then the whole super-feature (two blocks).
    blocks = [block / block.norm(dim=1, keepdim=True) for block in features.chunk(2, dim=1)]
    unit = torch.cat(blocks, 1) / 2**0.5
    assert min(len(means) for means in head.components()) > 1
    memory = pd.read_csv(project / "runs/02/state/memory.csv")
    written = last_predictions(project, "02")["confidence"]
    told = predictor(images)
    np.testing.assert_allclose([p.confidence for p in told], written, atol=2e-6)
    for v, prediction in zip(unit, told, strict=True):
        shares = [
            sum(float(torch.exp(head.kappa * (mean / mean.norm()) @ v)) for mean in means)
            / len(means)
            for means in head.components()
        ]
        row = predictor.seen.index(prediction.label)
        assert prediction.components == len(head.components()[row])
        own = memory[memory["label"] == prediction.label]["component"]
        assert prediction.component_exemplars == (own == prediction.component).sum()
        assert prediction.confidence == pytest.approx(shares[row] / sum(shares), abs=1e-4)


def test_an_exemplar_is_nearest_to_itself_and_is_saved_as_it_is(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = pd.read_csv(project / "runs/02/state/memory.csv")
    write_pngs(project, memory["id"].tolist(), tmp_path / "memory")
    saved = tmp_path / "new" / "saved"
    call(
        project, "predict", "runs/02", str(tmp_path / "memory"), "--json", "--exemplars", "2",
        "--save-exemplars", str(saved),
    )  # fmt: skip
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(memory)
    label_of = memory.set_index("id")["label"]
    domain_of = Benchmark.open(project / "data/benchmark").index["domain"]
    assert domain_of[memory["id"]].nunique() > 1
    told = set()
    for line in lines:
        first, second = line["exemplars"]
        assert str(first["id"]) == Path(line["image"]).stem
        assert first["similarity"] == pytest.approx(1.0, abs=1e-4)
        assert second["similarity"] <= first["similarity"]
        assert first["label"] == label_of[first["id"]]
        assert first["class"] == tiny_pipeline.CLASSES[first["label"]]
        assert first["domain"] == tiny_pipeline.DOMAINS[domain_of[first["id"]]]
        told |= {first["id"], second["id"]}
    images = Benchmark.open(project / "data/benchmark").images
    ids = {file: int(file.stem.removeprefix("exemplar-")) for file in saved.iterdir()}
    assert set(ids.values()) == told
    for file, number in ids.items():
        assert (np.asarray(Image.open(file)) == images[number]).all()


def test_saved_exemplars_replace_nothing(project: Path, tmp_path: Path) -> None:
    one = str(next((project / "pngs").iterdir()))
    ask = ("predict", "runs/02", one, "--csv", "--exemplars", "1", "--save-exemplars")
    call(project, *ask, str(tmp_path))
    call(project, *ask, str(tmp_path))
    (saved,) = tmp_path.iterdir()
    saved.write_text("mine")
    with pytest.raises(UserError, match="exists and is another image"):
        call(project, *ask, str(tmp_path))
    assert saved.read_text() == "mine"
    with pytest.raises(UserError, match="data/benchmark belongs to the pipeline"):
        call(project, *ask, "data/benchmark/near")


def test_weights_that_are_no_numbers_are_refused(project: Path, tmp_path: Path) -> None:
    own = open_in(project, "runs/02", tmp_path)
    folder = tmp_path / "02/state"
    shutil.copytree(own.state, folder)
    file = next((folder / "extractors").iterdir())
    weights = load_file(file)
    save_file(
        {
            name: torch.full_like(w, torch.nan) if w.is_floating_point() else w
            for name, w in weights.items()
        },
        file,
    )
    with pytest.raises(UserError, match="are not all numbers"):
        Predictor(replace(own, state=folder), 0)


def test_changed_parameters_are_told_and_the_runs_own_are_used(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = answers(project, "runs/02", capsys)
    file = project / "params.yaml"
    whole = file.read_text()
    params = yaml.safe_load(whole)
    params["augmentation"]["mean"] = [0.9, 0.1, 0.9]
    params |= {"method": "replay", "options": {}}
    file.write_text(yaml.safe_dump(params))
    try:
        call(project, "predict", "workspace", "pngs", "--csv")
    finally:
        file.write_text(whole)
    told = capsys.readouterr()
    (note,) = told.err.splitlines()
    assert "other parameters" in note
    assert "augmentation.mean" in note
    assert "method" in note
    confidences = pd.read_csv(io.StringIO(told.out))["confidence"]
    assert confidences.tolist() == before["confidence"].tolist()


@contextmanager
def changed(file: Path, content: bytes) -> Iterator[None]:
    """For a while the file has other bytes; the old ones may be linked to DVC's cache."""
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.unlink()
        file.write_bytes(whole)


def test_another_size_of_the_memory_is_told(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["memory"]["size"] += 1
    with changed(project / "params.yaml", yaml.safe_dump(params).encode()):
        call(project, "predict", "runs/02", "pngs", "--csv")
    assert "than params.yaml holds (memory.size)" in capsys.readouterr().err


def test_small_numbers_as_dvc_writes_them_are_no_change(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, lock = project / "params.yaml", project / "dvc.lock"
    small = {name: yaml.safe_load(path.read_text()) for name, path in (("p", file), ("l", lock))}
    small["p"]["train"]["weight_decay"] = 1e-5
    for name, stage in small["l"]["stages"].items():
        if name.startswith("learn@"):
            stage["params"]["params.yaml"]["train"]["weight_decay"] = 1e-5
    as_dvc_has_it = yaml.safe_dump(small["l"]).replace("1.0e-05", "1e-05")
    assert "1e-05" in as_dvc_has_it
    with (
        changed(file, yaml.safe_dump(small["p"]).encode()),
        changed(lock, as_dvc_has_it.encode()),
    ):
        call(project, "predict", "runs/02", "pngs", "--csv")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", ["state.json", "extractors/01.safetensors"])
def test_a_run_that_is_not_the_locked_one_is_refused(
    project: Path, tmp_path: Path, part: str
) -> None:
    file = project / "runs/02/state" / part
    whole = file.read_bytes()
    elsewhere = project / "kept/02"
    with changed(file, whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:]):
        shutil.copytree(project / "runs/02", elsewhere)
        for name in ("runs/02", "workspace"):
            with pytest.raises(UserError, match=r"is not the one that dvc\.lock"):
                open_in(project, name, tmp_path)
    try:
        with pytest.raises(UserError, match=r"kept/02/state is not the one that dvc\.lock"):
            open_in(project, "kept/02", tmp_path)
    finally:
        shutil.rmtree(elsewhere.parent)


def open_in(project: Path, name: str, scratch: Path) -> TrainedRun:
    with chdir(project):
        return open_run(name, scratch, True)


@pytest.mark.parametrize(
    ("part", "said"),
    [("state/extractors", r"runs/02/state is not the one that dvc\.lock"), ("state", "missing")],
)
def test_a_run_without_a_part_is_refused(
    project: Path, tmp_path: Path, part: str, said: str
) -> None:
    folder = project / "runs/02" / part
    folder.rename(tmp_path / "away")
    try:
        with pytest.raises(UserError, match=said):
            open_in(project, "workspace", tmp_path)
    finally:
        (tmp_path / "away").rename(folder)


def test_a_session_without_its_state_is_refused(project: Path, tmp_path: Path) -> None:
    (project / "runs/03").mkdir()
    try:
        with pytest.raises(UserError, match=r"runs/03 is no trained run: it has no state/state"):
            open_in(project, "runs/03", tmp_path)
    finally:
        (project / "runs/03").rmdir()


@pytest.mark.parametrize(
    "rebuilt", [[], ["build"], ["split@02"]], ids=["by hand", "by build", "by split"]
)
def test_a_benchmark_that_was_built_anew_is_refused(
    project: Path, tmp_path: Path, rebuilt: list[str]
) -> None:
    """By hand, or by stages of DVC, which then locks what it built."""
    summary, lock = project / "data/benchmark/benchmark.json", project / "dvc.lock"
    other = summary.read_bytes().replace(b'"a"', b'"z"')
    old, new = (hashlib.md5(text).hexdigest() for text in (summary.read_bytes(), other))
    locked = yaml.safe_load(lock.read_text())
    for name in rebuilt:
        entry = locked["stages"][name]
        for own in (*entry.get("deps", []), *entry["outs"]):
            if own["path"].endswith(".csv"):
                own["md5"] = "0" * 32  # the session's table names other pixels
            own["md5"] = own["md5"].replace(old, new)
    with ExitStack() as stack:
        stack.enter_context(changed(lock, yaml.safe_dump(locked).encode()))
        stack.enter_context(changed(summary, other))
        for name in ("runs/02", "workspace"):
            with pytest.raises(UserError, match=f"is not the benchmark that {name} was trained"):
                open_in(project, name, tmp_path)


def test_an_experiment_that_is_nowhere_to_be_had_is_one_line(project: Path) -> None:
    cache = project / ".dvc/cache"
    cache.rename(project / "cache-away")
    try:
        with pytest.raises(UserError, match="of replay is neither in DVC's cache nor in a remote"):
            call(project, "predict", "replay", "pngs")
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        (project / "cache-away").rename(cache)


def test_a_remote_without_credentials_is_one_line(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Unable to locate credentials")

    with chdir(project):
        files = open_experiment("replay")
    monkeypatch.setattr(files._fs, "get", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Unable to locate credentials\)"):
        files.bring("runs/02/state/state.json", tmp_path)


def test_an_experiment_is_pulled_from_a_remote(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = answers(project, "replay", capsys)
    run(project, "dvc", "remote", "add", "-q", "-d", "--local", "team", str(tmp_path / "remote"))
    shutil.copytree(project / ".dvc/cache/files", tmp_path / "remote/files")
    cache = project / ".dvc/cache"
    cache.rename(project / "cache-away")
    try:
        pd.testing.assert_frame_equal(answers(project, "replay", capsys), before)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        (project / "cache-away").rename(cache)
        run(project, "dvc", "remote", "remove", "-q", "--local", "team")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "'nothing' is no experiment"),
        ("runs/00", "runs/00 has learned no class yet"),
        ("./pngs", "no trained run"),
        ("main~7", "no git revision"),
        ("runs/99", "there is no runs/99; the sessions here are runs/00, runs/01, runs/02"),
        ("", "name is empty"),
        ("x" * 300, "name too long"),
        ("\udcff", "is no experiment"),
    ],
)
def test_a_name_that_is_no_run_is_one_line(project: Path, name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        call(project, "predict", name, "pngs")


def test_outside_of_a_project_there_is_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(UserError, match="not inside a dacr project"):
        call(tmp_path, "predict", "workspace", "a.png")


def test_bad_files_are_named_and_the_others_go_on(project: Path, tmp_path: Path) -> None:
    good = next((project / "pngs").iterdir())
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "cut.png").write_bytes(good.read_bytes()[:-40])
    bomb = io.BytesIO()
    Image.new("1", (20000, 10000)).save(bomb, "PNG")
    (tmp_path / "bomb.png").write_bytes(bomb.getvalue())
    (tmp_path / "vector.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    (tmp_path / "nothing.png").touch()
    names = ["missing.png", "empty", "nothing.png", "text.png", "cut.png", "bomb.png", "vector.png"]
    paths = [str(tmp_path / name) for name in names]
    stdout, stderr = dacr(
        project, "predict", "runs/02", *paths, str(good), "--json", ok=False
    )  # fmt: skip
    (line,) = stdout.splitlines()
    assert json.loads(line)["image"] == str(good)
    *lines, last = stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == paths
    reasons = ["no such file", "no images", "is empty"]
    reasons += ["not an image", "truncated", "pixels", "not an image"]
    for told, reason in zip(lines, reasons, strict=True):
        assert reason in told
    assert last == "dacr: 7 could not be read, 1 could"


def test_a_pipe_that_closes_early_is_no_traceback(project: Path) -> None:
    command = f"{sys.executable} -m dacr predict runs/02 pngs pngs --json | head -n 1"
    stdout, stderr = run(project, "bash", "-c", command)
    assert len(stdout.splitlines()) == 1
    assert stderr == ""


def test_the_table_names_every_image(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(project, "predict", "runs/02", "pngs", "--exemplars", "0")
    shown = capsys.readouterr().out
    for file in (project / "pngs").iterdir():
        assert f"pngs/{file.name}" in shown


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_standard_input_is_an_image_or_a_list(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = sorted((project / "pngs").iterdir())[:2]
    expected = answers(project, "runs/02", capsys).loc[[int(one.stem), int(other.stem)]]
    given(monkeypatch, one.read_bytes())
    call(project, "predict", "runs/02", "-", "--json")
    line = json.loads(capsys.readouterr().out)
    assert (line["image"], line["label"]) == ("-", expected["label"].iloc[0])
    assert line["confidence"] == pytest.approx(expected["confidence"].iloc[0], abs=1e-5)
    given(monkeypatch, f"{one}\n\n{other}\n".encode())
    call(project, "predict", "runs/02", "--from-file", "-", "--csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["image"] for row in rows] == [str(one), str(other)]
    assert [int(row["label"]) for row in rows] == expected["label"].tolist()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name at least one image"),
        (["-", "-"], "only once"),
        (["-", "--from-file", "-"], "only once"),
        (["--from-file", "nowhere.txt"], "nowhere.txt: no such file"),
        (["pngs", "--exemplars", "0", "--save-exemplars", "x"], "--exemplars of at least 1"),
        (["gone.png", "x" * 300], "2 could not be read, 0 could"),
    ],
)
def test_a_wrong_question_is_refused_before_the_run_is_opened(
    project: Path, arguments: list[str], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        call(project, "predict", "nothing", *arguments)


def test_standard_input_that_gives_nothing_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="standard input is closed"):
        call(project, "predict", "runs/02", "--from-file", "-")
    with pytest.raises(UserError, match="0 could"):
        call(project, "predict", "runs/02", "-")
    given(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    with pytest.raises(UserError, match="0 could"):
        call(project, "predict", "runs/02", "-")
    said = capsys.readouterr().err
    assert "standard input is closed" in said
    assert "standard input is a terminal" in said


def test_a_list_is_cut_at_ends_of_lines_alone(project: Path, tmp_path: Path) -> None:
    good = next((project / "pngs").iterdir())
    odd = tmp_path / "a\x0bb\u2028c.png"
    shutil.copy(good, odd)
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbf" + f"{odd}\r\n{good}".encode())
    stdout, _ = dacr(project, "predict", "runs/02", "--from-file", str(tmp_path / "list"), "--json")
    assert [json.loads(line)["image"] for line in stdout.splitlines()] == [str(odd), str(good)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("late")])
def test_what_is_done_is_told_whatever_happens(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    from dacr.data import any_image as images
    from dacr.sessions import predict as predictor

    one, other = sorted((project / "pngs").iterdir())[:2]
    read = images.read_image

    def stop_at_the_other(name: str, size: int) -> np.ndarray:
        if name == str(other):
            raise error
        return read(name, size)

    monkeypatch.setattr(predictor, "BATCH", 1)
    monkeypatch.setattr(images, "read_image", stop_at_the_other)
    with pytest.raises(type(error)):
        call(project, "predict", "runs/02", str(one), str(other), "--exemplars", "0")
    assert one.name in capsys.readouterr().out


class Fake:
    """A predictor that counts what it is asked; ``while_predicting`` is called in the middle."""

    size = 8

    def __init__(self, while_predicting: Callable[[], object] = lambda: None) -> None:
        self.batches: list[int] = []
        self.while_predicting = while_predicting

    def __call__(self, images: np.ndarray) -> list[Prediction]:
        self.while_predicting()
        self.batches.append(len(images))
        return [Prediction(0, "a", 1.0, None, None, None, []) for _ in images]


def predicted(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [json.loads(line)["image"] for line in capsys.readouterr().out.splitlines()]


def ask(
    names: Iterator[str], predictor: Fake, tally: command.Tally, output: Output | None = None
) -> None:
    command._predict(names, cast(Predictor, predictor), output or JsonLines(), None, tally)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images come from nowhere: what is tested is what becomes of them."""
    from dacr.data import any_image as images

    monkeypatch.setattr(images, "read_image", lambda name, size: np.zeros((8, 8, 3), np.uint8))


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("output", [JsonLines, lambda: CsvLines(0), lambda: PrettyTable("x")])
def test_of_ten_thousand_images_one_batch_is_in_memory(
    output: Callable[[], Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told, waiting = 0, io.StringIO(), []

    def names() -> Iterator[str]:
        nonlocal asked
        for number in range(10_000):
            waiting.append(asked - len(re.findall(r"n\d{5}\b", told.getvalue())))
            if len(told.getvalue()) > 100_000:  # so that counting stays quick
                asked -= len(re.findall(r"n\d{5}\b", told.getvalue()))
                told.seek(0)
                told.truncate()
            asked += 1
            yield f"n{number:05d}"

    monkeypatch.setattr(sys, "stdout", told)
    monkeypatch.setattr(told, "reconfigure", lambda **_: None, raising=False)
    tally, predictor = command.Tally(), Fake()
    ask(names(), predictor, tally, output())
    assert max(waiting) <= BATCH
    assert tally.done == sum(predictor.batches) == 10_000


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process that was started in the background may ignore ^C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("unread", "interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_loses_no_prediction(
    capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    """It comes as a real signal: while an image is waited for, and in the middle of a batch."""

    def names() -> Iterator[str]:
        yield from map(str, range(BATCH + 100))
        os.kill(os.getpid(), number)
        yield "never read"

    tally = command.Tally()
    with termination_is_an_interrupt(), pytest.raises(KeyboardInterrupt):
        ask(names(), Fake(), tally)
    assert predicted(capsys) == [str(n) for n in range(BATCH + 100)]
    assert tally.done == BATCH + 100
    tally, predictor = command.Tally(), Fake(lambda: os.kill(os.getpid(), number))
    with termination_is_an_interrupt(), pytest.raises(KeyboardInterrupt):
        ask(map(str, range(1000)), predictor, tally)
    assert predicted(capsys) == [str(n) for n in range(BATCH)]
    assert predictor.batches == [BATCH], "no further batch is begun"


@pytest.mark.usefixtures("unread")
def test_a_closed_pipe_ends_the_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    predictor = Fake()
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(BrokenPipeError):
            ask(map(str, range(10_000)), predictor, command.Tally())
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what is left in the buffer goes there
    assert predictor.batches == [BATCH]


def test_a_list_is_read_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with open(reader) as stdin, open(writer, "wb", 0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        names = command._listed("-")
        pipe.write(b"one.png\n")
        assert next(names) == "one.png"  # although the list has no end yet
        pipe.write(b"two.png\r\n\n")
        assert next(names) == "two.png"
        pipe.write(b"x" * command.LONGEST)
        with pytest.raises(UserError, match="line 4 is too long for a name"):
            next(names)


def test_a_closed_output_is_one_line(monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(UserError, match="standard output is closed"):
        call(project, "predict", "runs/02", "pngs")


@pytest.mark.parametrize("exemplars", [0, 1])
def test_the_model_of_another_benchmark_is_refused(
    project: Path, tmp_path: Path, exemplars: int
) -> None:
    """Its labels would be told by wrong names; nothing but the memory can show it."""
    own = open_in(project, "runs/02", tmp_path)
    other = tmp_path / "benchmark"
    shutil.copytree(own.benchmark, other)
    index = pd.read_parquet(other / "index.parquet")
    index["label"] = (index["label"] + 1) % len(tiny_pipeline.CLASSES)
    (other / "index.parquet").unlink()
    index.to_parquet(other / "index.parquet", index=False)
    with pytest.raises(UserError, match="is not the benchmark that runs/02 was trained on"):
        Predictor(replace(own, benchmark=other), exemplars)


def test_a_count_that_is_none_is_told_in_words(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(project, "predict", "runs/02", "pngs", "--exemplars", "abc")
    assert "'abc' is no whole number between 0 and 100" in capsys.readouterr().err


def test_the_one_line_of_a_refusal(project: Path) -> None:
    assert "'nothing' is no experiment" in refusal(project, "predict", "nothing", "pngs")


# -- images ---------------------------------------------------------------------------------


def colours() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)


def through(tmp_path: Path, picture: Image.Image, suffix: str = ".png", **how: object) -> Path:
    path = tmp_path / f"picture{suffix}"
    picture.save(path, **how)
    return path


def test_a_plain_image_becomes_the_row_that_the_build_makes(tmp_path: Path) -> None:
    for picture in (
        Image.fromarray(colours()),
        Image.fromarray(colours()).convert("L"),
        Image.fromarray(colours()).convert("P"),
        Image.fromarray(colours()).convert("1"),
    ):
        path = through(tmp_path, picture)
        assert (read_image(str(path), 8) == pack_image(path.read_bytes(), 8)).all(), picture.mode


def test_grey_levels_of_16_bits_are_scaled(tmp_path: Path) -> None:
    grey = colours()[..., 0]
    deep = through(tmp_path, Image.fromarray(grey.astype(np.uint16) * 257))
    assert (read_image(str(deep), 8) == pack_image(grey, 8)).all()


def test_levels_of_unknown_range_are_refused(tmp_path: Path) -> None:
    path = through(tmp_path, Image.fromarray(colours()[..., 0].astype(np.float32)), ".tiff")
    with pytest.raises(UserError, match="more than 16 bits"):
        read_image(str(path), 8)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_parts_lie_on_white(tmp_path: Path, mode: str) -> None:
    solid = Image.fromarray(colours()).convert("L" if mode == "LA" else "RGB")
    picture = solid.copy()
    picture.putalpha(Image.fromarray(np.repeat([[0] * 10 + [255] * 10], 12, 0).astype(np.uint8)))
    assert picture.mode == mode
    expected = np.asarray(solid.convert("RGB")).copy()
    expected[:, :10] = 255
    found = read_image(str(through(tmp_path, picture)), 8)
    assert (found == pack_image(expected, 8)).all()


def test_a_transparent_colour_of_a_palette_lies_on_white(tmp_path: Path) -> None:
    picture = Image.fromarray(np.array([[0, 1]] * 2, dtype=np.uint8)).convert("P")
    picture.putpalette([10, 20, 30, 200, 100, 50])
    found = read_image(str(through(tmp_path, picture, transparency=0)), 2)
    assert found.tolist() == [[[255] * 3, [200, 100, 50]]] * 2


def test_a_photograph_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side: turn clockwise
    path = through(tmp_path, Image.fromarray(colours()), exif=exif)
    upright = np.ascontiguousarray(np.rot90(colours(), -1))
    assert (read_image(str(path), 8) == pack_image(upright, 8)).all()


def test_a_folder_is_searched_to_its_depth_in_order(tmp_path: Path) -> None:
    for name in ("b/deep/er/1.PNG", "b/2.jpg", "a.webp", "b/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with chdir(tmp_path):
        assert list(named_images(["b", "a.webp", "."])) == [
            "b/2.jpg", "b/deep/er/1.PNG", "a.webp", "a.webp", "b/2.jpg", "b/deep/er/1.PNG",
        ]  # fmt: skip


def test_what_cannot_be_entered_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_text("x")
    (tmp_path / "closed").mkdir()
    real = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)  # root may enter everything
    image, error = named_images([str(tmp_path)])
    assert image == str(tmp_path / "a.png")
    assert str(error) == f"{tmp_path / 'closed'}: permission denied"


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "back").symlink_to(tmp_path)
    (tmp_path / "z.png").write_text("x")
    pipe, loop, image = named_images([str(tmp_path)])
    assert str(pipe) == f"{tmp_path / 'a.png'}: not a regular file"
    assert isinstance(loop, UserError)
    assert image == str(tmp_path / "z.png")


def test_a_device_without_an_end_is_refused() -> None:
    from dacr.data import any_image as images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "MOST_BYTES", 1000)
        with pytest.raises(UserError, match="/dev/zero: larger than 1,000 bytes"):
            read_image("/dev/zero", 8)
