"""Mixture reduction against a slow re-implementation, by hand, and by its properties."""

import itertools
import math
from collections.abc import Collection, Sequence
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dacr import config
from dacr.learning import reduction as library
from dacr.learning.assignment import assign_to
from dacr.learning.reduction import MergedMean, Reduced
from dacr.methods.parts.departures import learned_mean
from dacr.methods.parts.reading import mean_of_features

DISTANCES = get_args(config.Reduction.model_fields["distance"].annotation)


def reduce_mixtures(
    means: Sequence[Tensor],
    features: Tensor,
    rows: Tensor,
    assigned: Tensor,
    reduced_rows: Collection[int],
    *,
    delta: float,
    distance: str = "euclidean",
    merged_mean: MergedMean = mean_of_features,
    inherited: Sequence[int] = (),
) -> Reduced:
    """The reduction at δ; the ``inherited`` components are never dropped, if they are given."""
    section = config.Reduction(
        enabled=True,
        delta=delta,
        distance=distance,  # type: ignore[arg-type]
        merged_mean="features",
        every_group=False,
        drop_inherited=not inherited,
    )
    older = inherited or [0] * len(means)
    return library.reduce_mixtures(
        means, features, rows, assigned, older, reduced_rows, section, merged_mean
    )


def problem(
    counts: list[int], samples: int = 40, dim: int = 4, seed: int = 0
) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Means of arbitrary length with an E-step's assignments; some components stay empty."""
    g = torch.Generator().manual_seed(seed)
    means = [2 * torch.randn(k, dim, generator=g, dtype=torch.float64) for k in counts]
    rows = torch.arange(len(counts)).repeat_interleave(samples)
    features = 3 * torch.randn(len(rows), dim, generator=g, dtype=torch.float64)
    return means, features, rows, assign_to(means, features, rows)


def angle_means(*degrees: float) -> Tensor:
    radians = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], dim=1)


def slow_distance(a: Tensor, b: Tensor, distance: str) -> float:
    a, b = a / a.norm(), b / b.norm()
    if distance == "euclidean":
        return float((a - b).norm())
    if distance == "cosine":
        return 1 - float(a @ b)
    return math.acos(max(-1.0, min(1.0, float(a @ b))))


