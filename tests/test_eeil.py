"""EE2L: its groups of classes, the cross-distilled loss against loops, balanced fine-tuning."""

import copy
import json
import math
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from dacr.learning.session import Session
from dacr.learning.training import balanced
from dacr.methods import make_method
from dacr.methods.eeil import GroupDistilled, grouped_distillation
from dacr.methods.parts.method import Method
from dacr.sessions.places import run_folder
from tests.learning import CPU, small_params, small_session
from tests.teaching import cross_entropy, disturb, logits_of, softmax, values_of, whole_batch
from tests.tiny_pipeline import run, tiny_params


def eeil(*overrides: str) -> Method:
    return make_method(small_params("method=eeil", *overrides), CPU)


def classifier_of(method: Method) -> GroupDistilled:
    assert isinstance(method.classifier, GroupDistilled)
    return method.classifier


def advance(method: Method, session: Session) -> None:
    """A session without training: begin it and move the weights."""
    method.begin(session)
    disturb(method, seed=session.index)
    method.eval()


def four_sessions() -> list[Session]:
    """New classes; two new and an old one; old ones alone; new ones again."""
    return [
        small_session(1, [], [0, 1], []),
        small_session(2, [0, 1], [0, 2, 3], [0, 1], domain=1),
        small_session(3, [0, 1, 2, 3], [1, 2], [0, 1, 2, 3], domain=2),
        small_session(4, [0, 1, 2, 3], [4, 5], [0, 1, 2, 3]),
    ]


def slow_distillation(
    new: list[list[float]],
    old: list[list[float]],
    groups: list[list[int]],
    temperature: float,
) -> float:
    """Σ_h of the mean over samples of −Σ softmax(ō_h/T) log softmax(o_h/T)."""
    total = 0.0
    for group in groups:
        for student, teacher in zip(new, old, strict=True):
            target = softmax([teacher[row] for row in group], temperature)
            total += cross_entropy(target, [student[row] for row in group], temperature)
    return total / len(new)


def test_grouped_distillation_is_the_sum_over_the_groups_that_the_teacher_knows() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    old_logits = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    loss = grouped_distillation(logits, old_logits, [1, 3, 3], temperature=2.0)
    slow = slow_distillation(logits.tolist(), old_logits.tolist(), [[0], [1, 2, 3]], 2.0)
    assert loss.item() == pytest.approx(slow)
    # With one group it would be another loss: logits of different groups do not compete.
    one_group = slow_distillation(logits.tolist(), old_logits.tolist(), [[0, 1, 2, 3]], 2.0)
    assert loss.item() != pytest.approx(one_group, rel=0.01)


def test_a_group_is_the_classes_first_seen_in_one_session() -> None:
    method = eeil()
    groups = []
    for session in four_sessions():
        method.begin(session)
        groups.append(classifier_of(method).group.tolist())
    assert groups == [[1, 1], [1, 1, 2, 2], [1, 1, 2, 2], [1, 1, 2, 2, 4, 4]]


def test_without_new_classes_the_group_of_the_first_session_stays_alone() -> None:
    method = eeil()
    for index in range(1, 4):
        known = [0, 1, 2] if index > 1 else []
        method.begin(small_session(index, known, [0, 1, 2], known, domain=index))
        assert classifier_of(method).group.tolist() == [1, 1, 1]
        assert method.head(torch.zeros(1, method.features.dim)).shape == (1, 3)


def test_every_earlier_group_is_distilled_the_newest_too() -> None:
    method = eeil("options.temperature=1.5", "options.distillation=0.7")
    *before, session = four_sessions()
    for earlier in before:
        advance(method, earlier)
    batch = whole_batch(session, method)
    old = logits_of(copy.deepcopy(method), batch).tolist()
    advance(method, session)
    new = logits_of(method, batch).tolist()
    distillation = slow_distillation(new, old, [[0, 1], [2, 3]], 1.5)
    classification = -sum(
        math.log(softmax(logits)[label])
        for logits, label in zip(new, batch.labels.tolist(), strict=True)
    )
    assert values_of(method.losses(batch)) == pytest.approx(
        {"cross_entropy": classification / len(new), "distillation": 0.7 * distillation},
        rel=1e-4,
    )


