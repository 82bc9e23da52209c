"""The E-step (Eq. 6): every sample belongs to the closest component of its own class."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.model.heads import MixtureHead


@torch.no_grad()
def assign_to(
    means: Sequence[Tensor], features: Tensor, rows: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """ẑ = argmax_k μ̃_{y,k}ᵀ v for each sample, given one [K_c, d] tensor a class.

    Only the ``candidates`` [N, K_max] of a sample are considered, if they are given. Class by
    class: comparing every sample with the components of every class would cost C times as much.
    """
    assigned = torch.zeros_like(rows)
    for row, components in enumerate(means):
        own = (rows == row).nonzero().squeeze(1)
        # The length of a feature does not change which mean is closest to it.
        cosines = features[own] @ F.normalize(components, dim=-1).T
        if candidates is not None:
            cosines = cosines.masked_fill(~candidates[own, : len(components)], -torch.inf)
        assigned[own] = cosines.argmax(dim=1)
    return assigned


def assign(
    head: MixtureHead, features: Tensor, rows: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """ẑ [N] of samples with ``features`` [N, d] and class ``rows`` [N] under ``head``."""
    return assign_to(head.components(), features, rows, candidates)