def slow_reduction(
    means: Tensor, features: Tensor, assigned: Tensor, delta: float, distance: str
) -> list[tuple[list[int], Tensor]]:
    """The paper's paragraph, step by step: (members, mean) of what remains of one class."""
    clusters = [
        ([k], means[k]) for k in range(len(means)) if any(z == k for z in assigned.tolist())
    ]
    while True:
        pairs = [
            (slow_distance(clusters[i][1], clusters[j][1], distance), i, j)
            for i, j in itertools.combinations(range(len(clusters)), 2)
        ]
        if not pairs or min(pairs)[0] >= delta:
            return clusters
        _, i, j = min(pairs)
        members = sorted(clusters[i][0] + clusters[j][0])
        unit = [
            v / v.norm() for v, z in zip(features, assigned.tolist(), strict=True) if z in members
        ]
        mean = torch.stack(unit).sum(dim=0) / len(unit)
        clusters[i] = (members, mean / mean.norm())
        del clusters[j]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("delta", [0.0, 0.3, 0.7, 1.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_reduction_equals_the_slow_reference(distance: str, delta: float, seed: int) -> None:
    means, features, rows, assigned = problem([9, 1, 12], seed=seed)
    reduction = reduce_mixtures(
        means, features, rows, assigned, range(3), delta=delta, distance=distance
    )
    for row in range(3):
        own = rows == row
        expected = slow_reduction(means[row], features[own], assigned[own], delta, distance)
        groups = [members for members, _ in expected]
        torch.testing.assert_close(
            reduction.means[row], torch.stack([mean for _, mean in expected])
        )
        relabelling = reduction.relabelling[row].tolist()
        for k, new in enumerate(relabelling):
            assert [new] == [g for g, members in enumerate(groups) if k in members] or new == -1
        assert reduction.assigned[own].tolist() == [relabelling[z] for z in assigned[own].tolist()]


def test_a_hand_computed_reduction_and_its_log() -> None:
    """At 0°, 20° and 90°: the first two are 2·sin(10°) = 0.347 apart and merge to (0+0+20)/3 ≈."""
    means = [angle_means(0, 20, 90)]
    features = torch.cat([5 * angle_means(0, 0), 7 * angle_means(20), angle_means(90)])
    assigned = torch.tensor([0, 0, 1, 2])
    rows = torch.zeros(4, dtype=torch.long)
    reduction = reduce_mixtures(means, features, rows, assigned, [0], delta=0.4)
    merged = angle_means(0, 0, 20).sum(dim=0)
    torch.testing.assert_close(
        reduction.means[0], torch.stack([merged / merged.norm(), angle_means(90)[0]])
    )
    assert reduction.relabelling[0].tolist() == [0, 0, 1]
    assert reduction.assigned.tolist() == [0, 0, 0, 1]
    (merge,) = reduction.merges
    assert (merge.row, merge.left, merge.right) == (0, (0,), (1,))
    assert (merge.left_support, merge.right_support) == (2, 1)
    assert math.isclose(merge.distance, 2 * math.sin(math.radians(10)))


def test_a_pair_exactly_at_delta_is_not_merged() -> None:
    means = [torch.eye(2, dtype=torch.float64)]
    rows, assigned = torch.zeros(2, dtype=torch.long), torch.arange(2)
    features = torch.eye(2, dtype=torch.float64)
    for delta, left in ((1.0, 2), (1.0 + 1e-9, 1)):
        reduction = reduce_mixtures(
            means, features, rows, assigned, [0], delta=delta, distance="cosine"
        )
        assert len(reduction.means[0]) == left


def test_the_log_names_all_components_of_a_cluster_in_order_and_counts_their_samples() -> None:
    """0° and 2° merge first, then 20° comes to them, then 60°; numbers 0, 3, 1 and 2."""
    means = [angle_means(0, 20, 60, 2)]
    assigned = torch.tensor([0, 0, 0, 1, 2, 3, 3])
    rows = torch.zeros(7, dtype=torch.long)
    merges = reduce_mixtures(means, means[0][assigned], rows, assigned, [0], delta=1.5).merges
    assert [(merge.left, merge.right) for merge in merges] == [
        ((0,), (3,)),
        ((0, 3), (1,)),
        ((0, 1, 3), (2,)),
    ]
    assert [(merge.left_support, merge.right_support) for merge in merges] == [
        (3, 2),
        (5, 1),
        (6, 1),
    ]


def test_the_log_is_sorted_by_class() -> None:
    means, features, rows, assigned = problem([5, 5, 5])
    forward, backward = (
        reduce_mixtures(means, features, rows, assigned, order, delta=10.0).merges
        for order in ([0, 1, 2], [2, 1, 0])
    )
    assert [merge.row for merge in forward] == sorted(merge.row for merge in forward)
    assert forward == backward


@pytest.mark.parametrize("seed", range(30))
def test_equal_and_opposite_means_have_angles(seed: int) -> None:
    """Rounding puts the cosine of some unit vectors outside of −1 … 1, where there is no angle."""
    g = torch.Generator().manual_seed(seed)
    mean = torch.randn(7, generator=g, dtype=torch.float64)
    means = [torch.stack([mean, -mean, 3 * mean])]
    rows, assigned = torch.zeros(3, dtype=torch.long), torch.arange(3)
    reduction = reduce_mixtures(means, means[0], rows, assigned, [0], delta=0.1, distance="angle")
    assert reduction.relabelling[0].tolist() == [0, 1, 0]


def test_the_mean_is_recomputed_after_each_merge() -> None:
    """0° and 20° merge first; almost all their data lies at 0°, so 42° is then too far, though it
    was closer to 20° than δ. The learned means alone would chain all three."""
    means = [angle_means(0, 20, 42)]
    features = torch.cat([angle_means(*[0] * 50), angle_means(12), angle_means(42)])
    assigned = torch.tensor([0] * 50 + [1, 2])
    rows = torch.zeros(52, dtype=torch.long)
    delta = 2 * math.sin(math.radians(23 / 2))
    assert all(slow_distance(*means[0][k : k + 2], "euclidean") < delta for k in (0, 1))
    reduction = reduce_mixtures(means, features, rows, assigned, [0], delta=delta)
    assert len(reduction.means[0]) == 2
    assert reduction.relabelling[0].tolist() == [0, 0, 1]


def test_components_not_merged_keep_their_bits() -> None:
    means, features, rows, assigned = problem([12, 12])
    means = [m.float() for m in means]
    reduction = reduce_mixtures(means, features.float(), rows, assigned, [0, 1], delta=0.6)
    kept = 0
    for row in range(2):
        relabelling = reduction.relabelling[row].tolist()
        for k, new in enumerate(relabelling):
            if new >= 0 and relabelling.count(new) == 1:
                assert torch.equal(reduction.means[row][new], means[row][k])
                kept += 1
    assert kept >= 4
    assert reduction.merges


def test_only_the_given_classes_are_reduced_and_never_across_classes() -> None:
    means, features, rows, assigned = problem([6, 8, 7])
    means[2] = means[0][:7].clone()  # the same means in another class must not attract each other
    assigned = assign_to(means, features, rows)
    all_of_them = reduce_mixtures(means, features, rows, assigned, [0, 2], delta=10.0)
    assert [len(m) for m in all_of_them.means] == [1, 8, 1]
    assert torch.equal(all_of_them.means[1], means[1])
    assert all_of_them.relabelling[1].tolist() == list(range(8))
    assert torch.equal(all_of_them.assigned[rows == 1], assigned[rows == 1])
    assert {merge.row for merge in all_of_them.merges} == {0, 2}


def test_reducing_a_class_does_not_depend_on_the_others() -> None:
    means, features, rows, assigned = problem([9, 10])
    together = reduce_mixtures(means, features, rows, assigned, [0, 1], delta=0.7)
    alone = reduce_mixtures(
        means[:1], features[rows == 0], rows[rows == 0], assigned[rows == 0], [0], delta=0.7
    )
    assert torch.equal(together.means[0], alone.means[0])


def test_empty_components_are_dropped() -> None:
    means = [angle_means(0, 5, 90, 180)]
    features, rows = angle_means(0, 90, 91), torch.zeros(3, dtype=torch.long)
    reduction = reduce_mixtures(means, features, rows, torch.tensor([0, 2, 2]), [0], delta=0.5)
    assert reduction.relabelling[0].tolist() == [0, -1, 1, -1]
    assert reduction.assigned.tolist() == [0, 1, 1]
    assert not reduction.merges


def test_the_first_component_is_dropped_like_any_other() -> None:
    means, rows = [angle_means(0, 90)], torch.zeros(2, dtype=torch.long)
    reduction = reduce_mixtures(
        means, angle_means(90, 91), rows, torch.tensor([1, 1]), [0], delta=0
    )
    assert reduction.relabelling[0].tolist() == [-1, 0]
    assert torch.equal(reduction.means[0], means[0][1:])


def test_a_class_without_samples_keeps_its_first_component() -> None:
    means = [angle_means(0, 90), angle_means(10, 20)]
    features, rows = angle_means(10), torch.tensor([1])
    reduction = reduce_mixtures(means, features, rows, torch.tensor([0]), [0, 1], delta=0.1)
    assert [len(m) for m in reduction.means] == [1, 1]
    assert torch.equal(reduction.means[0], means[0][:1])


@given(
    seed=st.integers(0, 10_000),
    deltas=st.tuples(st.floats(0, 2), st.floats(0, 2)).map(sorted),
    distance=st.sampled_from(DISTANCES),
)
@settings(max_examples=60, deadline=None)
def test_clusters_at_a_smaller_delta_are_parts_of_those_at_a_larger(
    seed: int, deltas: list[float], distance: str
) -> None:
    means, features, rows, assigned = problem([10], dim=3, seed=seed)

    def at(delta: float) -> Reduced:
        return reduce_mixtures(means, features, rows, assigned, [0], delta=delta, distance=distance)

    fine, coarse = at(deltas[0]), at(deltas[1])
    assert fine.merges == coarse.merges[: len(fine.merges)]
    assert len(coarse.means[0]) == len(fine.means[0]) - (len(coarse.merges) - len(fine.merges))
    for a, b in itertools.combinations(range(10), 2):
        if fine.relabelling[0][a] == fine.relabelling[0][b]:
            assert coarse.relabelling[0][a] == coarse.relabelling[0][b]


@given(seed=st.integers(0, 10_000), delta=st.floats(0, 2), distance=st.sampled_from(DISTANCES))
@settings(max_examples=40, deadline=None)
def test_reduction_is_idempotent(seed: int, delta: float, distance: str) -> None:
    """After it no two means are closer than δ."""
    means, features, rows, assigned = problem([10, 7], dim=3, seed=seed)
    once = reduce_mixtures(means, features, rows, assigned, [0, 1], delta=delta, distance=distance)
    twice = reduce_mixtures(
        once.means, features, rows, once.assigned, [0, 1], delta=delta, distance=distance
    )
    # A merged mean is normalised again: its last bit may put a pair at exactly δ on the other side.
    near = [m.distance for m in twice.merges]
    assert not near or min(abs(gap - delta) for gap in near) < 1e-12
    if not near:
        assert all(torch.equal(a, b) for a, b in zip(once.means, twice.means, strict=True))
        assert torch.equal(once.assigned, twice.assigned)


def test_merge_distances_may_fall() -> None:
    """An inversion: two merge and their data's mean lies nearer to the third than they were apart.

    The number of components still falls with δ, since δ does not change the order of merges.
    """
    means = [angle_means(0, 30, 62)]
    features = torch.cat([angle_means(45), angle_means(45), angle_means(62)])
    rows, assigned = torch.zeros(3, dtype=torch.long), torch.arange(3)
    reduction = reduce_mixtures(
        means, features, rows, assigned, [0], delta=2 * math.sin(math.radians(31 / 2))
    )
    first, second = reduction.merges
    assert second.distance < first.distance


def test_components_may_come_in_any_order() -> None:
    means, features, rows, assigned = problem([11])
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    original = reduce_mixtures(means, features, rows, assigned, [0], delta=0.8)
    shuffled = reduce_mixtures(
        [means[0][order]],
        features,
        rows,
        order.argsort()[assigned],
        [0],
        delta=0.8,
    )
    assert sorted(map(tuple, original.means[0].round(decimals=9).tolist())) == sorted(
        map(tuple, shuffled.means[0].round(decimals=9).tolist())
    )


def test_the_input_is_left_alone() -> None:
    """Also if the result is changed later, that of a class that is not reduced included."""
    means, features, rows, assigned = problem([10, 4])
    given = (*means, features, assigned)
    copies = [tensor.clone() for tensor in given]
    reduced = reduce_mixtures(means, features, rows, assigned, [0], delta=1.0)
    for tensor in (*reduced.means, reduced.assigned):
        tensor.zero_()
    for tensor, copy in zip(given, copies, strict=True):
        assert torch.equal(tensor, copy)


def test_a_merged_mean_of_learned_means_by_hand() -> None:
    """3 samples at 0°, 1 at 60°; the means learned for them are at 10° and 30°."""
    means = [2 * angle_means(10, 30)]
    features = angle_means(0, 0, 0, 60)
    rows, assigned = torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 0, 1])
    x, y = (
        sum(w * f(math.radians(angle)) for w, angle in ((3, 10), (1, 30)))
        for f in (math.cos, math.sin)
    )
    learned = reduce_mixtures(
        means, features, rows, assigned, [0], delta=0.7, merged_mean=learned_mean
    )
    assert learned.means[0].shape == (1, 2)
    torch.testing.assert_close(
        learned.means[0][0], torch.tensor([x, y], dtype=torch.float64) / math.hypot(x, y)
    )
    centre = reduce_mixtures(means, features, rows, assigned, [0], delta=0.7)
    assert math.degrees(math.atan2(*centre.means[0][0].flip(0).tolist())) == pytest.approx(
        13.9, abs=0.1
    )
    assert centre.merges == learned.merges


