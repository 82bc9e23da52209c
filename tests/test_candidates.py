"""Which components a sample may belong to in training: by hand, and against slow loops."""

import math

import pytest
import torch
from torch import Tensor

from dacr.learning.assignment import assign, own_class, possible_logits
from dacr.learning.session import Session
from dacr.learning.training import Batch
from dacr.methods import make_method
from dacr.methods.parts.departures import Ours
from dacr.methods.parts.method import Method
from dacr.model.heads import MixtureHead
from tests.learning import CPU, small_params, small_session
from tests.slow_mixture import closest, component_score

M = 3  # components that an incoming class gets, as tests.learning has it


def grown_head() -> MixtureHead:
    """Three rows: two inherited and two new components, two inherited ones, two new ones."""
    generator = torch.Generator().manual_seed(0)
    means = [torch.randn(2, 4, generator=generator) for _ in range(4)]
    head = MixtureHead(4, 5.0, kappa_learnable=False)
    head.set_components(means[:2])
    head.expand([0, 2], means[2:])
    return head


def test_an_exemplar_is_as_old_as_the_inherited_and_a_new_sample_as_the_new() -> None:
    head = grown_head()
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    is_memory = torch.tensor([True, False] * 3)
    assert head.same_age(rows, is_memory).int().tolist() == [
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [1, 1, 0, 0],
        [1, 1, 0, 0],  # of a class that did not grow
        [1, 1, 0, 0],  # of a class without inherited components
        [1, 1, 0, 0],
    ]


def test_a_reduced_mixture_is_all_inherited() -> None:
    head = grown_head()
    assert head.inherited.tolist() == [2, 2, 0]
    head.set_components(head.components())
    assert head.inherited.tolist() == [4, 2, 2]


def test_a_sample_is_assigned_to_the_closest_of_its_candidates() -> None:
    head = grown_head()
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, 4, generator=generator)
    rows = torch.arange(40) % 3
    is_memory = torch.arange(40) % 2 == 0
    free = assign(head, features, rows)
    chosen = assign(head, features, rows, head.same_age(rows, is_memory))
    moved = 0
    for feature, row, old, z_free, z in zip(features, rows, is_memory, free, chosen, strict=True):
        means = head.components()[row]
        first, last = (0, 2) if old or row > 0 else (2, 4)
        assert z == first + closest(feature, means[first:last])
        moved += int(z != z_free)
    assert moved > 3, "the case is too easy"


def test_only_the_candidates_of_the_own_class_are_left() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(4, 3, 2, generator=generator)
    rows = torch.tensor([2, 0, 1, 0])
    candidates = torch.tensor([[True, False], [False, True], [True, True], [False, False]])
    own, possible = own_class(logits, rows), possible_logits(logits, rows, candidates)
    for b, row in enumerate(rows.tolist()):
        for c in range(3):
            for k in range(2):
                ruled_out = c == row and not candidates[b, k]
                assert possible[b, c, k] == (-math.inf if ruled_out else logits[b, c, k])
        assert own[b].tolist() == logits[b, row].tolist()


def second_session() -> Session:
    """Row 1 comes again in a new domain, row 2 is new, row 0 is there by its exemplars alone."""
    return small_session(2, [0, 1], [1, 2], [0, 1], domain=1)


def mixtures_of(model: Method) -> Ours:
    assert isinstance(model.classifier, Ours)
    return model.classifier


def in_session_two(*overrides: str) -> tuple[Method, Batch]:
    """A model in its second session, with half of it as a batch."""
    params = small_params("method=ucir_dacr", "loss.lambda=0.5", "loss.lambda_epochs=1", *overrides)
    model = make_method(params, CPU)
    model.begin(small_session(1, [], [0, 1], []))
    session = second_session()
    model.begin(session)
    model.start_epoch(session, 1)
    positions = torch.arange(0, len(session.data.labels), 2)
    images = model.augmentation.test(session.data.images(positions))
    batch = Batch(
        images, session.data.labels[positions], session.data.is_memory[positions], positions
    )
    model.eval()
    return model, batch


def share(head: MixtureHead, row: int, k: int) -> float:
    """The samples of the session that a component stands for."""
    inherited = int(head.inherited[row])
    new = int(head.counts()[row]) - inherited
    session = second_session()
    kinds = [
        bool(memory)
        for label, memory in zip(session.data.labels, session.data.is_memory, strict=True)
        if int(label) == row
    ]
    if inherited and new:
        return kinds.count(k < inherited) / (inherited if k < inherited else new)
    return len(kinds) / (inherited + new)


@pytest.mark.parametrize("prior", ["uniform", "empirical"])
@pytest.mark.parametrize("candidates", ["all", "same_age"])
def test_the_losses_are_those_of_slow_loops(prior: str, candidates: str) -> None:
    model, batch = in_session_two(f"mixture.prior={prior}", f"mixture.candidates={candidates}")
    head = mixtures_of(model).head
    losses = model.losses(batch)
    (losses["inter"] + losses["intra"]).backward()
    gradient = head.raw_means.grad
    assert gradient is not None

    raw = head.raw_means.detach().clone().requires_grad_()
    counts = head.counts().tolist()
    with torch.no_grad():
        features = model.features(batch.images)
    inter: list[Tensor] = []
    intra: list[Tensor] = []
    for feature, row, memory in zip(features, batch.labels.tolist(), batch.is_memory, strict=True):
        weighted = [
            [
                component_score(feature, raw[c, k], head.kappa)
                * (share(head, c, k) if prior == "empirical" else 1 / counts[c])
                for k in range(counts[c])
            ]
            for c in range(len(counts))
        ]
        allowed = list(range(counts[row]))
        if candidates == "same_age" and row == 1:  # the class with components of both ages
            allowed = [k for k in allowed if (k < M) == bool(memory)]
        own = sum(weighted[row][k] for k in allowed)
        others = sum(sum(weighted[c]) for c in range(len(counts)) if c != row)
        inter.append(-torch.log(own / (own + others)))
        z = allowed[closest(feature, raw[row, allowed].detach())]
        intra.append(-torch.log(weighted[row][z] / sum(weighted[row])))
    expected = torch.stack(inter).mean(), 0.5 * torch.stack(intra).mean()
    torch.testing.assert_close(losses["inter"], expected[0])
    torch.testing.assert_close(losses["intra"], expected[1])
    (expected[0] + expected[1]).backward()
    assert raw.grad is not None
    torch.testing.assert_close(gradient, raw.grad, rtol=1e-4, atol=1e-6)
    assert not math.isclose(expected[1].item(), 0, abs_tol=1e-3)


def test_exemplars_keep_an_inherited_component_alive() -> None:
    """A new component on top of an inherited one takes its exemplars only where it may."""
    for candidates, survivors in (("same_age", 2), ("all", 1)):
        params = small_params(
            "method=ucir_dacr", f"mixture.candidates={candidates}", "reduction.delta=0"
        )
        model = make_method(params, CPU)
        head = mixtures_of(model).head
        model.begin(small_session(1, [], [0], []))
        session = small_session(2, [0], [0], [0], domain=1)
        model.begin(session)
        features = model.session_features(session)
        old, new = features[session.data.is_memory], features[~session.data.is_memory]
        inherited = torch.nn.functional.normalize(old, dim=1).mean(0) + 0.3 * torch.ones(
            features.shape[1]
        )
        head.set_components([inherited.unsqueeze(0)])
        both = torch.nn.functional.normalize(torch.cat([old, new]), dim=1).mean(0)
        head.expand([0], [both.unsqueeze(0)])
        model.consolidate(session, features)
        assert head.counts().tolist() == [survivors]
