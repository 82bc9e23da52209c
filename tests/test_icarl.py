"""iCaRL: its loss against loops, herded exemplars, and the nearest mean of exemplars by hand."""

import copy
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from dacr.errors import UserError
from dacr.learning.session import Session
from dacr.learning.training import Batch
from dacr.methods import make_method
from dacr.methods.icarl import NearestMean, binary_targets
from dacr.methods.parts.method import Method
from dacr.sessions.places import run_folder
from dacr.sessions.state import load_model
from tests.learning import CPU, small_params, small_session
from tests.teaching import cross_entropy, disturb, logits_of, softmax, values_of, whole_batch
from tests.tiny_pipeline import run, tiny_params

OPTIONS = ("method=icarl", "memory.size=20")


def icarl(*overrides: str) -> Method:
    return make_method(small_params(*OPTIONS, *overrides), CPU)


def second_session(method: Method, incoming: list[int]) -> tuple[Session, Batch, Tensor]:
    """After classes 0 to 2: a session, its batch, and the logits of the network before it."""
    method.begin(small_session(1, [], [0, 1, 2], []))
    disturb(method, seed=1)
    session = small_session(2, [0, 1, 2], incoming, [0, 1, 2], domain=1)
    batch = whole_batch(session, method)
    before = logits_of(copy.deepcopy(method), batch)
    method.begin(session)
    disturb(method, seed=2)
    method.eval()
    return session, batch, before


@pytest.mark.parametrize("incoming", [[3, 4], [3], [0, 3], [0, 1, 2], [1]])
def test_the_loss_is_cross_entropy_and_distillation_of_the_old_logits(incoming: list[int]) -> None:
    method = icarl("options.temperature=3.0", "options.distillation=0.5")
    _, batch, before = second_session(method, incoming)
    after = logits_of(method, batch).tolist()
    classification = distillation = 0.0
    for new, old, label in zip(after, before.tolist(), batch.labels.tolist(), strict=True):
        classification -= math.log(softmax(new)[label])
        distillation += cross_entropy(softmax(old, 3.0), new[:3], 3.0)
    assert values_of(method.losses(batch)) == pytest.approx(
        {
            "cross_entropy": classification / len(after),
            "distillation": 0.5 * distillation / len(after),
        },
        rel=1e-4,
    )


@pytest.mark.parametrize("incoming", [[3, 4], [0, 3], [0, 1, 2]])
def test_the_original_form_is_one_binary_cross_entropy(incoming: list[int]) -> None:
    method = icarl("options.form=binary")
    _, batch, before = second_session(method, incoming)
    after = logits_of(method, batch).tolist()
    total = 0.0
    for new, old, label in zip(after, before.tolist(), batch.labels.tolist(), strict=True):
        for row, logit in enumerate(new):
            target = 1 / (1 + math.exp(-old[row])) if row < 3 else float(row == label)
            output = 1 / (1 + math.exp(-logit))
            total -= target * math.log(output) + (1 - target) * math.log(1 - output)
    expected = total / (len(after) * len(after[0]))
    losses = values_of(method.losses(batch))
    assert losses == pytest.approx({"binary_cross_entropy": expected}, rel=1e-4)


def test_the_original_form_cannot_see_the_labels_of_old_classes() -> None:
    old_logits = torch.randn(4, 3)
    one, other = torch.tensor([0, 1, 2, 3]), torch.tensor([2, 0, 1, 3])
    targets = binary_targets(one, old_logits, 5)
    assert torch.equal(targets, binary_targets(other, old_logits, 5))
    assert targets[3].tolist()[3:] == [1, 0]
    assert torch.equal(binary_targets(one, None, 4), torch.eye(4))


def test_in_the_first_session_nothing_is_distilled() -> None:
    method = icarl()
    session = small_session(1, [], [0, 1], [])
    method.begin(session)
    assert method.losses(whole_batch(session, method)).keys() == {"cross_entropy"}


