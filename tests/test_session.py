"""Integrity of the learning problem: the learner reaches D_t ∪ M_t and nothing else."""

import gc

import numpy as np
import pandas as pd
import pytest
import torch

from dacr.errors import UserError
from dacr.learning.session import TrainingView, extend_seen, open_session

AUGMENTATION = "dacr.data.augmentation"
"""What learning may take from the room of the data: how an image enters a network."""


@pytest.fixture
def images():
    """Image i is filled with the number i."""
    return np.arange(100, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)


@pytest.fixture
def session(images):
    incoming = np.array([10, 12, 14, 16]), np.array([7, 2, 5, 2])
    memory = np.array([3, 4]), np.array([2, 9])
    return open_session(2, images, [9, 2], incoming, memory)


def test_the_view_holds_incoming_and_memory_with_rows_and_flags(session):
    assert session.data.labels.tolist() == [3, 1, 2, 1, 1, 0]
    assert session.data.is_memory.tolist() == [False] * 4 + [True] * 2
    assert session.data.images(torch.tensor([5, 0]))[:, 0, 0, 0].tolist() == [4, 10]
    assert (session.n_old, session.n_seen) == (2, 4)
    assert session.incoming.tolist() == [1, 2, 3]
    assert session.new.tolist() == [2, 3]


def test_a_session_without_new_classes_has_an_empty_set_of_them(images):
    session = open_session(
        3, images, [0, 1], (np.array([5]), np.array([1])), (np.array([2]), np.array([0]))
    )
    assert session.new.tolist() == []
    assert session.incoming.tolist() == [1]


@pytest.mark.parametrize("position", [6, 99, -1, -6])
def test_positions_outside_the_view_are_refused(session, position):
    """Also negative ones, which numpy would take from the other end."""
    with pytest.raises(IndexError):
        session.data.images(torch.tensor([0, position]))


def test_the_view_offers_no_way_to_domains_ids_or_the_whole_array(session):
    public = {name for name in dir(session.data) if not name.startswith("_")}
    assert public == {"feed", "images", "is_memory", "labels"}
    feed = session.data.feed(torch.device("cpu"))
    assert {name for name in dir(feed) if not name.startswith("_")} == {"batches"}
    assert not hasattr(session.data, "__dict__"), "nothing can be attached to it"
    assert not any(isinstance(v, pd.DataFrame | np.ndarray) for v in gc.get_referents(session.data))
    with pytest.raises(AttributeError):
        session.data.domains = torch.zeros(6)


def test_what_the_view_returns_cannot_write_to_the_benchmark(session, images):
    before = images.copy()
    session.data.images(torch.tensor([0]))[:] = 255
    assert (images == before).all()


def test_every_image_it_can_give_belongs_to_the_session(session):
    given = {
        int(session.data.images(torch.tensor([i]))[0, 0, 0, 0]) for i in range(len(session.data))
    }
    assert given == {10, 12, 14, 16, 3, 4}


def test_a_table_that_names_images_outside_the_benchmark_is_refused(images):
    with pytest.raises(UserError, match="dvc repro split"):
        open_session(1, images, [], (np.array([100]), np.array([0])), (np.empty(0, int),) * 2)


def test_classes_keep_the_order_of_first_appearance():
    assert extend_seen([], np.array([5, 3, 3])) == [3, 5]
    assert extend_seen([3, 5], np.array([9, 1, 5])) == [3, 5, 1, 9]


def test_methods_are_handed_the_view_alone():
    """No module that learns imports the packed benchmark or the tables with domains."""
    import ast
    from pathlib import Path

    rooms = ("dacr/methods", "dacr/model", "dacr/learning")
    files = [file for room in rooms for file in Path(room).rglob("*.py")]
    assert {"dacr/methods/parts/mixture.py", "dacr/learning/memory.py"} <= set(map(str, files))
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            modules = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for module in modules:
                assert module != "pandas", file
                assert not module.startswith("dacr.data") or module == AUGMENTATION, file


def test_a_view_is_not_a_door_to_its_reader(session):
    """The reader closes over the array; the array is not an attribute of anything public."""
    assert not isinstance(getattr(session.data, "images", None), np.ndarray)
    assert isinstance(session.data, TrainingView)