def test_fine_tuning_is_taught_by_the_network_of_the_first_stage() -> None:
    """It knows all groups; in the first stage the teacher is the old network."""
    method = eeil()
    sessions = four_sessions()
    for earlier in sessions[:3]:
        advance(method, earlier)
    session = sessions[3]
    batch = whole_batch(session, method)
    phases = iter(method.phases(session))
    method.begin(session)
    first = next(phases)
    assert first.name == "train"
    classifier = classifier_of(method)
    assert classifier.old_logits is not None
    assert classifier.old_logits(batch).shape == (len(batch.labels), 4)
    disturb(method, seed=4)  # what the first stage would do
    trained = logits_of(method, batch)
    second = next(phases)
    torch.testing.assert_close(classifier.old_logits(batch).double(), trained)
    assert list(phases) == []
    disturb(method, seed=5)
    new = logits_of(method, batch).tolist()
    expected = slow_distillation(new, trained.tolist(), [[0, 1], [2, 3], [4, 5]], 2.0)
    assert second.losses(batch)["distillation"].item() == pytest.approx(expected, rel=1e-4)


def test_fine_tuning_trains_the_whole_network_on_as_many_samples_of_every_class() -> None:
    method = eeil()
    method.begin(small_session(1, [], [0, 1], []))
    session = small_session(2, [0, 1], [0, 2], [0, 1], domain=1)
    method.begin(session)
    _, second = method.phases(session)
    (group,) = second.parameters
    assert {id(p) for p in group["params"]} == {id(p) for p in method.parameters()}
    assert second.training
    assert second.positions is not None
    counts = Counter(session.data.labels[second.positions].tolist())
    assert counts == {0: 2, 1: 2, 2: 2}  # class 1 has its two exemplars only
    assert len(set(second.positions.tolist())) == 6


def test_a_class_without_samples_does_not_empty_the_balanced_set() -> None:
    labels = torch.tensor([2, 0, 2, 2, 0])
    positions = balanced(labels, torch.Generator().manual_seed(0))
    assert sorted(labels[positions].tolist()) == [0, 0, 2, 2]


@pytest.mark.parametrize(("overrides", "n_old"), [((), 0), (("options.second_stage_epochs=0",), 2)])
def test_no_fine_tuning_in_the_first_session_or_when_it_is_off(
    overrides: tuple[str, ...], n_old: int
) -> None:
    method = eeil(*overrides)
    session = small_session(1, [], [0, 1], [])
    method.begin(session)
    if n_old:
        session = small_session(2, [0, 1], [0, 1], [0, 1], domain=1)
        method.begin(session)
    assert [phase.name for phase in method.phases(session)] == ["train"]


@pytest.mark.parametrize("split", ["nc", "nd", "ncd"])
def test_groups_cross_sessions_and_follow_the_schedule(tmp_path: Path, split: str) -> None:
    params = tiny_params("method=eeil", f"split={split}", "options.second_stage_epochs=1")
    run(tmp_path, params)
    last = run_folder(params.schedule.last)
    schedule = pd.read_csv(tmp_path / "data" / "split" / "schedule.csv")
    first_seen = schedule.groupby("class")["session"].min()
    seen = json.loads((tmp_path / last.state / "state.json").read_text())["seen"]
    group = load_file(tmp_path / last.state / "state.safetensors")["group"]
    assert group.tolist() == first_seen[seen].tolist()
    losses = json.loads((tmp_path / last.results / "history.json").read_text())["losses"]
    expected = {(1, "train")} | {
        (t, phase)
        for t in range(2, len(params.schedule.sessions) + 1)
        for phase in ("train", "second stage")
    }
    assert {(row["session"], row["phase"]) for row in losses} == expected
    assert all(("distillation" in row) == (row["session"] > 1) for row in losses)
