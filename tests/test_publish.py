"""Cards, published models and further measures of a real, tiny run."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from dacr.__main__ import parse
from dacr.config import load_params
from dacr.data.benchmark import Benchmark
from dacr.data.terms import TERMS, UNKNOWN, terms_of
from dacr.errors import UserError
from dacr.evaluation.budget import NAMES, read_budget
from dacr.experiments.publishing import MANIFEST, SUMMARY, UNFINISHED, Place, is_published
from dacr.experiments.reading import Workspace
from dacr.experiments.transfer import joint_rows, measures_of, with_forward
from stages import budget, evaluate, measure
from tests import tiny_pipeline
from tests.test_sharing import CREDENTIALS, bucket_client


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two sessions: what ``dvc repro`` leaves, without DVC."""
    folder = tmp_path_factory.mktemp("project")
    tiny_pipeline.run(folder, tiny_pipeline.tiny_params("split=nd", "method=der_dacr"))
    (folder / "dvc.yaml").write_text("stages: {}\n")
    (folder / "reports").mkdir()
    with chdir(folder):
        evaluate.main()
        measure.main()
        budget.main()
    return folder


@pytest.fixture
def image(project: Path, tmp_path: Path) -> Path:
    images = Benchmark.open(project / "data/benchmark").images
    Image.fromarray(images[0]).save(tmp_path / "image.png")
    return tmp_path / "image.png"


@pytest.fixture
def inside(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(project)
    return project


def dacr(*words: str) -> str:
    """What a command says, in this process, which has everything imported already."""
    said = io.StringIO()
    parsed = parse(words)
    with redirect_stdout(said):
        parsed.run(parsed)
    return said.getvalue()


def refusal(*words: str) -> str:
    with pytest.raises(UserError) as error:
        dacr(*words)
    return str(error.value)


# -- budget -----------------------------------------------------------------------------------


def test_the_budget_is_what_the_run_did_and_left(project: Path) -> None:
    found = read_budget(project / "reports")
    notes = [
        json.loads(p.read_text()) for p in sorted(project.glob("runs/*/provenance-learn.json"))
    ]
    assert [own["images_trained"] for own in found["by_session"]] == [n["images"] for n in notes]
    assert found["images_trained"] == sum(note["images"] for note in notes)
    state = project / "runs/02/state"
    assert found["exemplars"] == len((state / "memory.csv").read_text().splitlines()) - 1
    size = load_params(project / "params.yaml").data.image_size
    assert found["exemplar_bytes"] == found["exemplars"] * 3 * size * size
    stored = sum(file.stat().st_size for file in state.rglob("*.safetensors"))
    assert 0.8 * stored < found["model_bytes"] <= stored  # files have headers, too
    assert 0 < 4 * found["parameters"] < found["model_bytes"]
    assert [own["extractors"] for own in found["by_session"]] == [1, 2]  # DER grows
    assert found["prediction_flops"] * 2 < found["training_flops"]
    assert all(isinstance(found[name], int) for name in NAMES)


def test_a_budget_without_a_state_is_one_line(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/runs/02/state")
    with chdir(tmp_path / "run"), pytest.raises(UserError, match="dvc repro consolidate"):
        budget.main()


# -- further measures -------------------------------------------------------------------------


def test_forward_fills_the_upper_triangle(inside: Path) -> None:
    files = Workspace(inside)
    before = measures_of(files)
    after = with_forward(before, files)
    first, second = after["accuracy_matrix"]
    assert [first[:1], second] == before["accuracy_matrix"]
    assert after["forward_accuracy"] == pytest.approx(first[1], abs=1e-4)
    # ND: all four classes are known after session 1, so that a guess is right in one of four.
    assert after["forward_transfer"] == pytest.approx(first[1] - 25.0, abs=1e-4)


def test_a_run_without_measures_is_measured(inside: Path, tmp_path: Path) -> None:
    shutil.copytree(inside, tmp_path / "old")
    (tmp_path / "old/reports/measures.json").unlink()
    assert measures_of(Workspace(tmp_path / "old")) == measures_of(Workspace(inside))


def test_intransigence_is_against_a_joint_run(inside: Path, tmp_path: Path) -> None:
    matrix = measures_of(Workspace(inside))["accuracy_matrix"]
    joint = tmp_path / "joint.json"
    joint.write_text(json.dumps({"accuracy_matrix": [[100.0], [0.0, 100.0]]}))
    shown = json.loads(dacr("measure", "--joint", str(joint), "--json"))
    expected = 100.0 - (matrix[0][0] + matrix[1][1]) / 2
    assert shown["intransigence"] == pytest.approx(expected, abs=1e-3)
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"method": "joint", "details": {"accuracy_matrix": [[1.0]]}}))
    assert joint_rows(str(record), Workspace(inside)) == [[1.0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        ("{", "has no accuracy_matrix"),
        ('{"accuracy_by_session": []}', "has no accuracy_matrix"),
        ('{"method": "replay", "details": {"accuracy_matrix": [[1.0]]}}', "no joint training"),
        ('{"accuracy_matrix": [[1.0]]}', "different numbers of sessions"),
    ],
)
def test_what_is_no_joint_run_is_refused(
    inside: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "joint.json").write_text(content)
    assert message in refusal("measure", "--joint", str(tmp_path / "joint.json"))


