"""Expansion (Sec. 3.3): where the m new components of every incoming class start.

The paper says "randomly initialized". As random directions they lose every sample to the means
that are already trained, so the readings that look at the incoming data are there too.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from dacr.config import Mixture
from dacr.learning.assignment import assign
from dacr.learning.session import Session
from dacr.model.heads import MixtureHead


class InitialMeans(Protocol):
    def __call__(
        self, unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None
    ) -> Tensor:
        """At most m unit means for one class.

        ``unit`` [N, d] are its normalised features in D_t alone: new components are for new data.
        ``inherited`` [K, d] are its means of session t−1; None for a new class.
        """
        ...


def _random_directions(m: int, like: Tensor, generator: Generator) -> Tensor:
    return F.normalize(torch.randn(m, like.shape[1], generator=generator), dim=1).to(like)


def random_vector(
    unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None
) -> Tensor:
    """m random directions: the literal reading."""
    return _random_directions(mixture.components, unit, generator)


def random_sample(
    unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None
) -> Tensor:
    """The features of m random samples, or of all where there are fewer."""
    order = torch.randperm(len(unit), generator=generator)
    return unit[order[: mixture.components].to(unit.device)]


def mean_perturbed(
    unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None
) -> Tensor:
    """The direction of the class's incoming mean plus ``perturbation`` × a random direction."""
    centre = F.normalize(unit.mean(dim=0, keepdim=True), dim=1)
    noise = _random_directions(mixture.components, unit, generator)
    return F.normalize(centre + mixture.perturbation * noise, dim=1)


def k_means_seeds(unit: Tensor, m: int, generator: Generator) -> Tensor:
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


@torch.no_grad()
def carry_over(head: MixtureHead, features: Tensor, session: Session) -> None:
    """Carry inherited means into a representation that has grown by a block (DER).

    ``features`` are those of D̃_t. A mean becomes that of its exemplars' features in the new
    representation. The extractor of the new block starts as a copy of the last, so a mean without
    exemplars repeats its last block.
    """
    old_dim = head.raw_means.shape[2]
    block = features.shape[1] - old_dim
    if not block or not session.n_old:
        return
    memory = session.data.is_memory
    exemplars = features[memory.nonzero().squeeze(1).to(features.device)]
    rows = session.data.labels[memory]
    assigned = assign(head, exemplars[:, :old_dim], rows).cpu()
    unit = F.normalize(exemplars, dim=1)
    grown = []
    for row, means in enumerate(head.components()):
        repeated = F.normalize(torch.cat([means, means[:, -block:]], 1), dim=1)
        for k in range(len(means)):
            own = unit[((rows == row) & (assigned == k)).nonzero().squeeze(1).to(unit.device)]
            if len(own):
                repeated[k] = F.normalize(own.mean(0), dim=0)
        grown.append(repeated)
    head.set_components(grown)
