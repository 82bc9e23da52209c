"""What tests of several files start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dacr.experiments.records import Store
from dacr.experiments.tables import Paper, load_paper
from dacr.runtime.pretend import pretend_device
from tests.loopback import Server, running_server

torch.set_num_threads(1)
pretend_device()  # autograd counts devices when it first runs


@pytest.fixture(scope="module")
def paper() -> Paper:
    return load_paper()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty one; the benchmark that may lie in data/ is none of its records'."""
    monkeypatch.setattr("dacr.experiments.plan.built_here", lambda: None)
    return Store(tmp_path / "scratch", tmp_path / "results")


@pytest.fixture
def no_epoch_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """For trainings that nobody ends: to keep an epoch takes longer than to train a tiny one."""
    monkeypatch.setenv("DACR_CHECKPOINT_SECONDS", "3600")


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    """Of the module's server, one that has no page and was asked nothing."""
    running.pages.clear()
    running.requests.clear()
    return running


@pytest.fixture
def own_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No download of others, no proxy and no mirror."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("DACR_MIRROR", raising=False)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder
