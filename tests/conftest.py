"""One thread for every test: results do not depend on the machine, and tests run side by side.

And what tests of several files start from.
"""

import gc
import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tiny trainings last seconds: they keep every epoch, so that a kill finds one.
os.environ.setdefault("DACR_CHECKPOINT_SECONDS", "0")
# Some builds of readline set them, so that pytest's workers inherit a width that nobody asked for.
os.environ.pop("COLUMNS", None)
os.environ.pop("LINES", None)

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dacr.experiments.records import Store
from dacr.experiments.tables import Paper, load_paper
from dacr.runtime.pretend import pretend_device
from tests.loopback import Server, running_server
from tests.quick import LONG
from tests.shelf import in_memory, leave_memory
from tests.warm import remember_yaml

in_memory()
remember_yaml()
# DVC would keep a folder for every repository of a test in /var/tmp.
os.environ.setdefault("DVC_SITE_CACHE_DIR", f"{tempfile.gettempdir()}/dvc")
torch.set_num_threads(1)
pretend_device()  # autograd counts devices when it first runs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: one that came last would be waited for alone."""
    order = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def pytest_collection_finish() -> None:
    """What is loaded stays: looking for garbage in it was a twentieth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_sessionfinish(exitstatus: int) -> None:
    leave_memory(exitstatus)


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
