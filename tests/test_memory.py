"""Exemplar selection: quotas, balance, herding by its definition, and components by clustering."""

import math
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dacr.config import Memory
from dacr.learning import memory
from dacr.learning.expansion import k_means_seeds
from dacr.learning.memory import component_quotas, herding, select_memory
from tests.learning import small_params
from tests.tiny_pipeline import run, tiny_params

STRATEGIES = get_args(Memory.model_fields["strategy"].annotation)


def section(size: int, strategy: str = "bilevel", inside: str = "random") -> Memory:
    return Memory.model_validate({"size": size, "strategy": strategy, "inside": inside})


def cluster_components(
    features: Tensor, rows: Tensor, delta: float, m: int, generator: torch.Generator
) -> Tensor:
    reduction = small_params(f"reduction.delta={delta}").reduction
    return memory.cluster_components(features, rows, m, reduction, generator)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def data(counts: list[int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Rows in mixed order, features, and unbalanced components, up to 4 per class."""
    g = generator(seed)
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    rows = rows[torch.randperm(len(rows), generator=g)]
    features = torch.randn(len(rows), 5, generator=g)
    components = (4 * torch.rand(len(rows), generator=g) ** 3).long()
    return rows, features, components


def incoming(rows: Tensor) -> Tensor:
    """The flag is_memory where nothing comes from the memory."""
    return torch.zeros_like(rows, dtype=torch.bool)


# -- quotas --------------------------------------------------------------------------------------


@given(
    support=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    quota=st.integers(0, 120),
    seed=st.integers(0, 100),
)
def test_component_quotas_fill_the_class_as_evenly_as_the_samples_allow(
    support: list[int], quota: int, seed: int
) -> None:
    quotas = component_quotas(support, quota, generator(seed))
    assert sum(quotas) == min(quota, sum(support))
    assert all(0 <= q <= s for q, s in zip(quotas, support, strict=True))
    for q, s in zip(quotas, support, strict=True):
        # Whoever is two places behind the largest has nothing more to give.
        assert q >= max(quotas) - 1 or q == s


def test_component_quotas_by_hand() -> None:
    """20 places: 2 and 3 give all, the remaining 15 go half and half, one of them by lot."""
    quotas = component_quotas([100, 2, 3, 50], 20, generator())
    assert quotas[1:3] == [2, 3]
    assert sorted((quotas[0], quotas[3])) == [7, 8]


def test_leftover_places_go_to_components_by_lot() -> None:
    """One place for three components: each gets it about as often."""
    g = generator()
    wins = [0, 0, 0]
    for _ in range(3000):
        wins[component_quotas([5, 5, 5], 1, g).index(1)] += 1
    assert all(abs(count - 1000) < 5 * math.sqrt(3000 * 2 / 9) for count in wins)


# -- selection -----------------------------------------------------------------------------------


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    budget=st.integers(0, 100),
    strategy=st.sampled_from(STRATEGIES),
    seed=st.integers(0, 1000),
)
@settings(deadline=None)
def test_every_class_gets_its_quota_and_the_budget_holds(
    counts: list[int], budget: int, strategy: str, seed: int
) -> None:
    rows, features, components = data(counts, seed)
    n_classes = len(counts)
    positions = select_memory(
        section(budget, strategy),
        rows,
        incoming(rows),
        n_classes,
        features=features,
        components=components,
        generator=generator(seed),
    )
    assert positions.dtype == torch.long
    assert len(positions) <= budget
    assert len(positions.unique()) == len(positions)
    chosen = rows[positions].bincount(minlength=n_classes).tolist()
    assert chosen == [min(budget // n_classes, count) for count in counts]


def test_bilevel_balances_the_components_of_each_class() -> None:
    rows = torch.tensor([0] * 100 + [1] * 60)
    components = torch.tensor([0] * 90 + [1] * 8 + [2] * 2 + [0] * 30 + [1] * 30)
    positions = select_memory(
        section(41),
        rows,
        incoming(rows),
        2,
        features=torch.zeros(160, 1),
        components=components,
        generator=generator(),
    )
    shares = [components[positions[rows[positions] == row]].bincount().tolist() for row in (0, 1)]
    assert shares == [[10, 8, 2], [10, 10]]


def test_bilevel_with_one_component_per_class_is_a_class_balanced_random_memory() -> None:
    rows, features, _ = data([50, 50])
    zeros = torch.zeros_like(rows)
    picked = torch.zeros(100)
    for seed in range(400):
        positions = select_memory(
            section(20),
            rows,
            incoming(rows),
            2,
            features=features,
            components=zeros,
            generator=generator(seed),
        )
        picked[positions] += 1
    # Each sample has probability 10/50: 80 ± 8 of 400.
    assert (picked - 80).abs().max() < 5 * 8


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_selection_depends_on_the_generator_alone(strategy: str) -> None:
    rows, features, components = data([40, 30, 20])

    def select(seed: int) -> list[int]:
        positions = select_memory(
            section(30, strategy),
            rows,
            incoming(rows),
            3,
            features=features,
            components=components,
            generator=generator(seed),
        )
        return [int(position) for position in positions]

    state = torch.get_rng_state()
    assert select(1) == select(1)
    assert (select(1) == select(2)) == (strategy == "herding")
    assert torch.equal(torch.get_rng_state(), state)


def test_bilevel_herding_herds_inside_each_component() -> None:
    rows, features, components = data([60, 45])
    chosen = select_memory(
        section(24, inside="herding"),
        rows,
        incoming(rows),
        2,
        features=features,
        components=components,
        generator=generator(),
    )
    for row in range(2):
        for k in range(4):
            own = ((rows == row) & (components == k)).nonzero().squeeze(1)
            taken = [i for i in chosen.tolist() if i in own.tolist()]
            assert taken == own[herding(features[own], len(taken))].tolist()
    assert len(chosen) == 24


# -- herding -------------------------------------------------------------------------------------


def slow_herding(features: Tensor, k: int) -> list[int]:
    """iCaRL's Algorithm 4: p_i = argmin ‖μ − (φ(x) + Σ_{j<i} φ(p_j))/i‖, without repetition."""
    unit = [v / v.norm() for v in features.double()]
    mean = torch.stack(unit).mean(dim=0)
    chosen: list[int] = []
    for i in range(1, min(k, len(unit)) + 1):
        total = sum((unit[j] for j in chosen), torch.zeros_like(mean))
        gaps = [
            math.inf if x in chosen else float((mean - (unit[x] + total) / i).norm())
            for x in range(len(unit))
        ]
        chosen.append(gaps.index(min(gaps)))
    return chosen


@pytest.mark.parametrize(("n", "k"), [(1, 1), (25, 10), (12, 12), (8, 20)])
@pytest.mark.parametrize("seed", range(4))
def test_herding_is_the_greedy_definition(n: int, k: int, seed: int) -> None:
    features = 3 * torch.randn(n, 6, generator=generator(seed)) + 1
    assert herding(features, k).tolist() == slow_herding(features, k)


def test_herding_takes_nothing_twice_even_when_all_the_rest_lead_away() -> None:
    """Three copies and their opposite, mean 1/2: after two copies only the opposite leads back."""
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert herding(features, 4).tolist() == [0, 1, 3, 2]


def test_a_prefix_of_herding_is_the_herding_of_fewer() -> None:
    features = torch.randn(40, 6, generator=generator())
    assert herding(features, 15)[:6].tolist() == herding(features, 6).tolist()


def test_a_class_without_new_data_keeps_the_first_of_its_herded_exemplars() -> None:
    """Class 0 is memory alone, class 1 has new data besides, class 2 is new."""
    rows = torch.tensor([2, 1, 1, 2, 1, 2, 1, 0, 1, 0, 0, 1, 0])
    is_memory = torch.arange(13) >= 7
    features = torch.randn(13, 5, generator=generator(2))
    chosen = select_memory(
        section(9, "herding"),
        rows,
        is_memory,
        3,
        features=features,
        components=None,
        generator=generator(),
    ).tolist()
    assert chosen[:3] == [7, 9, 10]
    for row, found in ((1, chosen[3:6]), (2, chosen[6:])):
        own = [i for i, label in enumerate(rows.tolist()) if label == row]
        assert found == [own[i] for i in slow_herding(features[own], 3)]
    again = slow_herding(features[[7, 9, 10, 12]], 3)
    assert again != [0, 1, 2], "herding them again would choose others"


def test_the_memory_of_an_old_class_is_cut_from_session_to_session(tmp_path: Path) -> None:
    params = tiny_params("method=eeil", "split=nc", "options.second_stage_epochs=0")
    run(tmp_path, params)
    first, second = (pd.read_csv(tmp_path / f"runs/{t}/state/memory.csv") for t in ("01", "02"))
    for label, exemplars in first.groupby("label"):
        assert len(exemplars) == 4
        kept = second[second["label"] == label]
        assert kept["id"].tolist() == exemplars["id"].tolist()[:2]


def test_herding_of_nothing() -> None:
    assert herding(torch.empty(0, 6), 5).shape == (0,)
    assert herding(torch.ones(3, 6), 0).shape == (0,)


def test_herding_approaches_the_mean_faster_than_chance() -> None:
    features = F.normalize(torch.randn(500, 32, generator=generator()) + 0.5, dim=1)
    mean = features.mean(dim=0)
    herded = (features[herding(features, 20)].mean(dim=0) - mean).norm()
    by_chance = (features[:20].mean(dim=0) - mean).norm()
    assert herded < by_chance / 3


# -- components by clustering --------------------------------------------------------------------


def test_clustering_finds_separate_groups_within_each_class() -> None:
    """Class 1 has three groups and class 4 two, on the same directions; other rows are absent."""
    g = generator(3)
    groups = torch.tensor([0, 1, 2] * 30 + [0, 1] * 40)
    rows = torch.tensor([1] * 90 + [4] * 80)
    order = torch.randperm(170, generator=g)
    groups, rows = groups[order], rows[order]
    lengths = 1 + 5 * torch.rand(170, 1, generator=g)
    features = lengths * (torch.eye(8)[groups] + 0.05 * torch.randn(170, 8, generator=g))
    components = cluster_components(features, rows, 0.7, 6, generator(4))
    for row, count in ((1, 3), (4, 2)):
        own = rows == row
        pairs = set(zip(groups[own].tolist(), components[own].tolist(), strict=True))
        assert len(pairs) == count
        assert {component for _, component in pairs} == set(range(count))


def test_clustering_sees_directions_alone() -> None:
    rows, features, _ = data([60, 50])
    lengths = 0.1 + 9 * torch.rand(110, 1, generator=generator(8))
    original, stretched = (
        cluster_components(f, rows, 0.9, 6, generator(9)) for f in (features, lengths * features)
    )
    assert torch.equal(original, stretched)
    assert original.max() > 1


def slow_k_means(points: Tensor, means: Tensor, iterations: int) -> list[int]:
    """Spherical k-means in loops: the closest mean, then the direction of the sum of its points."""

    def closest() -> list[int]:
        return [max(range(len(means)), key=lambda k: float(v @ means[k])) for v in points]

    for _ in range(iterations):
        assigned, means = closest(), means.clone()
        for k in range(len(means)):
            own = [v for v, z in zip(points, assigned, strict=True) if z == k]
            if own:
                total = torch.stack(own).sum(dim=0)
                means[k] = total / total.norm()
    return closest()


def on_a_circle(degrees: Tensor) -> Tensor:
    return torch.stack([degrees.deg2rad().cos(), degrees.deg2rad().sin()], 1)


def test_clustering_takes_ten_rounds_of_k_means() -> None:
    """On points all around a circle, where ten rounds are not enough to come to rest."""
    points = on_a_circle(360 * torch.rand(400, generator=generator(0), dtype=torch.float64))
    rows = torch.zeros(400, dtype=torch.long)
    seeds = k_means_seeds(points, 6, generator(2))
    found = cluster_components(points, rows, 0.0, 6, generator(2)).tolist()
    assert found == slow_k_means(points, seeds, 10)
    assert found != slow_k_means(points, seeds, 11)
    assert found != slow_k_means(points, seeds, 9)


@pytest.mark.parametrize("seed", [494, 1111, 2393])
def test_clustering_with_lonely_points_is_k_means(seed: int) -> None:
    """Some components have a single point for a while, and follow it."""
    n, m, dim = 6 + seed % 20, 3 + seed % 5, 2 + seed % 4
    shift = 0.8 * (seed % 2)
    points = torch.randn(n, dim, generator=generator(seed), dtype=torch.float64) + shift
    points = F.normalize(points, dim=1)
    found = cluster_components(
        points, torch.zeros(n, dtype=torch.long), 0.0, m, generator(seed)
    ).tolist()
    assert found == slow_k_means(points, k_means_seeds(points, m, generator(seed)), 10)


def test_clustering_leaves_the_mean_of_an_emptied_component_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seed at 0° has the points at 0° and 10°, until its neighbours have moved close to them.

    The point at 190° is far from everything; an empty component without a direction would win it.
    """
    degrees = torch.tensor([0.0, -3.9, 21.0, 10.0, 190.0] + [-2.0] * 20 + [12.0] * 20)
    points = on_a_circle(degrees.double())
    seeds = points[:3]
    monkeypatch.setattr(memory, "k_means_seeds", lambda unit, m, generator: seeds)
    reduction = small_params("reduction.delta=0.0").reduction
    reduction = reduction.model_copy(update={"drop_inherited": False})
    rows = torch.zeros(len(points), dtype=torch.long)
    found = memory.cluster_components(points, rows, 3, reduction, generator()).tolist()
    assert found == [0, 0, 1, 1, 0] + [0] * 20 + [1] * 20
    assert slow_k_means(points, seeds, 10) == [z + 1 for z in found]


def test_clustering_with_a_large_delta_is_one_component_per_class() -> None:
    rows, features, _ = data([30, 20])
    assert not cluster_components(features, rows, 10.0, 5, generator()).any()


def test_clustering_of_fewer_samples_than_seeds() -> None:
    features, rows = torch.eye(3), torch.zeros(3, dtype=torch.long)
    components = cluster_components(features, rows, 0.7, 10, generator())
    assert sorted(components.tolist()) == [0, 1, 2]
