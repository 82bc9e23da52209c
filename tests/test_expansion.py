"""Where new components start, and the E-step that gives them their samples."""

from collections.abc import Iterable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from dacr.config import Mixture
from dacr.learning.assignment import assign
from dacr.learning.expansion import InitialMeans, carry_over, k_means_seeds
from dacr.methods.parts.departures import STARTS
from dacr.methods.parts.method import Parts
from dacr.methods.parts.mixture import VmfMixture
from dacr.methods.parts.reading import Reading
from dacr.model.heads import MixtureHead
from tests.learning import CPU, small_params, small_session
from tests.slow_mixture import closest, unit

DIM = 8


def seeds(unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None) -> Tensor:
    """The seeds of k-means, which start the clusters of a memory without mixtures."""
    return k_means_seeds(unit, mixture.components, generator)


EVERY: dict[str, InitialMeans] = {**STARTS, "k_means_seeds": seeds}
FROM_SAMPLES = ("random_sample", "k_means_seeds")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def incoming_data(counts: list[int]) -> tuple[Tensor, Tensor]:
    """Features around one direction per class, with very different lengths, in mixed order."""
    g = generator(1)
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    centres = 4 * torch.randn(len(counts), DIM, generator=g)
    features = centres[rows] + torch.randn(len(rows), DIM, generator=g)
    features *= 10 * torch.rand(len(rows), 1, generator=g) + 0.1
    order = torch.randperm(len(rows), generator=g)
    return features[order], rows[order]


def initial_means(
    name: str,
    features: Tensor,
    rows: Tensor,
    classes: Iterable[int],
    m: int,
    *,
    generator: Generator,
    perturbation: float = 0.5,
    inherited: Sequence[Tensor] = (),
) -> list[Tensor]:
    """Where the new components of ``classes`` start."""
    section = small_params(f"mixture.components={m}", f"mixture.perturbation={perturbation}")
    unit = F.normalize(features, dim=1)
    return [
        EVERY[name](
            unit[rows == row],
            section.mixture,
            generator,
            inherited[row] if row < len(inherited) else None,
        )
        for row in classes
    ]


@pytest.mark.parametrize("initialisation", EVERY)
def test_every_incoming_class_gets_m_unit_means(initialisation: str) -> None:
    features, rows = incoming_data([20, 30, 25])
    means = initial_means(initialisation, features, rows, [2, 0], 7, generator=generator())
    assert [tuple(m.shape) for m in means] == [(7, DIM), (7, DIM)]
    for m in means:
        torch.testing.assert_close(m.norm(dim=1), torch.ones(7))


