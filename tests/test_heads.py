"""Heads against loops written from the paper's formulas, and their growth and storage."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from dacr.model.heads import (
    KAPPA_RANGE,
    CosineHead,
    Head,
    LinearHead,
    MixtureHead,
    class_log_scores,
)
from tests.slow_mixture import class_posterior, closest, component_posterior

DIM = 6
COUNTS = [3, 1, 4, 2]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def class_means(counts: list[int], seed: int = 1) -> list[Tensor]:
    g = generator(seed)
    # Lengths far from 1: only directions may matter.
    return [3 * torch.randn(k, DIM, generator=g, dtype=torch.float64) for k in counts]


def mixture(means: list[Tensor], kappa: float = 5.0, learnable: bool = True) -> MixtureHead:
    head = MixtureHead(DIM, kappa, learnable).double()
    head.set_components(means)
    return head


def batch(n: int = 7, seed: int = 2) -> Tensor:
    return 2 * torch.randn(n, DIM, generator=generator(seed), dtype=torch.float64)


# -- the mixture ---------------------------------------------------------------------------------


def test_class_posterior_is_equation_11() -> None:
    means, features = class_means(COUNTS), batch()
    kappa = torch.tensor(5.0, dtype=torch.float64)
    expected = [torch.stack(class_posterior(v, means, kappa)) for v in features]
    torch.testing.assert_close(
        mixture(means).class_log_posterior(features).exp(), torch.stack(expected)
    )


def test_class_posterior_of_a_hand_computed_case() -> None:
    """Two components at cosines 1 and 0 against one at cosine 0, κ = 2: (e² + 1)/2 against 1."""
    head = MixtureHead(2, 2.0, False)
    head.set_components([torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.0, -1.0]])])
    numerator = (torch.e**2 + 1) / 2
    scores = head.class_log_scores(torch.tensor([[5.0, 0.0]])).exp()
    torch.testing.assert_close(scores, torch.tensor([[numerator, 1.0]]))


def test_component_posterior_is_equation_10() -> None:
    means, features = class_means(COUNTS), batch()
    rows = torch.tensor([0, 1, 2, 3, 2, 0, 1])
    kappa = torch.tensor(5.0, dtype=torch.float64)
    posterior = mixture(means).component_log_posterior(features, rows).exp()
    for v, row, got in zip(features, rows.tolist(), posterior, strict=True):
        k = COUNTS[row]
        torch.testing.assert_close(got[:k], torch.stack(component_posterior(v, means[row], kappa)))
        assert not got[k:].any()


def test_nearest_is_the_closest_mean_of_all_classes() -> None:
    means, features = class_means(COUNTS), batch(50)
    rows, components = mixture(means).nearest(features)
    owners = [(row, k) for row, count in enumerate(COUNTS) for k in range(count)]
    for v, row, k in zip(features, rows.tolist(), components.tolist(), strict=True):
        assert owners[closest(v, torch.cat(means))] == (row, k)


def test_nearest_never_answers_a_padded_component() -> None:
    """All real cosines are negative here; the zeros of the padding must not win."""
    head = MixtureHead(2, 2.0, False)
    head.set_components([torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.1], [1.0, -0.1]])])
    rows, components = head.nearest(torch.tensor([[-1.0, -0.05]]))
    assert (rows.item(), components.item()) == (1, 1)


def test_gradients_equal_those_of_the_slow_reference() -> None:
    means, features, rows = class_means(COUNTS), batch(), torch.tensor([0, 1, 2, 3, 2, 0, 1])

    leaves = [m.clone().requires_grad_() for m in means]
    slow_features = features.clone().requires_grad_()
    slow_kappa = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    slow = sum(
        class_posterior(v, leaves, slow_kappa)[y].log()
        for v, y in zip(slow_features, rows.tolist(), strict=True)
    )
    assert isinstance(slow, Tensor)
    slow.backward()

    head = mixture(means)
    fast_features = features.clone().requires_grad_()
    log_posterior = head.class_log_posterior(fast_features)
    log_posterior[torch.arange(len(rows)), rows].sum().backward()

    assert head.raw_means.grad is not None
    assert head.learnable_kappa is not None
    torch.testing.assert_close(fast_features.grad, slow_features.grad)
    torch.testing.assert_close(head.learnable_kappa.grad, slow_kappa.grad)
    for row, leaf in enumerate(leaves):
        torch.testing.assert_close(head.raw_means.grad[row, : len(leaf)], leaf.grad)
        assert not head.raw_means.grad[row, len(leaf) :].any()


def test_padding_stays_exactly_zero_under_sgd_with_momentum_and_decay() -> None:
    head = mixture(class_means(COUNTS))
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for seed in range(5):
        optimizer.zero_grad()
        features = batch(9, seed)
        (head.class_log_posterior(features).sum() + head(features)[:, :, 0].sum()).backward()
        optimizer.step()
    assert head.raw_means.isfinite().all()
    assert not head.raw_means[~head.mask].any()


def test_one_component_per_class_is_the_cosine_classifier() -> None:
    means, features = class_means([1, 1, 1]), batch()
    cosine = CosineHead(DIM, 3, generator(), scale_init=5.0).double()
    with torch.no_grad():
        cosine.weight.copy_(torch.cat(means))
    torch.testing.assert_close(mixture(means).class_log_scores(features), cosine(features))


def test_permuting_classes_and_components_permutes_the_answers() -> None:
    means, features = class_means(COUNTS), batch()
    classes = [2, 0, 3, 1]
    orders = [torch.randperm(k, generator=generator(k)) for k in COUNTS]
    original = mixture(means)
    permuted = mixture([means[c][orders[c]] for c in classes])
    torch.testing.assert_close(
        permuted.class_log_scores(features), original.class_log_scores(features)[:, classes]
    )
    rows, components = original.nearest(features)
    new_rows, new_components = permuted.nearest(features)
    for row, k, new_row, new_k in zip(rows, components, new_rows, new_components, strict=True):
        assert classes[int(new_row)] == int(row)
        assert int(orders[int(row)][int(new_k)]) == int(k)


def test_sharing_the_logits_gives_the_same_scores() -> None:
    head, features = mixture(class_means(COUNTS)), batch()
    shared = class_log_scores(head(features), head.counts())
    torch.testing.assert_close(shared, head.class_log_scores(features))


def test_an_empty_batch_gives_empty_answers() -> None:
    head = mixture(class_means(COUNTS))
    assert head.class_log_posterior(batch(0)).shape == (0, 4)
    assert head.nearest(batch(0))[0].shape == (0,)


# -- κ -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "pushes"), [(70.0, "up"), (64.0, "up"), (1.0, "down"), (0.2, "down")]
)
def test_kappa_outside_its_range_is_clamped_and_moves_only_inwards(
    start: float, pushes: str
) -> None:
    head = MixtureHead(DIM, start, True)
    assert KAPPA_RANGE == (1.0, 64.0)
    assert head.kappa.item() == (64.0 if pushes == "up" else 1.0)
    outward = -0.5 if pushes == "up" else 0.5  # SGD steps against the gradient
    gradients = []
    for direction in (outward, -outward):
        head.zero_grad()
        (direction * head.kappa).backward()
        assert head.learnable_kappa is not None
        assert head.learnable_kappa.grad is not None
        gradients.append(head.learnable_kappa.grad.item())
    assert gradients == [0.0, -outward]


def test_fixed_kappa_is_no_parameter_and_is_not_clamped() -> None:
    head = MixtureHead(DIM, 100.0, False)
    assert head.kappa.item() == 100.0
    assert [name for name, _ in head.named_parameters()] == ["raw_means"]


# -- components ----------------------------------------------------------------------------------


def test_an_empty_mixture_has_no_class_and_no_component() -> None:
    head = MixtureHead(DIM, 5.0, True)
    assert head(batch().float()).shape == (7, 0, 0)
    assert {name: (tuple(t.shape), t.dtype) for name, t in head.state_dict().items()} == {
        "learnable_kappa": ((), torch.float32),
        "raw_means": ((0, 0, DIM), torch.float32),
        "mask": ((0, 0), torch.bool),
        "inherited": ((0,), torch.long),
    }


def test_expand_appends_and_keeps_what_was_there() -> None:
    means = class_means(COUNTS)
    head = mixture(means)
    g = generator(9)
    new = [torch.randn(k, DIM, generator=g, dtype=torch.float64) for k in (2, 5, 1)]
    head.expand([1, 4, 5], new)  # one old class, two new ones
    assert head.counts().tolist() == [3, 3, 4, 2, 5, 1]
    expected = [means[0], torch.cat([means[1], new[0]]), means[2], means[3], new[1], new[2]]
    for got, want in zip(head.components(), expected, strict=True):
        assert torch.equal(got, want)
    assert not head.raw_means[~head.mask].any()


def test_expand_starts_an_empty_head() -> None:
    head = MixtureHead(DIM, 5.0, False)
    head.expand([0, 1], [torch.ones(3, DIM), torch.ones(3, DIM)])
    assert head.counts().tolist() == [3, 3]


def test_expand_refuses_to_skip_a_row() -> None:
    with pytest.raises(IndexError):
        mixture(class_means(COUNTS)).expand([5], [torch.ones(1, DIM)])


def test_set_components_shrinks_the_padding_and_may_change_the_dimension() -> None:
    head = mixture(class_means(COUNTS))
    head.set_components([torch.ones(2, 10), torch.ones(1, 10)])
    assert head.raw_means.shape == (2, 2, 10)
    assert head(torch.ones(1, 10).double()).shape == (1, 2, 2)


def test_set_components_of_no_class_keeps_the_dimension() -> None:
    head = mixture(class_means(COUNTS))
    head.set_components([])
    assert head.raw_means.shape == (0, 0, DIM)
    assert head.mask.shape == (0, 0)


def test_components_are_copies_without_a_gradient() -> None:
    head = mixture(class_means(COUNTS))
    before = head.raw_means.detach().clone()
    for means in head.components():
        assert not means.requires_grad
        means.zero_()
    assert torch.equal(head.raw_means, before)


def test_a_grown_class_is_one_unit_direction() -> None:
    head = mixture(class_means(COUNTS))
    head.grow(3, generator(4))
    assert head.counts().tolist() == [*COUNTS, 1, 1, 1]
    new = torch.cat(head.components()[len(COUNTS) :])
    torch.testing.assert_close(new.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert (new.abs().amax(dim=1) < 0.999).all()
    assert len(new.unique(dim=0)) == 3


def test_a_class_without_components_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one component"):
        mixture([torch.ones(1, DIM), torch.empty(0, DIM)])


# -- linear and cosine heads ---------------------------------------------------------------------


def test_a_cosine_head_has_scale_one_by_default() -> None:
    head, features = CosineHead(DIM, 3, generator()), batch().float()
    assert torch.equal(head(features), head.cosines(features))


def test_a_linear_head_needs_no_more_than_one_feature() -> None:
    head = LinearHead(1, 3, generator())
    features = torch.tensor([[2.0], [-1.0]])
    assert head.bias is not None
    expected = [[2 * w.item() + b.item() for w, b in zip(head.weight, head.bias, strict=True)]]
    expected += [[-w.item() + b.item() for w, b in zip(head.weight, head.bias, strict=True)]]
    torch.testing.assert_close(head(features), torch.tensor(expected))


def test_cosine_head_is_scale_times_cosine() -> None:
    head = CosineHead(DIM, 3, generator(), scale_init=4.0)
    features = batch().float()
    expected = torch.stack(
        [torch.stack([4 * (v @ w) / (v.norm() * w.norm()) for w in head.weight]) for v in features]
    )
    torch.testing.assert_close(head(features), expected)
    torch.testing.assert_close(head.cosines(features), expected / 4)


def test_imprint_takes_the_direction_of_the_means_and_the_norm_of_the_old_rows() -> None:
    head = CosineHead(2, 3, generator())
    with torch.no_grad():
        head.weight[:2] = torch.tensor([[3.0, 4.0], [0.0, 1.0]])  # norms 5 and 1: mean 3
    head.imprint([2], torch.tensor([[0.2, 0.0]]))
    torch.testing.assert_close(
        head.weight.detach(), torch.tensor([[3.0, 4.0], [0.0, 1.0], [3.0, 0.0]])
    )


def test_imprint_of_every_row_has_unit_norm() -> None:
    head = CosineHead(2, 1, generator())
    head.imprint([0], torch.tensor([[0.0, 0.5]]))
    torch.testing.assert_close(head.weight.detach(), torch.tensor([[0.0, 1.0]]))


MAKERS: dict[str, Callable[[int, torch.Generator], Head]] = {
    "linear": lambda rows, g: LinearHead(DIM, rows, g),
    "linear without bias": lambda rows, g: LinearHead(DIM, rows, g, bias=False),
    "cosine": lambda rows, g: CosineHead(DIM, rows, g, scale_init=2.0),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_weights_are_uniform_within_one_over_sqrt_dim(kind: str) -> None:
    head = MAKERS[kind](3000, generator())
    assert isinstance(head, LinearHead | CosineHead)
    bound = DIM**-0.5
    assert head.weight.abs().max() <= bound
    torch.testing.assert_close(head.weight.std().item(), bound / 3**0.5, rtol=0.02, atol=0)


@pytest.mark.parametrize("kind", [*MAKERS, "mixture"])
def test_growing_keeps_old_bits_and_depends_on_the_generator_alone(kind: str) -> None:
    def grown(seed: int) -> Head:
        head: Head
        if kind == "mixture":
            head = MixtureHead(DIM, 5.0, False)
            head.grow(3, generator(1))
        else:
            head = MAKERS[kind](3, generator(1))
        head.grow(0, generator(7))
        before = {name: p.clone() for name, p in head.named_parameters()}
        head.grow(2, generator(seed))
        for name, old in before.items():
            parameter = head.get_parameter(name)
            assert torch.equal(parameter[: len(old)] if old.dim() else parameter, old)
        return head

    global_state = torch.get_rng_state()
    first, same, other = grown(5), grown(5), grown(6)
    assert torch.equal(torch.get_rng_state(), global_state)
    features = batch().float()
    assert first(features).shape[1] == 5
    assert torch.equal(first(features), same(features))
    assert torch.equal(first(features)[:, :3], other(features)[:, :3])
    assert (first(features)[:, 3:] != other(features)[:, 3:]).all()


@pytest.mark.parametrize("kind", MAKERS)
def test_new_dimensions_of_features_do_not_count_at_first(kind: str) -> None:
    head = MAKERS[kind](3, generator(1))
    features, block = batch().float(), torch.randn(7, 4, generator=generator(8))
    before = head(features)
    head.widen(DIM)
    assert torch.equal(head(features), before)
    head.widen(DIM + 4)
    wider = head(torch.cat([features, block], 1))
    if kind == "cosine":  # a longer feature has smaller cosines, by the same factor for all classes
        factor = features.norm(dim=1) / torch.cat([features, block], 1).norm(dim=1)
        before = before * factor.unsqueeze(1)
    torch.testing.assert_close(wider, before)
    head.grow(1, generator(2))
    assert head(torch.cat([features, block], 1)).shape == (7, 4)


# -- storage -------------------------------------------------------------------------------------


def ragged(learnable: bool) -> MixtureHead:
    head = MixtureHead(DIM, 7.0, learnable)
    head.set_components([means.float() for means in class_means(COUNTS)])
    return head


@pytest.mark.parametrize(
    ("head", "rebuilt"),
    [
        (LinearHead(DIM, 4, generator()), LinearHead(2, 0, generator())),
        (LinearHead(DIM, 4, generator(), bias=False), LinearHead(2, 0, generator(), bias=False)),
        (CosineHead(DIM, 4, generator(), scale_init=3.0), CosineHead(2, 0, generator())),
        (ragged(True), MixtureHead(2, 1.0, True)),
        (ragged(False), MixtureHead(2, 1.0, False)),
        (MixtureHead(DIM, 7.0, True), MixtureHead(2, 1.0, True)),
    ],
    ids=["linear", "no bias", "cosine", "learnable kappa", "fixed kappa", "empty mixture"],
)
def test_an_empty_head_is_filled_from_a_file(head: Head, rebuilt: Head, tmp_path: Path) -> None:
    """Numbers of classes, components and dimensions come from the file."""
    save_file(head.state_dict(), tmp_path / "head.safetensors")
    rebuilt.restore(load_file(tmp_path / "head.safetensors"))
    assert list(rebuilt.state_dict()) == list(head.state_dict())
    assert [n for n, _ in rebuilt.named_parameters()] == [n for n, _ in head.named_parameters()]
    features = batch().float()
    assert torch.equal(rebuilt(features), head(features))
    rebuilt.grow(1, generator(3))
    assert rebuilt(features).shape[1] == head(features).shape[1] + 1


def test_a_rebuilt_head_does_not_share_memory_with_its_state() -> None:
    head = ragged(True)
    rebuilt = MixtureHead(DIM, 1.0, True)
    rebuilt.restore(head.state_dict())
    with torch.no_grad():
        rebuilt.raw_means.zero_()
    assert head.raw_means.abs().sum() > 0
    assert not F.normalize(rebuilt.raw_means, dim=-1).any()


@pytest.mark.parametrize(
    ("head", "other"),
    [
        (ragged(True), MixtureHead(DIM, 7.0, False)),
        (ragged(False), MixtureHead(DIM, 7.0, True)),
        (LinearHead(DIM, 4, generator()), LinearHead(DIM, 0, generator(), bias=False)),
        (LinearHead(DIM, 4, generator()), CosineHead(DIM, 0, generator())),
    ],
    ids=["learnable kappa", "fixed kappa", "bias", "another head"],
)
def test_a_file_of_another_head_is_refused(head: Head, other: Head) -> None:
    with pytest.raises(RuntimeError, match=r"Missing key|Unexpected key"):
        other.restore(head.state_dict())
