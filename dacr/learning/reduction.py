"""Mixture reduction (Sec. 3.3): components of a class that came close are merged.

Greedy hierarchical clustering inside each class: the closest pair first, until no pair is closer
than δ. δ decides only where this sequence of merges stops, not its order, so the clusters at a
smaller δ are always parts of those at a larger one, for every linkage.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dacr.learning.assignment import assign_to

Distance = Literal["euclidean", "cosine", "angle"]
Linkage = Literal["centroid", "single", "complete", "average"]
MergedMean = Literal["features", "learned"]

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
class Reduction:
    """What is left of the mixtures: one entry a class in ``means`` and ``relabelling``.

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


def _drop_unsupported(
    unit_means: Tensor, unit: Tensor, assigned: Tensor, min_support: int
) -> tuple[list[int], Tensor]:
    """The components with enough samples, and the assignments once the others are gone.

    At least one stays: the best supported, the first of them in a tie or without samples. Samples
    of a dropped component go to the closest that stays.
    """
    support = assigned.bincount(minlength=len(unit_means))
    kept = (support >= min_support).nonzero().squeeze(1)
    if not len(kept):
        kept = support.argmax().unsqueeze(0)
    moved = ~torch.isin(assigned, kept)
    closest = assign_to([unit_means[kept]], unit[moved], torch.zeros_like(assigned[moved]))
    assigned = assigned.clone()
    assigned[moved] = kept[closest]
    return kept.tolist(), assigned


def _linked(linkage: Linkage, gaps: tuple[Vector, Vector], sizes: tuple[int, int]) -> Vector:
    """Distances of a merged cluster, from those and the numbers of components of its two parts."""
    if linkage == "single":
        return np.minimum(*gaps)
    if linkage == "complete":
        return np.maximum(*gaps)
    return np.average(gaps, axis=0, weights=sizes)


def _merge_closest(
    row: int,
    means: Vector,
    clusters: list[_Cluster],
    *,
    delta: float,
    distance: Distance,
    linkage: Linkage,
) -> tuple[list[_Cluster], list[Merge]]:
    """Merge until no two clusters are closer than δ; return them by their first members."""
    metric = _DISTANCES[distance]
    means, clusters = means.copy(), list(clusters)
    gaps = metric(np.einsum("id,jd->ij", means, means))
    np.fill_diagonal(gaps, np.inf)
    absorbed: list[int] = []
    merges: list[Merge] = []
    while (gap := float(gaps.min())) < delta:
        i, j = sorted(divmod(int(gaps.argmin()), len(gaps)))
        left, right = clusters[i], clusters[j]
        merges.append(
            Merge(row, tuple(left.members), tuple(right.members), gap, left.support, right.support)
        )
        clusters[i] = left.merged_with(right)
        absorbed.append(j)
        if linkage == "centroid":
            means[i] = clusters[i].mean()
            to_merged = metric(np.einsum("kd,d->k", means, means[i]))
        else:
            sizes = len(left.members), len(right.members)
            to_merged = _linked(linkage, (gaps[i], gaps[j]), sizes)
        to_merged[[i, *absorbed]] = np.inf
        gaps[i] = gaps[:, i] = to_merged
        gaps[j] = gaps[:, j] = np.inf
    return [cluster for k, cluster in enumerate(clusters) if k not in absorbed], merges


def _reduce_class(
    row: int,
    means: Tensor,
    features: Tensor,
    assigned: Tensor,
    *,
    delta: float,
    distance: Distance,
    linkage: Linkage,
    min_support: int,
    merged_mean: MergedMean,
) -> tuple[Tensor, Tensor, Tensor, list[Merge]]:
    """Means, relabelling, assignments and merges of one class, from its own samples alone."""
    unit = F.normalize(features.double().cpu(), dim=1)
    unit_means = F.normalize(means.double().cpu(), dim=1)
    kept, assigned = _drop_unsupported(unit_means, unit, assigned.cpu(), min_support)
    totals, support = component_sums(unit, assigned, len(means))
    singles = [_Cluster([k], totals[k].numpy(), int(support[k])) for k in kept]
    clusters, merges = _merge_closest(
        row, unit_means[kept].numpy(), singles, delta=delta, distance=distance, linkage=linkage
    )
    relabelling = torch.full((len(means),), -1)
    reduced = means.new_empty(len(clusters), means.shape[1])
    for new, cluster in enumerate(clusters):
        relabelling[cluster.members] = new
        if len(cluster.members) == 1:
            reduced[new] = means[cluster.members[0]]  # Not merged: keeps what SGD learned.
        elif merged_mean == "features":
            reduced[new] = torch.from_numpy(cluster.mean()).to(means)
        else:
            weights = support[cluster.members].to(unit_means)
            reduced[new] = F.normalize(weights @ unit_means[cluster.members], dim=0).to(means)
    return reduced, relabelling, relabelling[assigned], merges


@torch.no_grad()
def reduce_mixtures(
    means: Sequence[Tensor],
    features: Tensor,
    rows: Tensor,
    assigned: Tensor,
    reduced_rows: Collection[int],
    *,
    delta: float,
    distance: Distance = "euclidean",
    linkage: Linkage = "centroid",
    min_support: int = 1,
    merged_mean: MergedMean = "features",
) -> Reduction:
    """Drop components with fewer than ``min_support`` samples, then merge those closer than δ.

    ``means`` are the raw means of each class ([K_c, d]); ``features``, ``rows`` and ``assigned``
    describe D_t ∪ M_t. Classes outside ``reduced_rows`` (C_t) stay as they are. A merged mean is
    the direction of the mean of all normalised features assigned to it (Eq. 4). ``centroid``
    measures the distance between these means, as the paper does; ``single``, ``complete`` and
    ``average`` group by the distances between the learned means.

    SGD moves means off the centre of their samples, away from other classes; a merged mean that
    returns to the centre meets unmerged ones that did not. ``merged_mean="learned"`` therefore
    offers the mean of the learned means, weighted by their samples.
    """
    if min_support < 1:
        raise ValueError("a component without samples has no mean to merge: min_support is >= 1")
    new_means = [class_means.clone() for class_means in means]
    relabelling = [torch.arange(len(class_means)) for class_means in means]
    new_assigned = assigned.clone()
    merges: list[Merge] = []
    for row in sorted(reduced_rows):
        own = (rows == row).nonzero().squeeze(1)
        new_means[row], relabelling[row], reassigned, class_merges = _reduce_class(
            row,
            means[row],
            features[own],
            assigned[own],
            delta=delta,
            distance=distance,
            linkage=linkage,
            min_support=min_support,
            merged_mean=merged_mean,
        )
        new_assigned[own] = reassigned.to(new_assigned)
        merges += class_merges
    return Reduction(new_means, relabelling, new_assigned, merges)