# -- inherited components without samples -------------------------------------------------------


def test_inherited_components_without_samples_stay_and_new_ones_go() -> None:
    means = [angle_means(0, 90, 180, 270)]
    features = angle_means(1, 2)  # all samples belong to the first
    rows, assigned = torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    reduced = reduce_mixtures(means, features, rows, assigned, [0], delta=0.3, inherited=[2])
    assert reduced.relabelling[0].tolist() == [0, 1, -1, -1]
    torch.testing.assert_close(reduced.means[0], means[0][:2])


@pytest.mark.parametrize("merged_mean", [mean_of_features, learned_mean])
def test_an_inherited_component_without_samples_has_no_weight_in_a_merge(
    merged_mean: MergedMean,
) -> None:
    means = [angle_means(0, 20, 90)]
    features = angle_means(0, 0)
    rows, assigned = torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    reduced = reduce_mixtures(
        means, features, rows, assigned, [0], delta=0.5, merged_mean=merged_mean, inherited=[3]
    )
    assert reduced.relabelling[0].tolist() == [0, 0, 1]
    torch.testing.assert_close(reduced.means[0], angle_means(0, 90))


@pytest.mark.parametrize("merged_mean", [mean_of_features, learned_mean])
def test_two_inherited_components_without_samples_meet_in_the_middle(
    merged_mean: MergedMean,
) -> None:
    means = [angle_means(0, 20, 90)]
    features = angle_means(90)
    rows, assigned = torch.tensor([0]), torch.tensor([2])
    reduced = reduce_mixtures(
        means, features, rows, assigned, [0], delta=0.5, merged_mean=merged_mean, inherited=[3]
    )
    torch.testing.assert_close(reduced.means[0], angle_means(10, 90))


# -- every group gets a mean of features --------------------------------------------------------


def test_the_mean_of_every_group_is_that_of_its_normalised_features() -> None:
    means, features, rows, assigned = problem([3, 5], samples=7)
    found = library.group_means(means, features, rows, assigned)
    for row, own_means in enumerate(means):
        for k, mean in enumerate(own_means):
            own = [
                features[i] / features[i].norm()
                for i in range(len(rows))
                if rows[i] == row and assigned[i] == k
            ]
            expected = mean
            if own:
                total = sum(own, torch.zeros(4, dtype=torch.float64))
                expected = total / total.norm()
            torch.testing.assert_close(found[row][k], expected)
    assert any(not (assigned[rows == row] == k).any() for row in (0, 1) for k in range(3))