def test_a_run_of_another_method_is_no_joint_run(inside: Path) -> None:
    told = refusal("measure", "--joint", "workspace")
    assert "was trained with method=der_dacr, and not with method=joint" in told


# -- publish and predict ----------------------------------------------------------------------


def answer(*words: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(dacr("predict", *words, "--json"))
    return content


def test_a_published_model_answers_as_the_run_does(
    inside: Path, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = answer("workspace", str(image), "--exemplars", "0")
    told = dacr("publish", "workspace", str(tmp_path / "shared"))
    assert f"dacr predict {tmp_path / 'shared'} image.png" in told
    monkeypatch.chdir(tmp_path)  # outside of any project
    assert answer("shared", "image.png") | {"image": ""} == own | {"image": ""}
    card = (tmp_path / "shared/README.md").read_text(encoding="utf-8")
    assert "# der_dacr on " in card
    assert not list((tmp_path / "shared").rglob("*.npy"))
    manifest = json.loads((tmp_path / "shared" / MANIFEST).read_text())
    assert manifest["parameters"]["data"]["source_options"] == {}
    assert manifest["facts"]["metrics"]["final_accuracy"] >= 0


def test_what_is_there_is_not_overwritten(inside: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("years of work")
    assert "holds no published model" in refusal("publish", "workspace", str(tmp_path / "thesis"))
    dacr("publish", "workspace", str(tmp_path / "shared"))
    assert "--replace replaces it" in refusal("publish", "workspace", str(tmp_path / "shared"))
    dacr("publish", "workspace", str(tmp_path / "shared"), "--replace")


@pytest.mark.parametrize("replaced", [False, True])
def test_what_was_cut_off_is_published_again(
    inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """A full disk in the midst of it: the same command afterwards, and nothing left over."""
    shared = tmp_path / "shared"
    words = ("publish", "workspace", str(shared), *["--replace"] * replaced)
    if replaced:
        dacr("publish", "workspace", str(shared))
    with monkeypatch.context() as patched:
        write = Place.write

        def write_or_fail(place: Place, name: str, content: bytes) -> None:
            if name == SUMMARY:
                raise UserError("no space left")
            write(place, name, content)

        patched.setattr(Place, "write", write_or_fail)
        assert refusal(*words) == "no space left"
        assert not is_published(str(shared))
    dacr(*words)
    assert is_published(str(shared))
    assert not (shared / UNFINISHED).exists()


def test_damage_and_tricks_are_refused(inside: Path, image: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    dacr("publish", "workspace", str(shared))
    weights = shared / "state/state.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "state/state.safetensors" in refusal("predict", str(shared), str(image))
    weights.unlink()
    assert "has no state/state.safetensors" in refusal("predict", str(shared), str(image))
    weights.write_bytes(whole)
    manifest = json.loads((shared / MANIFEST).read_text())
    for name in ("../outside", "/etc/outside", "state\\..\\outside"):
        changed = manifest | {"files": manifest["files"] | {name: "0" * 64}}
        (shared / MANIFEST).write_text(json.dumps(changed))
        assert "is damaged" in refusal("predict", str(shared), str(image))
    for changed in ({"format": 2}, {"parameters": {"seed": "x"}}, {"files": []}):
        (shared / MANIFEST).write_text(json.dumps(manifest | changed))
        assert "another version" in refusal("predict", str(shared), str(image))
    (shared / MANIFEST).write_text("{")
    assert "is damaged" in refusal("predict", str(shared), str(image))


def test_a_published_model_has_no_exemplars_to_save(
    inside: Path, image: Path, tmp_path: Path
) -> None:
    dacr("publish", "workspace", str(tmp_path / "shared"))
    words = ("predict", str(tmp_path / "shared"), str(image), "--save-exemplars")
    assert "comes without the images" in refusal(*words, str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("publish", "nowhere", "out"), "nowhere"),
        (("publish", "s3://bucket/model", "out"), "is published already"),
        (("publish", "workspace", "gopher://x/y"), "cannot be reached"),
        (("predict", "gopher://x/y", "image.png"), "cannot be reached"),
    ],
)
def test_wrong_names_are_one_line(
    inside: Path, image: Path, words: tuple[str, ...], message: str
) -> None:
    words = tuple(str(image) if word == "image.png" else word for word in words)
    assert message in refusal(*words)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    server_module = pytest.importorskip("moto.server", reason="moto is not installed: extra dev")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    bucket_client(f"http://{host}:{port}").create_bucket(Bucket="bucket")
    yield f"http://{host}:{port}"
    server.stop()


def test_s3_keeps_a_model(
    inside: Path, image: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": bucket}).items():
        monkeypatch.setenv(name, value)
    own = answer("workspace", str(image), "--exemplars", "0")
    dacr("publish", "workspace", "s3://bucket/models/mine")
    monkeypatch.chdir(image.parent)
    assert answer("s3://bucket/models/mine", str(image)) == own
    assert "no model was published there" in refusal("predict", "s3://bucket/else", str(image))
    monkeypatch.chdir(inside)
    assert "--replace replaces it" in refusal("publish", "workspace", "s3://bucket/models/mine")
    told = refusal("publish", "workspace", "s3://key:very-secret@nowhere/model")
    assert "very-secret" not in told


# -- cards ------------------------------------------------------------------------------------


def test_the_card_has_the_numbers_the_command_and_the_budget(inside: Path, tmp_path: Path) -> None:
    dacr("card", "run", "--no-verify", "--out", str(tmp_path / "card.md"))
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    metrics = json.loads((inside / "reports/metrics.json").read_text())
    head = yaml.safe_load(card.split("---\n")[1])
    (result,) = head["model-index"][0]["results"]
    assert {own["type"]: own["value"] for own in result["metrics"]} == {
        name: metrics[name] for name in ("average_incremental_accuracy", "final_accuracy")
    }
    assert f"| Final accuracy | {metrics['final_accuracy']:.2f} % |" in card
    assert "dvc exp run" in card
    assert "-S method=der_dacr" in card
    assert "`dacr verify` was not asked" in card
    assert f"{read_budget(inside / 'reports')['training_flops']:,}" in card


def test_a_card_goes_to_no_place_of_the_pipeline(inside: Path, tmp_path: Path) -> None:
    assert "ends in .md" in refusal("card", "run", "--out", str(tmp_path / "card.txt"))
    assert "give an address" in refusal("card", "benchmark", "--base-url", "there")


def test_every_source_has_terms() -> None:
    files = (Path(__file__).parents[1] / "conf/benchmark").glob("*.yaml")
    texts = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    named = [(own.get("data") or {}).get("sources") for own in texts]
    sources = {name for own in named if isinstance(own, list) for name in own}
    assert {"mnist", "cifar100", "domainnet_real", "rendered"} <= sources
    assert {name for name in sources if terms_of(name) == UNKNOWN} <= {"folder", "npz"}
    assert terms_of("folder") == UNKNOWN
    assert terms_of("domainnet_real") == TERMS["domainnet"]
    assert terms_of("mnist_m") != terms_of("mnist")


def test_croissant_is_what_mlcroissant_reads(inside: Path, tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip(
        "mlcroissant", reason="mlcroissant is not installed: extra cards"
    )
    out = tmp_path / "croissant.json"
    dacr("card", "benchmark", "--out", str(out))
    dataset = mlcroissant.Dataset(jsonld=str(out))
    assert not dataset.metadata.ctx.issues.errors
    index = Benchmark.open(inside / "data/benchmark").index
    records = list(dataset.records("images"))
    assert len(records) == len(index)
    assert [own["images/id"] for own in records] == index["id"].tolist()
    names = {own["classes/id"]: own["classes/name"] for own in dataset.records("classes")}
    assert len(names) == len(tiny_pipeline.CLASSES)
    schedule = pd.read_csv(inside / "data/split/schedule.csv")
    assert len(list(dataset.records("schedule"))) == len(schedule)


def test_croissant_has_checksums_counts_and_splits(inside: Path, tmp_path: Path) -> None:
    dacr("card", "benchmark", "--out", str(tmp_path / "c.json"), "--base-url", "https://x.org/d/")
    content = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    files = {own["name"]: own for own in content["distribution"]}
    for name in ("images.npy", "index.parquet", "benchmark.json"):
        data = (inside / "data/benchmark" / name).read_bytes()
        assert files[name]["sha256"] == hashlib.sha256(data).hexdigest()
        assert files[name]["contentSize"] == f"{len(data)} B"
        assert files[name]["contentUrl"] == f"https://x.org/d/{name}"
    assert {own["@id"] for own in content["recordSet"]} == {
        "classes", "domains", "splits", "images", "schedule",
    }  # fmt: skip
    index = Benchmark.open(inside / "data/benchmark").index
    assert f"{np.sum(index['part'] == 'train'):,} training" in content["description"]


def test_a_project_without_a_benchmark_is_one_line(
    inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(inside / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert "benchmark.json is missing" in refusal("card", "benchmark", "--out", "c.json")
    assert "has no reports/metrics.json" in refusal("card", "run", "--out", "c.md")
