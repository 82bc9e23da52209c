"""Mixture reduction (Sec. 3.3): components of a class that came close are merged.

Greedy hierarchical clustering inside each class: the closest pair first, until no pair is closer
than δ. δ decides only where this sequence of merges stops, not its order, so the clusters at a
smaller δ are always parts of those at a larger one.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dacr.config import Reduction

MergedMean = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The mean of merged components, from the sum [d] of their features, their own unit means [k, d]
and their weights [k], the numbers of their samples; all float64."""

_NO_WEIGHT = 1e-9

# The merging loop takes thousands of tiny steps, where NumPy is several times faster than torch.
Vector = NDArray[np.float64]

_DISTANCES: dict[str, Callable[[Vector], Vector]] = {
    "euclidean": lambda cosines: np.sqrt(np.maximum(2 - 2 * cosines, 0)),
    "cosine": lambda cosines: 1 - cosines,
    "angle": lambda cosines: np.arccos(np.clip(cosines, -1, 1)),
}


@dataclass(frozen=True)
class Merge:
    """Two clusters of one class became one; components have their numbers before the reduction."""

    row: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    distance: float
    left_support: int
    right_support: int


@dataclass(frozen=True)
class Reduced:
    """What is left of the mixtures: one entry per class in ``means`` and ``relabelling``.

    ``relabelling[c][k]`` is the new number of component k of class c, −1 if it was dropped.
    ``assigned`` are the samples' components after the reduction.
    """

    means: list[Tensor]
    relabelling: list[Tensor]
    assigned: Tensor
    merges: list[Merge]


@dataclass(frozen=True)
class _Cluster:
    """Components that became one, with the sum and number of their normalised features."""

    members: list[int]
    total: Vector
    support: int

    def mean(self) -> Vector:
        """The direction of the mean of its features (Eq. 4)."""
        return np.asarray(self.total / np.linalg.norm(self.total))

    def merged_with(self, other: "_Cluster") -> "_Cluster":
        return _Cluster(
            sorted(self.members + other.members),
            self.total + other.total,
            self.support + other.support,
        )


def component_sums(unit: Tensor, assigned: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Sum [k, d] and number [k] of the features assigned to each of k components."""
    membership = F.one_hot(assigned, k).to(unit.dtype)
    return membership.T @ unit, membership.sum(dim=0).long()


def _merge_closest(
    row: int, means: Vector, clusters: list[_Cluster], reduction: Reduction
) -> tuple[list[_Cluster], list[Merge]]:
    """Merge until no two clusters are closer than δ; return them by their first members."""
    metric = _DISTANCES[reduction.distance]
    means, clusters = means.copy(), list(clusters)
    gaps = metric(np.einsum("id,jd->ij", means, means))
    np.fill_diagonal(gaps, np.inf)
    absorbed: list[int] = []
    merges: list[Merge] = []
    while (gap := float(gaps.min())) < reduction.delta:
        i, j = sorted(divmod(int(gaps.argmin()), len(gaps)))
        left, right = clusters[i], clusters[j]
        merges.append(
            Merge(row, tuple(left.members), tuple(right.members), gap, left.support, right.support)
        )
        clusters[i] = left.merged_with(right)
        means[i] = clusters[i].mean()
        absorbed.append(j)
        to_merged = metric(np.einsum("kd,d->k", means, means[i]))
        to_merged[[i, *absorbed]] = np.inf
        gaps[i] = gaps[:, i] = to_merged
        gaps[j] = gaps[:, j] = np.inf
    return [cluster for k, cluster in enumerate(clusters) if k not in absorbed], merges


def _reduce_class(
    row: int,
    means: Tensor,
    features: Tensor,
    assigned: Tensor,
    inherited: int,
    reduction: Reduction,
    merged_mean: MergedMean,
) -> tuple[Tensor, Tensor, Tensor, list[Merge]]:
    """Means, relabelling, assignments and merges of one class, from its own samples alone.

    The first ``inherited`` components are older than the session.
    """
    unit = F.normalize(features.double().cpu(), dim=1)
    unit_means = F.normalize(means.double().cpu(), dim=1)
    assigned = assigned.cpu()
    totals, support = component_sums(unit, assigned, len(means))
    # Components without samples go; the first stays where a class has no sample at all.
    always = 0 if reduction.drop_inherited else inherited
    kept = [k for k in range(len(means)) if support[k] or k < always] or [0]
    # One without samples stands for its mean, of no weight beside samples.
    weights = torch.where(support > 0, support.to(unit), _NO_WEIGHT)
    totals = torch.where(support.unsqueeze(1) > 0, totals, _NO_WEIGHT * unit_means)
    singles = [_Cluster([k], totals[k].numpy(), int(support[k])) for k in kept]
    clusters, merges = _merge_closest(row, unit_means[kept].numpy(), singles, reduction)
    relabelling = torch.full((len(means),), -1)
    reduced = means.new_empty(len(clusters), means.shape[1])
    for new, cluster in enumerate(clusters):
        own = cluster.members
        relabelling[own] = new
        if len(own) == 1:
            reduced[new] = means[own[0]]  # Not merged: keeps what SGD learned.
        else:
            total = torch.from_numpy(cluster.total)
            reduced[new] = merged_mean(total, unit_means[own], weights[own]).to(means)
    return reduced, relabelling, relabelling[assigned], merges


@torch.no_grad()
def reduce_mixtures(
    means: Sequence[Tensor],
    features: Tensor,
    rows: Tensor,
    assigned: Tensor,
    inherited: Sequence[int],
    reduced_rows: Collection[int],
    reduction: Reduction,
    merged_mean: MergedMean,
) -> Reduced:
    """Drop components without samples, then merge those closer than δ.

    ``means`` are the raw means of each class ([K_c, d]); ``features``, ``rows`` and ``assigned``
    describe D_t ∪ M_t; the first ``inherited[c]`` components of a class are older than session t.
    Classes outside ``reduced_rows`` (C_t) stay as they are. While pairs are
    merged, a cluster is where the mean of its features is (Eq. 4); ``merged_mean`` says which mean
    the merged component keeps.
    """
    new_means = [class_means.clone() for class_means in means]
    relabelling = [torch.arange(len(class_means)) for class_means in means]
    new_assigned = assigned.clone()
    merges: list[Merge] = []
    for row in sorted(reduced_rows):
        own = (rows == row).nonzero().squeeze(1)
        new_means[row], relabelling[row], reassigned, class_merges = _reduce_class(
            row, means[row], features[own], assigned[own], inherited[row], reduction, merged_mean
        )
        new_assigned[own] = reassigned.to(new_assigned)
        merges += class_merges
    return Reduced(new_means, relabelling, new_assigned, merges)


@torch.no_grad()
def group_means(
    means: Sequence[Tensor], features: Tensor, rows: Tensor, assigned: Tensor
) -> list[Tensor]:
    """Every component at the direction of the mean of its normalised features (Eq. 4).

    "We group the vMF components and re-represent each group by a new single vMF density": single
    components are groups, too. One without samples keeps its mean.
    """
    unit = F.normalize(features.double(), dim=1)
    estimated = []
    for row, own_means in enumerate(means):
        own = (rows == row).nonzero().squeeze(1)
        totals, support = component_sums(unit[own], assigned[own], len(own_means))
        centres = F.normalize(totals, dim=1).to(own_means)
        estimated.append(torch.where((support > 0).unsqueeze(1), centres, own_means))
    return estimated
