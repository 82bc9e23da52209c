"""Expansion (Sec. 3.3): where the m new components of every incoming class start.

The paper says "randomly initialised". As random directions they lose every sample to the means
that are already trained, so the readings that look at the incoming data are there too.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

Initialisation = Literal["random_vector", "random_sample", "mean_perturbed", "anchored", "spread"]


def _random_directions(m: int, like: Tensor, generator: Generator) -> Tensor:
    return F.normalize(torch.randn(m, like.shape[1], generator=generator), dim=1).to(like)


def random_vector(unit: Tensor, m: int, generator: Generator) -> Tensor:
    """m random directions: the literal reading."""
    return _random_directions(m, unit, generator)


def random_sample(unit: Tensor, m: int, generator: Generator) -> Tensor:
    """The features of m random samples, or of all where there are fewer."""
    return unit[torch.randperm(len(unit), generator=generator)[:m].to(unit.device)]


def spread(unit: Tensor, m: int, generator: Generator) -> Tensor:
    """The features of m samples far from each other (k-means++ seeding), or of all."""
    chosen: list[int] = []
    gap = torch.full((len(unit),), 2.0, dtype=torch.float64)
    for _ in range(min(m, len(unit))):
        # The floor lets copies of a chosen sample be taken, but only when nothing else is left.
        weights = gap.clamp(min=1e-12)
        weights[chosen] = 0.0
        pick = int(torch.multinomial(weights, 1, generator=generator))
        chosen.append(pick)
        # 1 − cos is half the squared distance on the sphere.
        gap = torch.minimum(gap, (1 - unit @ unit[pick]).double().cpu())
    return unit[chosen]


def mean_perturbed(unit: Tensor, m: int, generator: Generator, perturbation: float) -> Tensor:
    """The direction of the class's incoming mean plus ``perturbation`` × a random direction."""
    centre = _direction(unit)
    return F.normalize(centre + perturbation * _random_directions(m, unit, generator), dim=1)


def _direction(unit: Tensor) -> Tensor:
    return F.normalize(unit.mean(dim=0, keepdim=True), dim=1)


def anchored(new_means: Tensor, inherited: Tensor) -> Tensor:
    """``new_means`` of a seen class, half-way to the direction of its ``inherited`` means.

    A representation that does not know a new domain puts all classes of it in one place. New
    components that start there are the same for every class, and L_inter between them has next to
    no gradient: they win the new samples and learn nothing. Half-way they are where the domain is
    and still tell classes apart.
    """
    return F.normalize(new_means + _direction(F.normalize(inherited, dim=1)), dim=1)


@torch.no_grad()
def initial_means(
    initialisation: Initialisation,
    features: Tensor,
    rows: Tensor,
    incoming: Sequence[int],
    m: int,
    *,
    generator: Generator,
    perturbation: float = 0.5,
    inherited: Sequence[Tensor] = (),
) -> list[Tensor]:
    """Unit means of the new components, at most m, for each class of ``incoming``.

    ``features`` [N, d] and ``rows`` [N] are those of D_t alone: new components are for new data.
    ``inherited`` are the means of the classes seen before, which ``anchored`` starts close to.
    """
    draw: dict[str, Callable[[Tensor, int, Generator], Tensor]] = {
        "random_vector": random_vector,
        "random_sample": random_sample,
        "mean_perturbed": lambda unit, m, g: mean_perturbed(unit, m, g, perturbation),
        "anchored": lambda unit, m, g: mean_perturbed(unit, m, g, perturbation),
        "spread": spread,
    }
    unit = F.normalize(features, dim=1)
    means = [draw[initialisation](unit[rows == row], m, generator) for row in incoming]
    if initialisation != "anchored":
        return means
    return [
        anchored(new, inherited[row].to(new)) if row < len(inherited) else new
        for row, new in zip(incoming, means, strict=True)
    ]
