"""The losses of the M-step (Sec. 3.3) and of the methods that host or precede the mixture.

All are averages that are 0 for an empty batch, never NaN, and none waits for the device. Logits of
a mixture are [B, C, K_max] with −inf at the padding, as ``MixtureHead`` gives them.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Direction = Literal["new_old", "old_new"]


def _mean(values: Tensor) -> Tensor:
    return values.sum() / max(values.numel(), 1)


def lambda_at(epoch: float, lam: float, ramp_epochs: float) -> float:
    """λ of Eq. 8: grows linearly from 0 over the first ``ramp_epochs``, then stays."""
    return lam if epoch >= ramp_epochs else lam * epoch / ramp_epochs


def inter_class_loss(class_scores: Tensor, rows: Tensor) -> Tensor:
    """−log P(y|x) (Eq. 9, first term); ``class_scores`` [B, C] are log P(y|x) up to a constant."""
    return _mean(F.cross_entropy(class_scores, rows, reduction="none"))


def intra_class_loss(logits: Tensor, rows: Tensor, assigned: Tensor) -> Tensor:
    """−log P(z=ẑ|x, y) (Eq. 9, second term; Eq. 10); ``assigned`` [B] are the E-step's ẑ."""
    log_posterior = logits.log_softmax(dim=-1).flatten(1)
    return _mean(F.nll_loss(log_posterior, rows * logits.shape[-1] + assigned, reduction="none"))


def intra_class_distillation(
    logits: Tensor, old_logits: Tensor, direction: Direction = "new_old"
) -> Tensor:
    """L_dis (Eq. 12): KL between the new and the old P(z|y=c, x), over images and old classes.

    ``old_logits`` [B, C_old, K_old] are those of the previous session's model, with its own κ. Its
    classes are the first rows and its components the first of their rows; new components have no
    counterpart, so the new posterior is taken over the inherited ones only. A class with one old
    component contributes 0 and counts in the average, as in the paper's sum.
    """
    _, old_classes, old_k_max = old_logits.shape
    padding = old_logits.isneginf()
    inherited = logits[:, :old_classes, :old_k_max].masked_fill(padding, -float("inf"))
    log_new = inherited.log_softmax(dim=-1).masked_fill(padding, 0.0)
    log_old = old_logits.log_softmax(dim=-1).masked_fill(padding, 0.0)
    # At the padding both logs are 0, so the product below is 0 whatever its weight.
    if direction == "new_old":
        divergence = log_new.exp() * (log_new - log_old)
    else:
        divergence = log_old.exp() * (log_old - log_new)
    return _mean(divergence.sum(dim=-1))


def component_regularisation(unit_means: Tensor, counts: Tensor) -> Tensor:
    """L_reg (Eq. 13): minus half the mean cosine between a class's means; 0 for one component.

    Σ_{i<j} μ_iᵀμ_j = (‖Σμ‖² − K)/2. ``unit_means`` [C, K_max, d] are zero at the padding.
    """
    k = counts.to(unit_means.dtype)
    pairs = (unit_means.sum(dim=1).square().sum(dim=-1) - k) / 2
    return -_mean((pairs / (k * (k - 1)).clamp(min=1)).masked_fill(counts < 2, 0.0))


def less_forget(features: Tensor, old_features: Tensor) -> Tensor:
    """UCIR's 1 − cos(f, f̄) over all samples of the batch."""
    return _mean(1 - F.cosine_similarity(features, old_features, dim=-1))


def margin_ranking(
    cosines: Tensor,
    rows: Tensor,
    n_old: int,
    *,
    margin: float = 0.5,
    nearest: int = 2,
) -> Tensor:
    """UCIR's L_mr: max(0, margin − cos_y + cos_c) between old classes and the nearest new ones.

    It protects every sample of an old class, new images of it too. New classes are the rows from
    ``n_old`` on; with none of them, or no sample of an old one, the loss is 0.
    """
    hardest = cosines[:, n_old:].topk(min(nearest, cosines.shape[1] - n_old), dim=1).values
    own = -F.nll_loss(cosines, rows, reduction="none")
    violations = (margin - own.unsqueeze(1) + hardest).clamp(min=0)
    weights = (rows < n_old).to(cosines.dtype)
    return (weights * violations.sum(dim=1)).sum() / (
        weights.sum().clamp(min=1) * max(hardest.shape[1], 1)
    )


def knowledge_distillation(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """−Σ softmax(ō/T) · log softmax(o/T) over the teacher's classes, the first rows of the student.

    No T² factor. With a teacher that knows no class the loss is 0.
    """
    student = logits[:, : teacher_logits.shape[1]] / temperature
    target = (teacher_logits / temperature).softmax(dim=1)
    return _mean(-(target * student.log_softmax(dim=1)).sum(dim=1))