def greedy(features: Tensor, quota: int) -> list[int]:
    """Rebuffi's Algorithm 4 in loops: the k-th exemplar brings the mean closest to the class's."""
    unit = [f / f.norm() for f in features.double()]
    mean = sum(unit) / len(unit)
    chosen: list[int] = []
    while len(chosen) < min(quota, len(unit)):
        total = sum((unit[i] for i in chosen), torch.zeros_like(mean))
        distances = {
            i: float((mean - (unit[i] + total) / (len(chosen) + 1)).norm())
            for i in range(len(unit))
            if i not in chosen
        }
        chosen.append(min(distances, key=lambda i: distances[i]))
    return chosen


def test_exemplars_are_herded_from_the_memory_and_the_new_data_of_a_class() -> None:
    method = icarl()
    session, _, _ = second_session(method, [0, 3])
    features = torch.randn(len(session.data), 5, generator=torch.Generator().manual_seed(1))
    expected = []
    for row in range(4):
        own = (session.data.labels == row).nonzero().squeeze(1)
        expected += own[greedy(features[own], 20 // 4)].tolist() if row in (0, 3) else own.tolist()
    chosen = method.exemplars(session, features)
    assert chosen.tolist() == expected
    assert len(expected) == 5 + 2 + 2 + 5  # 1 and 2 have no new data and keep their two exemplars


def test_the_nearest_mean_of_exemplars_by_hand() -> None:
    """Features of any length count by their direction; only chosen samples count at all."""
    classifier = icarl().classifier
    assert isinstance(classifier, NearestMean)
    session = small_session(1, [], [0, 1], [], each=3)
    features = torch.tensor([[2.0, 0], [0, 5], [-9, -9], [-1, 0], [-4, 3], [9, 9]])
    classifier.remember(session, features, torch.tensor([0, 1, 3, 4]))
    direction = torch.tensor([-1.8, 0.6])  # (−1, 0) + (−0.8, 0.6)
    means = torch.stack([torch.tensor([1, 1]) / math.sqrt(2), direction / direction.norm()])
    torch.testing.assert_close(classifier.exemplar_means, means)
    queries = torch.tensor([[3.0, 1], [-0.2, 1], [-0.3, 1], [-70, 1]])  # the border is at 103°
    distances = torch.cdist(queries / queries.norm(dim=1, keepdim=True), means)
    nearest = distances.argmin(1)
    assert nearest.tolist() == [0, 0, 1, 1]
    assert torch.equal(classifier.scores(queries).argmax(1), nearest)


def test_a_memory_without_room_for_every_class_is_refused() -> None:
    with pytest.raises(UserError, match=r"memory.size must be at least 10, .* \(it is 9\)"):
        make_method(small_params("method=icarl", "memory.size=9"), CPU)


@pytest.mark.parametrize("split", ["nc", "nd", "ncd"])
def test_predictions_are_those_of_the_stored_exemplars(tmp_path: Path, split: str) -> None:
    """After all sessions, from the files alone: memory.csv, the extractor, and a slow search."""
    params = tiny_params("method=icarl", f"split={split}")
    benchmark = run(tmp_path, params)
    last = run_folder(params.schedule.last)
    method = make_method(params, CPU)
    load_model(method, tmp_path / last.state)
    method.eval()

    def unit_features(ids: pd.Series) -> Tensor:
        images = torch.from_numpy(np.array(benchmark.images[ids.to_numpy()]))
        with torch.no_grad():
            features = method.features(method.augmentation.test(images))
        return features / features.norm(dim=1, keepdim=True)

    memory = pd.read_csv(tmp_path / last.state / "memory.csv")
    assert memory.groupby("label").size().to_dict() == dict.fromkeys(range(4), 2)
    means = {}
    for label, exemplars in memory.groupby("label"):
        mean = unit_features(exemplars["id"]).mean(0)
        means[label] = mean / mean.norm()
    predictions = pd.read_parquet(tmp_path / last.results / "predictions.parquet")
    predictions = predictions[predictions["session"] == predictions["session"].max()]
    assert len(predictions) == 16
    for feature, predicted in zip(
        unit_features(predictions["id"]), predictions["predicted"], strict=True
    ):
        distances = {label: float((feature - mean).norm()) for label, mean in means.items()}
        assert distances[predicted] == pytest.approx(min(distances.values()), abs=1e-5)