@pytest.mark.parametrize("initialisation", EVERY)
def test_the_generator_alone_decides(initialisation: str) -> None:
    features, rows = incoming_data([20, 30])
    state = torch.get_rng_state()
    first, same, other = (
        torch.cat(initial_means(initialisation, features, rows, [0, 1], 5, generator=generator(s)))
        for s in (3, 3, 4)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("initialisation", FROM_SAMPLES)
def test_means_are_distinct_samples_of_their_own_class(initialisation: str) -> None:
    features, rows = incoming_data([20, 30])
    means = initial_means(initialisation, features, rows, [0, 1], 9, generator=generator())
    for row, m in enumerate(means):
        own = F.normalize(features[rows == row], dim=1)
        matches = (m.unsqueeze(1) == own.unsqueeze(0)).all(dim=-1)
        assert matches.any(dim=1).all()
        assert matches.any(dim=0).sum() == 9


@pytest.mark.parametrize("initialisation", FROM_SAMPLES)
def test_a_class_with_fewer_samples_than_m_gets_them_all(initialisation: str) -> None:
    features, rows = incoming_data([3, 30])
    means = initial_means(initialisation, features, rows, [0, 1], 10, generator=generator())
    assert [len(m) for m in means] == [3, 10]
    own = F.normalize(features[rows == 0], dim=1)
    assert sorted(map(tuple, means[0].tolist())) == sorted(map(tuple, own.tolist()))


@pytest.mark.parametrize("initialisation", FROM_SAMPLES)
def test_copies_of_one_sample_are_no_obstacle(initialisation: str) -> None:
    features, rows = torch.ones(6, DIM), torch.zeros(6, dtype=torch.long)
    (means,) = initial_means(initialisation, features, rows, [0], 4, generator=generator())
    torch.testing.assert_close(means, F.normalize(torch.ones(4, DIM), dim=1))


def test_seeds_take_each_sample_once_even_if_they_hardly_differ() -> None:
    shift = 1e-9 * torch.arange(4, dtype=torch.float64)
    features = torch.stack([torch.ones_like(shift), shift], dim=1)
    rows = torch.zeros(4, dtype=torch.long)
    for seed in range(5):
        (means,) = initial_means("k_means_seeds", features, rows, [0], 4, generator=generator(seed))
        assert len(means[:, 1].unique()) == 4


def test_random_samples_are_drawn_uniformly() -> None:
    features, rows = torch.eye(DIM), torch.zeros(DIM, dtype=torch.long)
    g = generator()
    drawn = sum(
        initial_means("random_sample", features, rows, [0], 2, generator=g)[0].sum(dim=0)
        for _ in range(2000)
    )
    assert isinstance(drawn, Tensor)
    # Each of 8 samples is among 2 chosen with probability 1/4: 500 ± 19 of 2000.
    assert (drawn - 500).abs().max() < 5 * 19.4


def test_seeds_reach_every_distant_group() -> None:
    """One group of 300 and three lone samples, all orthogonal: random samples would miss them."""
    g = generator(5)
    rows_of = torch.tensor([0] * 300 + [1, 2, 3])
    features = torch.eye(DIM)[rows_of] + 1e-3 * torch.randn(303, DIM, generator=g)
    rows = torch.zeros(303, dtype=torch.long)
    for seed in range(10):
        (means,) = initial_means("k_means_seeds", features, rows, [0], 4, generator=generator(seed))
        assert set(means.argmax(dim=1).tolist()) == {0, 1, 2, 3}


def test_mean_perturbed_surrounds_the_class_mean_at_the_given_scale() -> None:
    """In many dimensions a random direction is orthogonal to the mean: cos = 1/sqrt(1 + s²)."""
    noise = torch.randn(41, 20_000, generator=generator(2))
    features, rows = noise[0] + 3 * noise[1:], torch.zeros(40, dtype=torch.long)
    centre = F.normalize(F.normalize(features, dim=1).mean(dim=0), dim=0)
    for scale in (0.0, 0.5, 2.0):
        (means,) = initial_means(
            "mean_perturbed", features, rows, [0], 6, generator=generator(), perturbation=scale
        )
        expected = torch.full((6,), (1 + scale**2) ** -0.5)
        torch.testing.assert_close(means @ centre, expected, atol=0.02, rtol=0)


def test_random_vectors_ignore_the_data() -> None:
    features, rows = incoming_data([20])
    first = initial_means("random_vector", features, rows, [0], 5, generator=generator())
    second = initial_means("random_vector", -features, rows, [0], 5, generator=generator())
    assert torch.equal(first[0], second[0])


# -- a representation that grows -----------------------------------------------------------------

COUNTS = [2, 3, 1]


def inherited_head() -> MixtureHead:
    head = MixtureHead(DIM, 5.0, False)
    head.set_components([4 * torch.randn(k, DIM, generator=generator(k)) for k in COUNTS])
    return head


@pytest.mark.parametrize("block", [3, DIM])
def test_means_are_carried_over_to_their_exemplars(block: int) -> None:
    """Exemplars of all classes, two each, besides new data of class 1, which must not count."""
    head, session = inherited_head(), small_session(2, [0, 1, 2], [1], [0, 1, 2], each=12)
    old = head.components()
    features = torch.randn(18, DIM + block, generator=generator(5))
    features *= 1 + 9 * torch.rand(18, 1, generator=generator(6))
    carry_over(head, features, session)
    with_exemplars = 0
    for row, means in enumerate(head.components()):
        assert means.shape == (COUNTS[row], DIM + block)
        exemplars = [
            features[i]
            for i in range(18)
            if session.data.is_memory[i] and session.data.labels[i] == row
        ]
        assert len(exemplars) == 2
        for k, mean in enumerate(means):
            own = [unit(v) for v in exemplars if closest(v[:DIM], old[row]) == k]
            expected = sum(own) if own else torch.cat([old[row][k], old[row][k][DIM - block :]])
            assert isinstance(expected, Tensor)
            torch.testing.assert_close(mean, unit(expected))
            with_exemplars += bool(own)
    assert 3 < with_exemplars < sum(COUNTS), "the case is too easy"


@pytest.mark.parametrize(("dim", "seen"), [(DIM, [0, 1, 2]), (DIM + 3, [])])
def test_nothing_is_carried_over_without_a_new_block_or_old_classes(
    dim: int, seen: list[int]
) -> None:
    head = inherited_head()
    before = head.state_dict()
    session = small_session(2, seen, [0, 1, 2], seen)
    carry_over(head, torch.randn(len(session.data), dim, generator=generator()), session)
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name])


# -- the E-step ----------------------------------------------------------------------------------


def test_assignment_is_the_closest_component_of_the_own_class() -> None:
    counts = [4, 1, 6]
    features, rows = incoming_data([20, 10, 30])
    head = MixtureHead(DIM, 5.0, False)
    head.set_components([5 * torch.randn(k, DIM, generator=generator(k)) for k in counts])
    assigned = assign(head, features, rows)
    means = head.components()
    for v, row, z in zip(features, rows.tolist(), assigned.tolist(), strict=True):
        assert z == closest(v, means[row])


