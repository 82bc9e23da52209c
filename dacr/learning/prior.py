"""The priors P(y) and P(z|y) that classifiers train with.

The paper takes both uniform (Eq. 11), in training and at inference.
"""

import torch
from torch import Tensor

from dacr.learning.session import Session
from dacr.model.heads import MixtureHead


def class_log_frequencies(rows: Tensor, n_classes: int) -> Tensor:
    """The log of how many samples each class has, [C]: what logit adjustment adds in training.

    A class without samples counts as one, so that it keeps a finite score.
    """
    return rows.bincount(minlength=n_classes).clamp(min=1).double().log().float()


def uniform_log_prior(session: Session, head: MixtureHead) -> Tensor:
    """−log K_c, [C, K_max]: every class alike, and every component of a class."""
    counts = head.counts().cpu()
    return -counts.double().log().float().unsqueeze(1).expand(-1, int(counts.max()))


def empirical_log_prior(
    rows: Tensor, is_memory: Tensor, inherited: Tensor, counts: Tensor
) -> Tensor:
    """The log of how many samples of D̃_t a component stands for, [C, K_max].

    ``counts`` [C] are the K_c, of which the first ``inherited`` [C] are older than this session.
    Inherited components share the exemplars of their class equally, new ones its incoming samples;
    where a class has only one kind they share everything. A share is never empty, so that a class
    without exemplars keeps a finite score.
    """
    classes, k_max = len(counts), int(counts.max())
    remembered = rows[is_memory].bincount(minlength=classes)
    incoming = rows[~is_memory].bincount(minlength=classes)
    new = counts - inherited
    is_new = torch.arange(k_max) >= inherited.unsqueeze(1)
    both = ((inherited > 0) & (new > 0)).unsqueeze(1)

    def of_kind(old_kind: Tensor, new_kind: Tensor) -> Tensor:
        kind = torch.where(is_new, new_kind.unsqueeze(1), old_kind.unsqueeze(1))
        return torch.where(both, kind, (old_kind + new_kind).unsqueeze(1))

    samples = of_kind(remembered, incoming).clamp(min=1)
    return (samples.double() / of_kind(inherited, new)).log().float()
