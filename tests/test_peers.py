"""The benchmark of the training loop beside its peers, on work that is small enough for a test."""

from __future__ import annotations

import pytest

from benchmarks import peers

TINY = peers.Work("resnet8", batch_size=8, batches=8, rounds=1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(peers, "WORKS", (TINY,))
    monkeypatch.setenv("DVC_ROOT", str(tmp_path_factory.mktemp("scratch")))


def test_without_avalanche_the_table_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "avalanche_version", lambda: None)
    first, header, *rows = peers.table()
    assert "pip install -c constraints.txt -e '.[peers]'" in first
    assert header.split()[:3] == ["batch", "per", "CPU"]
    assert [" ".join(row.split()[2:4]) for row in rows] == [peers.BARE, peers.LOOP]
    assert rows[0].endswith(" 1.000")


def test_all_train_on_as_many_images() -> None:
    with peers.contestants(TINY) as epochs:
        trained = {name: epoch() for name, epoch in epochs.items()}
    assert trained == dict.fromkeys(epochs, TINY.images)