def test_assignment_ignores_closer_components_of_other_classes() -> None:
    head = MixtureHead(2, 5.0, False)
    head.set_components([torch.tensor([[1.0, 0.0], [0.9, 0.1]]), torch.tensor([[-1.0, 0.0]])])
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.2]])
    assert assign(head, features, torch.tensor([1, 0])).tolist() == [0, 1]


def test_assignment_needs_no_sample_of_every_class() -> None:
    head = MixtureHead(2, 5.0, False)
    head.set_components([torch.eye(2), torch.eye(2)])
    features, rows = torch.tensor([[0.0, 1.0]]), torch.tensor([1])
    assert assign(head, features, rows).tolist() == [1]
    assert assign(head, features[:0], rows[:0]).shape == (0,)


def test_a_mean_started_on_a_sample_wins_that_sample() -> None:
    """Expansion from samples is alive from the first E-step, against any trained component."""
    features, rows = incoming_data([30, 30])
    head = MixtureHead(DIM, 5.0, False)
    head.expand([0], [F.normalize(features[rows == 0].mean(dim=0, keepdim=True), dim=1)])
    new = initial_means("random_sample", features, rows, [0, 1], 5, generator=generator())
    head.expand([0, 1], new)
    won = [set(assign(head, features, rows)[rows == row].tolist()) for row in (0, 1)]
    assert won[0] >= {1, 2, 3, 4, 5}
    assert won[1] == {0, 1, 2, 3, 4}


def test_anchored_components_start_half_way_to_the_inherited_means() -> None:
    """The new domain is at 90°, class 0 was at 0° (means at ±30°): 45°; class 1 is new: 90°."""
    degrees = torch.tensor([80.0, 100.0, 80.0, 100.0]).deg2rad()
    features = torch.stack([degrees.cos(), degrees.sin()], 1)
    rows = torch.tensor([0, 0, 1, 1])
    old = torch.tensor([-30.0, 30.0]).deg2rad()
    inherited = [7 * torch.stack([old.cos(), old.sin()], 1)]
    means = initial_means(
        "anchored",
        features,
        rows,
        [0, 1],
        1,
        generator=generator(),
        perturbation=0.0,
        inherited=inherited,
    )
    angles = [torch.atan2(m[0, 1], m[0, 0]).rad2deg().item() for m in means]
    assert angles == pytest.approx([45, 90], abs=1e-3)


def test_only_anchored_components_can_tell_classes_of_an_unknown_domain_apart() -> None:
    """Ten classes known apart, all in one place in the new domain: L_inter's pull on a feature."""
    g = generator()
    inherited = [row.unsqueeze(0) for row in torch.eye(10, 16)]
    place = F.normalize(torch.ones(16), dim=0)
    features = place + 0.01 * torch.randn(100, 16, generator=g)
    rows = torch.arange(10).repeat(10)

    def pull(initialisation: str) -> float:
        head = MixtureHead(16, kappa=16.0, kappa_learnable=False)
        head.set_components(inherited)
        means = initial_means(
            initialisation,
            features,
            rows,
            range(10),
            5,
            generator=generator(),
            perturbation=0.1,
            inherited=inherited,
        )
        head.expand(range(10), means)
        points = features.clone().requires_grad_()
        F.cross_entropy(head.class_log_scores(points), rows).backward()
        assert points.grad is not None
        return points.grad.norm().item()

    assert pull("anchored") > 5 * pull("mean_perturbed")


# -- of a session ---------------------------------------------------------------------------------


def test_new_components_see_the_incoming_samples_of_their_class_and_its_inherited_means() -> None:
    """Class 0 is there by exemplars alone, class 1 comes again, class 2 is new."""
    asked: list[tuple[Tensor, Tensor | None]] = []

    def start(
        unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None
    ) -> Tensor:
        asked.append((unit, inherited))
        return unit[: mixture.components]

    class Watched(VmfMixture):
        def __init__(self, setting, dim):
            super().__init__(setting, dim, Reading(start=start))

    method = Parts(classifier=Watched).make(small_params("method=replay", "~options.prior"), CPU)
    method.begin(small_session(1, [], [0, 1], []))
    assert [inherited for _, inherited in asked] == [None, None]
    before = method.classifier.head.components()
    asked.clear()
    session = small_session(2, [0, 1], [1, 2], [0, 1], domain=1)
    method.begin(session)
    unit = F.normalize(method.session_features(session), dim=1)
    for (seen, inherited), row in zip(asked, (1, 2), strict=True):
        own = ~session.data.is_memory & (session.data.labels == row)
        torch.testing.assert_close(seen, unit[own])
        if row == 1:
            assert inherited is not None
            assert torch.equal(inherited, before[1])
        else:
            assert inherited is None
    assert method.classifier.head.counts().tolist() == [3, 6, 3]
    assert method.classifier.head.inherited.tolist() == [3, 3, 0]
    for row in (0, 1):
        assert torch.equal(method.classifier.head.components()[row][:3], before[row])
