"""One thread for every test: results do not depend on the machine, and tests run side by side.

The process that only hands tests to others loads none of what they need (``tests/fixtures.py``).
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

import pytest

from tests.quick import FIRST
from tests.shelf import in_memory, leave_memory
from tests.warm import remember_yaml, share_server

in_memory()
# DVC would keep a folder for every repository of a test in /var/tmp.
os.environ.setdefault("DVC_SITE_CACHE_DIR", f"{tempfile.gettempdir()}/dvc")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        share_server(soon=config.args_source is not config.ArgsSource.ARGS)
    else:
        remember_yaml()
        config.pluginmanager.import_plugin("tests.fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))


def pytest_collection_finish() -> None:
    """What is loaded stays: looking for garbage in it was a twentieth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_sessionfinish(exitstatus: int) -> None:
    leave_memory(exitstatus)
