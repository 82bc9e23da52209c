"""The real Avalanche and continuum train on our sessions and see exactly our images.

They need the extra ``peers``. The images of the benchmark below say their own number, so that what
a training was shown is read from the batches themselves.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

import dacr
from dacr.data.building import build_benchmark
from dacr.data.sources.base import PARTS, Part, Sample, Source
from dacr.data.splits import write_schedule, write_session
from dacr.scenarios.exports.writing import export
from dacr.scenarios.stream import Scenario
from tests import torchvision_compat

INSTALL = "the extra peers is not installed: pip install -c constraints.txt -e '.[peers]'"
avalanche = pytest.mark.skipif(find_spec("avalanche") is None, reason=INSTALL)
continuum = pytest.mark.skipif(find_spec("continuum") is None, reason=INSTALL)
CLASSES, DOMAINS = ["a", "b", "c"], ["x", "y"]
EACH: dict[Part, int] = {"train": 7, "test": 3}
SIZE = 8
SCHEDULE = pd.DataFrame(
    [(1, 0, 0, 1), (1, 1, 0, 1), (2, 0, 1, 0), (2, 2, 0, 1), (3, 1, 1, 0), (3, 2, 1, 0)],
    columns=["session", "class", "domain", "new_class"],
)


def picture(number: int) -> np.ndarray:
    """An image that says its number, in its first pixel."""
    image = np.full((SIZE, SIZE, 3), 128, np.uint8)
    image[0, 0] = number % 256, number // 256, 255
    return image


def numbers(batch: torch.Tensor) -> list[int]:
    """What ``picture`` wrote into each image of a batch [N, 3, height, width]."""
    low, high, _ = (batch[:, :, 0, 0] * 255).round().int().unbind(1)
    return (low + 256 * high).tolist()


class Numbered(Source):
    name = "numbered"

    def fetch(self, folder: Path) -> None:
        """There is nothing to fetch."""

    def read(self, folder: Path) -> Iterator[Sample]:
        number = 0
        for part in PARTS:
            for label in range(len(CLASSES)):
                for domain in DOMAINS:
                    for _ in range(EACH[part]):
                        yield Sample(picture(number), label, domain, part, str(number))
                        number += 1


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("project")
    build_benchmark(
        "numbered",
        CLASSES,
        DOMAINS,
        [(Numbered(), folder)],
        image_size=SIZE,
        out=folder / "benchmark",
    )
    opened = pd.read_parquet(folder / "benchmark/index.parquet")
    write_schedule(SCHEDULE, opened, folder / "split")
    for key in ("01", "02", "03"):
        write_session(folder / "split", key, opened)
    return dacr.scenario(folder / "split")


def ids_of(scenario: Scenario) -> dict[str, list[list[int]]]:
    """Of each session what a training and two kinds of test must see."""
    return {
        "train": [session.train().ids.tolist() for session in scenario],
        "test": [session.test(seen=False).ids.tolist() for session in scenario],
        "seen": [session.test().ids.tolist() for session in scenario],
    }


def test_the_pictures_say_their_numbers(scenario: Scenario) -> None:
    images = scenario[1].train()
    batch = torch.stack([image for image, _ in images])
    assert numbers(batch) == images.ids.tolist()


@avalanche
def test_avalanche_trains_on_our_images(scenario: Scenario) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from avalanche.models import SimpleMLP
        from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
        from avalanche.training.supervised import Naive

        bench = scenario.to_avalanche()
        seen: list[tuple[int, int]] = []

        class Witness(SupervisedPlugin):
            def before_forward(self, strategy: Any, **_: object) -> None:
                seen.extend(zip(numbers(strategy.mb_x), strategy.mb_y.tolist(), strict=True))

            before_eval_forward = before_forward

        model = SimpleMLP(num_classes=3, input_size=3 * SIZE * SIZE)
        strategy = Naive(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
            train_mb_size=4,
            train_epochs=2,
            plugins=[Witness()],
            evaluator=EvaluationPlugin(loggers=[]),
        )
        labels = scenario.table["label"]
        expected = ids_of(scenario)
        assert len(bench.train_stream) == len(bench.seen_stream) == len(scenario)
        for t, experience in enumerate(bench.train_stream):
            seen.clear()
            strategy.train(experience)
            twice = sorted(2 * expected["train"][t])
            assert sorted(number for number, _ in seen) == twice
            assert all(label == labels[number] for number, label in seen)
            for part in ("test", "seen"):
                seen.clear()
                strategy.eval(bench.streams[part][t])
                assert [number for number, _ in seen] == expected[part][t]
            session = scenario[t]
            assert experience.classes_in_this_experience == set(session.classes)
            assert experience.classes_seen_so_far == set(session.seen_classes)


@avalanche
def test_avalanche_gets_domains_only_where_they_are_asked_for(scenario: Scenario) -> None:
    plain, told = scenario.to_avalanche(), scenario.to_avalanche(domains=True)
    assert not hasattr(plain.train_stream[0].dataset, "domains")
    for session, experience in zip(scenario, told.train_stream, strict=True):
        expected = session.train(domains=True).domains
        assert expected is not None
        assert list(experience.dataset.domains) == expected.tolist()
        assert len(experience.dataset[0]) == 2


@continuum
def test_continuum_gives_our_images(scenario: Scenario) -> None:
    labels = scenario.table["label"]
    found = dict(zip(("train", "test", "seen"), scenario.to_continuum(), strict=True))
    for part, expected in ids_of(scenario).items():
        assert len(found[part]) == len(scenario)
        for t, tasks in enumerate(found[part]):
            shown = list(DataLoader(tasks, batch_size=4, shuffle=part == "train"))
            seen = [number for images, _, _ in shown for number in numbers(images)]
            told = [int(label) for _, own, _ in shown for label in own]
            assert sorted(seen) == sorted(expected[t])
            assert told == labels[seen].tolist()
            assert {int(task) for _, _, own in shown for task in own} == {t}


@continuum
def test_continuum_remembers_our_images(scenario: Scenario) -> None:
    """A rehearsal memory of continuum's, in its own training loop."""
    from continuum import rehearsal

    train, _, _ = scenario.to_continuum()
    memory = rehearsal.RehearsalMemory(memory_size=6, herding_method="random")
    brought: set[int] = set()
    for t, tasks in enumerate(train):
        if t > 0:
            tasks.add_samples(*memory.get())
        loader = DataLoader(tasks, batch_size=4, shuffle=True)
        seen = {number for images, _, _ in loader for number in numbers(images)}
        own = set(scenario[t].train().ids.tolist())
        assert own <= seen <= own | brought
        brought |= own
        memory.add(*tasks.get_raw_samples(), None)


LOAD = {
    "avalanche": "from avalanche_benchmark import benchmark\n"
    "sets = [own.dataset for own in benchmark(load('.')).train_stream]\n",
    "continuum": "from continuum_scenarios import scenarios\nsets = scenarios(load('.'))[0]\n",
}
READ = """
import sys
import torch
sys.modules["dacr"] = None  # as where dacr is not installed
{compat}
from stream import load
{load}
for own in sets:
    pixels = torch.stack([item[0] for item in (own[i] for i in range(len(own)))])[:, :, 0, 0]
    low, high, _ = (pixels * 255).round().int().unbind(1)
    print(*(low + 256 * high).tolist())
"""


@pytest.mark.parametrize(
    "form", [pytest.param("avalanche", marks=avalanche), pytest.param("continuum", marks=continuum)]
)
def test_an_export_is_loaded_without_dacr(scenario: Scenario, tmp_path: Path, form: str) -> None:
    export(scenario, form, tmp_path / "out")
    compat = Path(torchvision_compat.__file__).read_text()
    script = READ.format(compat=compat, load=LOAD[form])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert read == ids_of(scenario)["train"]
