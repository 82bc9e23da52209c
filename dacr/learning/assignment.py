"""The E-step (Eq. 6): every sample belongs to the closest component of its own class."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.model.heads import MixtureHead
from dacr.runtime.device import send


@torch.no_grad()
def assign_to(
    means: Sequence[Tensor], features: Tensor, rows: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """ẑ = argmax_k μ̃_{y,k}ᵀ v for each sample, given one [K_c, d] tensor per class.

    Only the ``candidates`` [N, K_max] of a sample are considered, if they are given. Class by
    class: comparing every sample with the components of every class would cost C times as much.
    ``rows`` [N] are on the CPU: the host knows the number of samples per class without waiting.
    """
    assigned = torch.zeros(len(rows), dtype=torch.long, device=features.device)
    for row, components in enumerate(means):
        own = send((rows == row).nonzero().squeeze(1), features.device)
        # The length of a feature does not change which mean is closest to it.
        cosines = features[own] @ F.normalize(components, dim=-1).T
        if candidates is not None:
            cosines = cosines.masked_fill(~candidates[own, : len(components)], -torch.inf)
        assigned[own] = cosines.argmax(dim=1)
    return assigned


def assign(
    head: MixtureHead, features: Tensor, rows: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """ẑ [N] of samples with ``features`` [N, d] and class ``rows`` [N] (on the CPU)."""
    return assign_to(head.components(), features, rows, candidates)


def all_components(head: MixtureHead, rows: Tensor, is_memory: Tensor) -> Tensor:
    """A sample may come from any component of its class, [B, K_max]."""
    return head.mask[rows]


def own_class(logits: Tensor, rows: Tensor) -> Tensor:
    """The component logits [B, K_max] of each sample's own class, of ``logits`` [B, C, K_max]."""
    return logits[torch.arange(len(rows), device=rows.device), rows]


def possible_logits(logits: Tensor, rows: Tensor, candidates: Tensor) -> Tensor:
    """``logits`` [B, C, K_max]; in a sample's own class those of its ``candidates`` alone."""
    possible = torch.ones_like(logits, dtype=torch.bool)
    possible[torch.arange(len(rows), device=rows.device), rows] = candidates
    return logits.masked_fill(~possible, -torch.inf)
