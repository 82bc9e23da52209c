"""Second stages that train a head alone, and DER's warm-up, against loops that share no code."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.session import Session
from dacr.learning.training import Phase, Trainer, learning_rate
from dacr.methods import make_method
from dacr.methods.parts.method import Method
from dacr.model.heads import CosineHead
from dacr.rng import torch_generator
from dacr.runtime.progress import TrainingProgress
from tests.learning import CPU, small_params, small_session
from tests.teaching import disturb

NAME = "second stage"
AUGMENTATIONS = ["none", "crop_flip_jitter"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def before_second_stage(name: str, *overrides: str) -> tuple[Method, Session, Phase]:
    """A method whose main phase in the second session is over, as far as the loop can tell."""
    method = make_method(
        small_params(
            f"method={name}",
            "train.schedule=multistep",
            "train.batch_size=4",
            "options.second_stage_epochs=3",
            "options.second_stage_milestones=[2]",
            *overrides,
        ),
        CPU,
    )
    method.begin(small_session(1, [], [0, 1], []))
    session = small_session(2, [0, 1], [1, 2], [0, 1], domain=1, each=8)
    method.begin(session)
    disturb(method, seed=1)
    phases = method.phases(session)
    assert next(phases).name == "train"
    second = next(phases)
    assert second.name == NAME
    return method, session, second


def fit(method: Method, session: Session, phase: Phase) -> list[dict[str, float]]:
    with Checkpoint("second") as checkpoint:
        return Trainer(method, session, checkpoint, TrainingProgress(1, 1)).fit(phase)


def slow_batches(
    method: Method, session: Session, phase: Phase
) -> Iterator[tuple[int, Tensor, list[int]]]:
    """Epoch, features and labels of every step: each extractor is asked in each step anew."""
    assert phase.positions is not None
    seed, labels = method.params.seed, session.data.labels.tolist()
    for epoch in range(phase.epochs):
        shuffled = torch_generator(seed, "shuffle", 2, NAME, epoch)
        drawn = torch_generator(seed, "augment", 2, NAME, epoch)
        order = phase.positions[torch.randperm(len(phase.positions), generator=shuffled)]
        for start in range(0, len(order), 4):
            chosen = order[start : start + 4]
            images = method.augmentation.train(session.data.images(chosen), drawn)
            with torch.no_grad():
                maps = [own.eval()(images) for own in method.features.extractors]  # type: ignore[operator]
            yield epoch, torch.cat(maps, 1), [labels[i] for i in chosen.tolist()]


def sgd(weight: Tensor, gradient: Tensor, momentum: Tensor, lr: float) -> None:
    """One step of SGD with momentum 0.9 and weight decay 5e-4."""
    momentum.mul_(0.9).add_(gradient + 5e-4 * weight)
    weight.sub_(lr * momentum)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_ders_second_stage_equals_a_plain_loop(augmentation: str) -> None:
    """A fresh head; cross-entropy of logits / T on the features of this epoch's images."""
    method, session, second = before_second_stage(
        "der", f"augmentation.name={augmentation}", "options.temperature=3.0"
    )
    reference, dim = copy.deepcopy(method), method.features.dim
    rows = fit(method, session, second)

    drawn = torch.rand(3, dim, generator=torch_generator(method.params.seed, NAME, 2))
    weight = (2 * drawn - 1) / math.sqrt(dim)
    momentum, losses = torch.zeros_like(weight), [0.0, 0.0, 0.0]
    for epoch, features, labels in slow_batches(reference, session, second):
        gradient = torch.zeros_like(weight)
        for feature, label in zip(features, labels, strict=True):
            powers = [math.exp(float(w @ feature) / 3.0) for w in weight]
            for row in range(3):
                error = powers[row] / sum(powers) - (row == label)
                gradient[row] += error * feature / 3.0 / len(labels)
            losses[epoch] -= math.log(powers[label] / sum(powers)) / 6
        sgd(weight, gradient, momentum, 0.1 if epoch < 2 else 0.01)
    torch.testing.assert_close(method.head.weight.detach(), weight, rtol=1e-3, atol=1e-5)
    assert [row["cross_entropy"] for row in rows] == pytest.approx(losses, rel=1e-3)
    same_network(method, reference)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("name", ["ucir", "geodl"])
def test_the_fine_tuning_of_a_cosine_classifier_equals_a_plain_loop(
    name: str, augmentation: str
) -> None:
    """All embeddings move by the cross-entropy of σ·cos and the margin; σ rests."""
    method, session, second = before_second_stage(
        name,
        f"augmentation.name={augmentation}",
        "options.second_stage_lr=0.5",
        "options.scale=4.0",
    )
    reference = copy.deepcopy(method)
    assert isinstance(reference.head, CosineHead)
    sigma = float(reference.head.scale.detach())
    fit(method, session, second)

    weight = reference.head.weight.detach().clone()
    before, momentum = weight.clone(), torch.zeros_like(weight)
    for epoch, features, labels in slow_batches(reference, session, second):
        leaf = weight.clone().requires_grad_()
        classified, violations = [], []
        for feature, label in zip(features, labels, strict=True):
            cosines = [w @ feature / w.norm() / feature.norm() for w in leaf]
            scores = torch.stack([sigma * cosine for cosine in cosines])
            classified.append(scores.exp().sum().log() - scores[label])
            if label < 2:  # class 2 is the only new one
                violations.append((0.5 - cosines[label] + cosines[2]).clamp(min=0))
        loss = torch.stack(classified).mean()
        if violations:
            loss = loss + torch.stack(violations).mean()
        (gradient,) = torch.autograd.grad(loss, leaf)
        sgd(weight, gradient, momentum, 0.5 if epoch < 2 else 0.05)
    assert isinstance(method.head, CosineHead)
    torch.testing.assert_close(method.head.weight.detach(), weight, rtol=1e-3, atol=1e-5)
    assert (weight - before).norm(dim=1).min() > 1e-3, "class 0 rested in the main phase"
    assert float(method.head.scale.detach()) == sigma
    same_network(method, reference)


