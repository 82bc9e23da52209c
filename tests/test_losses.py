"""Every loss and its gradient against loops written from the formula."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dacr.learning.losses import (
    Direction,
    component_regularisation,
    inter_class_loss,
    intra_class_distillation,
    intra_class_loss,
    knowledge_distillation,
    lambda_at,
    less_forget,
    margin_ranking,
)
from dacr.model.heads import MixtureHead
from tests.slow_mixture import class_posterior, component_posterior, unit

DIM = 5
OLD_COUNTS = [2, 1, 3]
ADDED = [2, 0, 1, 3]  # one class receives nothing, one is new


def randn(*shape: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def mixture(means: list[Tensor], kappa: float) -> MixtureHead:
    head = MixtureHead(means[0].shape[1], kappa, True).double()
    head.set_components(means)
    return head


def old_means() -> list[Tensor]:
    return [randn(k, DIM, seed=k) for k in OLD_COUNTS]


def new_means() -> list[Tensor]:
    """The old means after some training, followed by the added components."""
    inherited = [means + 0.3 * randn(*means.shape, seed=20) for means in old_means()]
    inherited.append(torch.empty(0, DIM, dtype=torch.float64))
    return [
        torch.cat([means, randn(k, DIM, seed=30 + c)])
        for c, (means, k) in enumerate(zip(inherited, ADDED, strict=True))
    ]


def same_value_and_gradients(
    fast: Callable[[list[Tensor]], Tensor], slow: Callable[[list[Tensor]], Tensor], *given: Tensor
) -> None:
    """Both functions of the same leaves, and their gradients, agree."""
    results = []
    for function in (fast, slow):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        value = function(leaves)
        value.backward()
        results.append((value.detach(), [leaf.grad for leaf in leaves]))
    torch.testing.assert_close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])


def trained(head: MixtureHead, means: list[Tensor], kappa: Tensor) -> MixtureHead:
    """The head as a function of leaves: padded means and κ take part in the graph."""
    k_max = head.mask.shape[1]
    padded = torch.stack([torch.cat([m, m.new_zeros(k_max - len(m), m.shape[1])]) for m in means])
    del head.raw_means, head.learnable_kappa
    head.raw_means, head.learnable_kappa = padded, kappa  # type: ignore[assignment]
    return head


FEATURES = randn(6, DIM, seed=50)
ROWS = torch.tensor([3, 0, 2, 1, 2, 3])
ASSIGNED = torch.tensor([2, 1, 0, 0, 3, 0])
KAPPA = torch.tensor(6.0, dtype=torch.float64)


# -- the paper's losses --------------------------------------------------------------------------


def test_inter_class_loss() -> None:
    means = new_means()

    def fast(leaves: list[Tensor]) -> Tensor:
        features, kappa, *m = leaves
        return inter_class_loss(
            trained(mixture(means, 6.0), m, kappa).class_log_scores(features), ROWS
        )

    def slow(leaves: list[Tensor]) -> Tensor:
        features, kappa, *m = leaves
        terms = [
            -class_posterior(v, m, kappa)[y].log()
            for v, y in zip(features, ROWS.tolist(), strict=True)
        ]
        return torch.stack(terms).sum() / len(terms)

    same_value_and_gradients(fast, slow, FEATURES, KAPPA, *means)


def test_intra_class_loss() -> None:
    means = new_means()

    def fast(leaves: list[Tensor]) -> Tensor:
        features, kappa, *m = leaves
        return intra_class_loss(trained(mixture(means, 6.0), m, kappa)(features), ROWS, ASSIGNED)

    def slow(leaves: list[Tensor]) -> Tensor:
        features, kappa, *m = leaves
        terms = [
            -component_posterior(v, m[y], kappa)[z].log()
            for v, y, z in zip(features, ROWS.tolist(), ASSIGNED.tolist(), strict=True)
        ]
        # Every leaf needs a gradient to compare, also that of a class without samples.
        return torch.stack(terms).sum() / len(terms) + 0 * sum(x.sum() for x in m)

    same_value_and_gradients(fast, slow, FEATURES, KAPPA, *means)


def test_intra_class_loss_is_zero_for_single_components() -> None:
    head = mixture([randn(1, DIM, seed=c) for c in range(4)], 6.0)
    assert intra_class_loss(head(FEATURES), ROWS, torch.zeros(6, dtype=torch.long)) == 0


@pytest.mark.parametrize("direction", ["new_old", "old_new"])
def test_intra_class_distillation(direction: Direction) -> None:
    """KL over inherited components, over all images and old classes; each model has its own κ."""
    old, new = old_means(), new_means()
    old_kappa = torch.tensor(9.0, dtype=torch.float64)
    old_features = FEATURES + 0.2 * randn(6, DIM, seed=51)
    old_logits = mixture(old, 9.0)(old_features).detach()

    def fast(leaves: list[Tensor]) -> Tensor:
        features, kappa, *m = leaves
        logits = trained(mixture(new, 6.0), m, kappa)(features)
        return intra_class_distillation(logits, old_logits, direction)

    def slow(leaves: list[Tensor]) -> Tensor:
        features, kappa, *m = leaves
        total = torch.zeros((), dtype=torch.float64)
        for v, v_old in zip(features, old_features, strict=True):
            for c, count in enumerate(OLD_COUNTS):
                p = component_posterior(v, m[c][:count], kappa)
                q = component_posterior(v_old, old[c], old_kappa)
                if direction == "old_new":
                    p, q = q, p
                for a, b in zip(p, q, strict=True):
                    total = total + a * (a / b).log()
        return total / (len(features) * len(OLD_COUNTS)) + 0 * sum(x.sum() for x in m)

    same_value_and_gradients(fast, slow, FEATURES, KAPPA, *new)


def test_distillation_vanishes_for_an_unchanged_model_whatever_was_added() -> None:
    old = old_means()
    head = mixture(old, 6.0)
    old_logits = head(FEATURES)
    head.expand([0, 2, 3], [randn(k, DIM, seed=k) for k in (3, 1, 2)])
    loss = intra_class_distillation(head(FEATURES), old_logits)
    assert loss.abs() < 1e-12


def test_distillation_without_old_classes_or_images_is_zero() -> None:
    logits = mixture(new_means(), 6.0)(FEATURES)
    assert intra_class_distillation(logits, logits.new_empty(6, 0, 0)) == 0
    assert intra_class_distillation(logits[:0], logits[:0, :3, :2]) == 0


def test_distillation_survives_a_certain_posterior() -> None:
    """With κ = 64 and opposite means a posterior is 0 or 1 to machine precision."""
    means = [torch.tensor([[1.0, 0.0], [-1.0, 0.0]])]
    head = MixtureHead(2, 64.0, True)
    head.set_components(means)
    old = head(torch.tensor([[1.0, 0.0]])).detach()
    features = torch.tensor([[-1.0, 0.0]], requires_grad=True)
    loss = intra_class_distillation(head(features), old)
    loss.backward()
    torch.testing.assert_close(loss.item(), 128.0)  # 2κ: its bound
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_component_regularisation() -> None:
    means = new_means()

    def fast(leaves: list[Tensor]) -> Tensor:
        kappa, *m = leaves
        head = trained(mixture(means, 6.0), m, kappa)
        return component_regularisation(head.unit_means(), head.counts()) + 0 * kappa

    def slow(leaves: list[Tensor]) -> Tensor:
        kappa, *m = leaves
        total = 0 * kappa
        for x in m:
            k = len(x)
            for i in range(k):
                for j in range(i + 1, k):
                    total = total + (unit(x[i]) * unit(x[j])).sum() / (k * (k - 1))
        return -total / len(m) + 0 * sum(x.sum() for x in m)

    same_value_and_gradients(fast, slow, KAPPA, *means)


def test_component_regularisation_pulls_means_together() -> None:
    head = mixture([torch.tensor([[1.0, 0.0], [0.0, 1.0]])], 6.0)
    before = (head.unit_means()[0, 0] @ head.unit_means()[0, 1]).item()
    component_regularisation(head.unit_means(), head.counts()).backward()
    assert head.raw_means.grad is not None
    with torch.no_grad():
        head.raw_means.sub_(0.1 * head.raw_means.grad)
    assert (head.unit_means()[0, 0] @ head.unit_means()[0, 1]).item() > before


def test_component_regularisation_is_exactly_zero_for_single_components() -> None:
    head = MixtureHead(DIM, 6.0, True)
    head.set_components([randn(1, DIM, seed=c).float() for c in range(3)])
    loss = component_regularisation(head.unit_means(), head.counts())
    loss.backward()
    assert loss == 0
    assert head.raw_means.grad is not None
    assert not head.raw_means.grad.any()


def test_padding_receives_no_gradient_from_any_loss() -> None:
    head = mixture(new_means(), 6.0)
    old_logits = mixture(old_means(), 6.0)(FEATURES).detach()
    logits = head(FEATURES)
    total = (
        inter_class_loss(head.class_log_scores(FEATURES), ROWS)
        + intra_class_loss(logits, ROWS, ASSIGNED)
        + intra_class_distillation(logits, old_logits)
        + component_regularisation(head.unit_means(), head.counts())
    )
    total.backward()
    assert head.raw_means.grad is not None
    assert head.raw_means.grad.isfinite().all()
    assert not head.raw_means.grad[~head.mask].any()
    assert head.raw_means.grad[head.mask].any(dim=-1).all()


def test_permuting_classes_changes_no_loss() -> None:
    means, order = new_means(), torch.tensor([2, 3, 0, 1])
    head, permuted = mixture(means, 6.0), mixture([means[c] for c in order.tolist()], 6.0)
    rows = order.argsort()[ROWS]
    torch.testing.assert_close(
        inter_class_loss(permuted.class_log_scores(FEATURES), rows),
        inter_class_loss(head.class_log_scores(FEATURES), ROWS),
    )
    torch.testing.assert_close(
        intra_class_loss(permuted(FEATURES), rows, ASSIGNED),
        intra_class_loss(head(FEATURES), ROWS, ASSIGNED),
    )
    torch.testing.assert_close(
        component_regularisation(permuted.unit_means(), permuted.counts()),
        component_regularisation(head.unit_means(), head.counts()),
    )


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, 0.0), (1, 0.01), (9.5, 0.095), (10, 0.1), (150, 0.1)]
)
def test_lambda_grows_over_the_first_ten_epochs(epoch: float, expected: float) -> None:
    assert math.isclose(lambda_at(epoch, 0.1, 10), expected)


def test_lambda_without_a_ramp_is_constant() -> None:
    assert lambda_at(0, 0.1, 0) == 0.1


# -- losses of the hosts and baselines -----------------------------------------------------------


def test_less_forget() -> None:
    old = randn(6, DIM, seed=60)

    def slow(leaves: list[Tensor]) -> Tensor:
        terms = [1 - (unit(f) * unit(g)).sum() for f, g in zip(leaves[0], old, strict=True)]
        return torch.stack(terms).sum() / 6

    same_value_and_gradients(lambda leaves: less_forget(leaves[0], old), slow, FEATURES)


@pytest.mark.parametrize("n_old", [2, 3, 4])
def test_margin_ranking(n_old: int) -> None:
    """Against the two nearest of four, three … new classes, of all samples of old ones."""
    cosines = 0.5 * randn(5, 6, seed=61)
    rows = torch.tensor([0, 1, 5, 3, 1])

    def slow(leaves: list[Tensor]) -> Tensor:
        terms = []
        for scores, y in zip(leaves[0], rows.tolist(), strict=True):
            if y < n_old:
                hardest = sorted(scores[n_old:], key=lambda s: -float(s.detach()))[:2]
                terms += [torch.relu(0.5 - scores[y] + h) for h in hardest]
        return torch.stack(terms).sum() / len(terms)

    same_value_and_gradients(lambda leaves: margin_ranking(leaves[0], rows, n_old), slow, cosines)


def test_margin_ranking_with_one_new_class_uses_that_one() -> None:
    cosines = torch.tensor([[0.6, 0.1, 0.4]])
    loss = margin_ranking(cosines, torch.tensor([0]), n_old=2)
    torch.testing.assert_close(loss, torch.tensor(0.3))


def test_margin_ranking_gives_nothing_for_more_than_the_margin() -> None:
    """0.5 − 0.9 + 0.1 is below 0 and does not make up for 0.5 − 0.9 + 0.6."""
    loss = margin_ranking(torch.tensor([[0.9, 0.1, 0.6]]), torch.tensor([0]), n_old=1)
    torch.testing.assert_close(loss, torch.tensor(0.1))


def test_margin_ranking_without_new_classes_or_samples_of_old_ones_is_zero() -> None:
    cosines = randn(4, 3, seed=62).requires_grad_()
    without_new = margin_ranking(cosines, torch.tensor([0, 1, 2, 0]), n_old=3)
    without_old = margin_ranking(cosines, torch.tensor([1, 1, 2, 2]), n_old=1)
    assert without_new == 0
    assert without_old == 0
    (without_new + without_old).backward()
    assert cosines.grad is not None
    assert not cosines.grad.any()


def test_knowledge_distillation() -> None:
    teacher, temperature = randn(5, 3, seed=63), 2.0

    def slow(leaves: list[Tensor]) -> Tensor:
        total = 0 * leaves[0].sum()
        for student, target in zip(leaves[0], teacher, strict=True):
            weights = [math.exp(t / temperature) for t in target.tolist()]
            scores = [torch.exp(s / temperature) for s in student[:3]]
            for w, s in zip(weights, scores, strict=True):
                total = total - w / sum(weights) * (s / sum(scores)).log()
        return total / 5

    same_value_and_gradients(
        lambda leaves: knowledge_distillation(leaves[0], teacher, temperature),
        slow,
        randn(5, 4, seed=64),
    )


def test_knowledge_distillation_from_a_teacher_without_classes_is_zero() -> None:
    logits = randn(5, 4, seed=64).requires_grad_()
    loss = knowledge_distillation(logits, torch.empty(5, 0, dtype=torch.float64), 2.0)
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_every_loss_of_an_empty_batch_is_zero() -> None:
    logits = mixture(new_means(), 6.0)(FEATURES[:0])
    nothing = torch.empty(0, dtype=torch.long)
    flat = logits[:, :, 0]
    losses = [
        inter_class_loss(flat, nothing),
        intra_class_loss(logits, nothing, nothing),
        less_forget(FEATURES[:0], FEATURES[:0]),
        margin_ranking(flat, nothing, n_old=2),
        knowledge_distillation(flat, flat[:, :2], 2.0),
    ]
    assert [loss.item() for loss in losses] == [0.0] * len(losses)
