"""The mixture in plain loops, from the formulas of the paper: what the tensor code must equal."""

import torch
from torch import Tensor


def unit(vector: Tensor) -> Tensor:
    return vector / (vector * vector).sum().sqrt()


def component_score(feature: Tensor, mean: Tensor, kappa: Tensor) -> Tensor:
    """exp(κ μ̃ᵀṽ): the vMF density without the normaliser that every component shares."""
    return torch.exp(kappa * (unit(mean) * unit(feature)).sum())


def component_posterior(feature: Tensor, means: Tensor, kappa: Tensor) -> list[Tensor]:
    """P(z|y, x) of Eq. 10 for the class with these means."""
    scores = [component_score(feature, mean, kappa) for mean in means]
    return [score / sum(scores) for score in scores]


def class_posterior(feature: Tensor, classes: list[Tensor], kappa: Tensor) -> list[Tensor]:
    """P(y|x) of Eq. 11."""
    scores = [
        sum(component_score(feature, mean, kappa) for mean in means) / len(means)
        for means in classes
    ]
    return [score / sum(scores) for score in scores]


def closest(feature: Tensor, means: Tensor) -> int:
    """argmax_k μ̃_kᵀṽ (Eq. 6)."""
    cosines = [float((unit(mean) * unit(feature)).sum()) for mean in means]
    return cosines.index(max(cosines))
