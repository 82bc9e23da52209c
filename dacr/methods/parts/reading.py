"""The places of Sec. 3 that can be read in more than one way, as functions; here as printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dacr.learning.assignment import all_components
from dacr.learning.expansion import InitialMeans, mean_perturbed
from dacr.learning.prior import uniform_log_prior
from dacr.learning.session import Session
from dacr.model.heads import MixtureHead


def closest_component(head: MixtureHead, logits: Tensor) -> Tensor:
    """max_k κ μ̃ᵀṽ (Eq. 15), [B, C]; κ does not change which class has the largest."""
    return logits.amax(-1)


def mean_of_features(total: Tensor, unit_means: Tensor, weights: Tensor) -> Tensor:
    """The direction of the mean of all normalised features of the merged components (Eq. 4)."""
    mean: Tensor = total / total.norm()
    return mean


@dataclass(frozen=True)
class Reading:
    """The functions of Sec. 3 that have another reading or a departure; here as printed."""

    head: type[MixtureHead] = MixtureHead
    start: InitialMeans = mean_perturbed
    """Where the new components of a class start ("randomly initialized")."""
    log_prior: Callable[[Session, MixtureHead], Tensor] = uniform_log_prior
    """log P(y, z) in training, up to a constant, [C, K_max]."""
    candidates: Callable[[MixtureHead, Tensor, Tensor], Tensor] = all_components
    """Which components of its class a sample may come from, [B, K_max]."""
    merged_mean: Callable[[Tensor, Tensor, Tensor], Tensor] = mean_of_features
    scores: Callable[[MixtureHead, Tensor], Tensor] = closest_component
