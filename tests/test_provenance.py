"""What a run notes about itself, and that a note never speaks of another run."""

import json
import shutil
import subprocess
from contextlib import chdir
from importlib import metadata

import pytest
import torch

from dacr.model.backbones import build_backbone
from dacr.model.flops import forward_flops, training_flops
from dacr.report.page import read_provenance, write_provenance
from dacr.runtime.provenance import machine
from tests.tiny_pipeline import prepare, run_sessions, tiny_params

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "aws-secret-1",
    "GITHUB_TOKEN": "github-secret-2",
    "HTTPS_PROXY": "http://user:proxy-secret-3@proxy.invalid:1",
    "DVC_STUDIO_TOKEN": "studio-secret-4",
}


def git(folder, *command):
    subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def noted(tmp_path_factory):
    """Two sessions in a git repository whose remote has a password, amid secrets."""
    folder = tmp_path_factory.mktemp("noted")
    params = tiny_params("method=der_dacr", "split=nd")
    (folder / "stages").mkdir()
    (folder / "stages/a.py").write_text("1\n")
    git(folder, "init", "-q")
    git(folder, "remote", "add", "origin", "https://user:remote-secret-5@example.org/dacr.git")
    git(folder, "add", "stages")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "one")
    (folder / "stages/a.py").write_text("2\n")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        prepare(folder, params)
        run_sessions(folder, params)
    return folder


def notes(folder):
    return read_provenance(folder / "runs")


def test_a_note_says_what_is_needed_to_understand_a_difference(noted):
    found = notes(noted)
    assert [(n["session"], n["stage"]) for n in found] == [
        (1, "learn"), (1, "consolidate"), (2, "learn"), (2, "consolidate"),
    ]  # fmt: skip
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=noted, text=True)
    for note in found:
        assert note["git_revision"] == head.strip()
        assert note["dirty"] is True
        assert note["threads"] == 1
        assert note["seconds"] > 0
        assert note["packages"]["torch"] == metadata.version("torch")
        assert note["instructions"] == torch.backends.cpu.get_cpu_capability()
        assert note["processor"]
    # 20 images of the session's domain, then 20 more and the memory of 8; one epoch.
    assert [n["images"] for n in found if n["stage"] == "learn"] == [20, 28]


def test_flops_are_those_of_the_layers_counted_by_hand():
    """Two per multiply-add, every convolution and linear layer, by hooks on a real forward pass."""
    network = build_backbone("resnet8", False, torch.Generator()).eval()
    counted = []

    def convolution(layer, inputs, output):
        kernel = layer.kernel_size[0] * layer.kernel_size[1]
        counted.append(2 * output[0].numel() * layer.in_channels // layer.groups * kernel)

    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(convolution)
    network(torch.zeros(1, 3, 32, 32))
    assert forward_flops("resnet8", 32) == sum(counted)


def test_frozen_extractors_count_once_and_the_trained_one_three_times():
    forward = forward_flops("resnet8", 32)
    assert training_flops("resnet8", 32, 10, 1) == 10 * forward * 3
    assert training_flops("resnet8", 32, 10, 4) == 10 * forward * 6


def test_the_estimate_of_a_session_follows_its_extractors(noted):
    first, second = (n for n in notes(noted) if n["stage"] == "learn")
    params = tiny_params("method=der_dacr", "split=nd")
    network = params.model.backbone, params.augmentation.input_size
    assert first["flops_estimate"] == training_flops(*network, 20, 1)
    assert second["flops_estimate"] == training_flops(*network, 28, 2)


def test_a_note_about_other_bytes_is_not_shown(noted, tmp_path):
    """The workspace went on to another experiment; the notes of the one before still lie there."""
    shutil.copytree(noted / "runs", tmp_path / "runs")
    predictions = tmp_path / "runs/02/results/predictions.parquet"
    predictions.write_bytes(predictions.read_bytes() + b"x")
    (tmp_path / "runs/01/learned/state.safetensors").unlink()
    found = read_provenance(tmp_path / "runs")
    assert [(n["session"], n["stage"]) for n in found] == [(1, "consolidate"), (2, "learn")]


def test_no_secret_is_in_anything_that_a_run_writes(noted):
    write_provenance(noted / "provenance.js", notes(noted))
    secrets = [*SECRETS.values(), "remote-secret-5"]
    for file in noted.rglob("*"):
        if file.is_file() and ".git" not in file.parts and (noted / "dacr") not in file.parents:
            content = file.read_bytes()
            for secret in secrets:
                assert secret.encode() not in content, (file, secret)


def test_notes_do_not_disturb_exactness(noted, tmp_path):
    """The outs of another run of the same, at another time, are the same bytes."""
    params = tiny_params("method=der_dacr", "split=nd")
    prepare(tmp_path, params)
    run_sessions(tmp_path, params)
    outs = [
        file.relative_to(noted)
        for file in (noted / "runs").rglob("*")
        if file.is_file() and not file.name.startswith("provenance-")
    ]
    assert len(outs) > 15
    for file in outs:
        assert (noted / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_a_run_outside_of_git_is_noted_too(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with chdir(tmp_path):
        facts = machine()
    assert facts["git_revision"] == ""
    assert json.dumps(facts)