def same_network(method: Method, reference: Method) -> None:
    """Not a weight and not a statistic of the features has moved."""
    before, after = reference.features.state_dict(), method.features.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", ["der", "eeil", "ucir", "geodl"])
def test_it_trains_on_as_many_samples_of_every_class_and_not_in_the_first_session(
    name: str,
) -> None:
    method, session, second = before_second_stage(name)
    assert second.positions is not None
    labels = session.data.labels[second.positions].tolist()
    assert sorted(labels) == [0, 0, 1, 1, 2, 2]  # class 0 has its two exemplars only
    assert len(set(second.positions.tolist())) == 6
    first = make_method(method.params, CPU)
    session = small_session(1, [], [0, 1], [])
    first.begin(session)
    assert [phase.name for phase in first.phases(session)] == ["train"]


# -- warm-up ------------------------------------------------------------------------------------


def test_a_warm_up_equals_a_plain_loop() -> None:
    """Two epochs of a growing rate, a new head, then the schedule counted from there."""
    params = small_params(
        "method=der",
        "train.schedule=multistep",
        "train.milestones=[1]",
        "train.lr=0.004",
        "train.epochs=4",
        "options.warmup_epochs=2",
    )
    session = small_session(1, [], [0, 1, 2], [], each=8)
    method = make_method(params, CPU)
    reference = copy.deepcopy(method)
    method.begin(session)
    for phase in method.phases(session):
        fit(method, session, phase)

    network, dim = reference.features.train(), reference.features.dim
    network.to(memory_format=torch.channels_last)
    rates = {"warm-up": [0.002, 0.004], "train": [0.004, 0.0004]}
    purposes = {"warm-up": "head", "train": "head after the warm-up"}
    for name, own_rates in rates.items():
        drawn = torch.rand(3, dim, generator=torch_generator(params.seed, purposes[name], 1))
        head = ((2 * drawn - 1) / math.sqrt(dim)).requires_grad_()
        optimizer = torch.optim.SGD([*network.parameters(), head], momentum=0.9, weight_decay=5e-4)
        for epoch, rate in enumerate(own_rates):
            optimizer.param_groups[0]["lr"] = rate
            generator = torch_generator(params.seed, "shuffle", 1, name, epoch)
            for chosen in torch.randperm(24, generator=generator).split(8):
                pixels = session.data.images(chosen).float() / 255
                features = network(((pixels - 0.5) / 0.5).permute(0, 3, 1, 2))
                labels = session.data.labels[chosen]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(features @ head.T, labels).backward()
                optimizer.step()
    torch.testing.assert_close(method.head.weight.detach(), head.detach(), rtol=1e-3, atol=1e-5)
    for ours, theirs in zip(method.features.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_the_rate_of_a_warm_up_rises_to_that_of_the_schedule() -> None:
    params = small_params("method=der", "options.warmup_epochs=10", "train.epochs=30")
    method = make_method(params, CPU)
    session = small_session(1, [], [0, 1], [])
    method.begin(session)
    warm, main = method.phases(session)
    assert (warm.epochs, main.epochs) == (10, 20)
    rates = [learning_rate(warm, params.train, epoch + 0.5) for epoch in range(10)]
    assert rates == pytest.approx([params.train.lr * (epoch + 1) / 10 for epoch in range(10)])
    assert learning_rate(main, params.train, 0) == pytest.approx(params.train.lr)


def test_both_heads_start_anew_after_the_warm_up_and_the_extractor_goes_on() -> None:
    method = make_method(small_params("method=der", "options.warmup_epochs=1"), CPU)
    method.begin(small_session(1, [], [0, 1], []))
    session = small_session(2, [0, 1], [1, 2], [0, 1], domain=1)
    method.begin(session)
    heads: list[Callable[[], Tensor]] = [
        lambda: method.head.weight,  # type: ignore[return-value]
        lambda: method.representation.auxiliary.weight,  # type: ignore[union-attr,return-value]
    ]
    first = [head().detach().clone() for head in heads]
    phases = method.phases(session)
    warm = next(phases)
    disturb(method, seed=3)
    trained = [head().detach().clone() for head in heads]
    extractors = {k: v.clone() for k, v in method.features.state_dict().items()}
    main = next(phases)
    for head, drawn, learned in zip(heads, first, trained, strict=True):
        assert head().shape == drawn.shape
        assert (head() - drawn).abs().min() > 0
        assert (head() - learned).abs().min() > 0
    after = method.features.state_dict()
    assert all(torch.equal(extractors[key], after[key]) for key in extractors)
    assert {id(p) for p in main.parameters[0]["params"]} == {  # type: ignore[attr-defined]
        id(p) for p in method.parameters() if p.requires_grad
    }
    assert [warm.name, main.name, next(phases).name] == ["warm-up", "train", NAME]


def test_a_warm_up_that_leaves_nothing_is_one_line() -> None:
    params = small_params("method=der", "train.epochs=3", "options.warmup_epochs=3")
    with pytest.raises(UserError, match=r"^options.warmup_epochs=3 leaves nothing of .*\)$"):
        make_method(params, CPU)
