"""iCaRL: incremental classifier and representation learning (Rebuffi et al., CVPR 2017).

Distillation of the old network's logits, herded exemplars, and classification by the nearest mean
of exemplars. Means are those of the exemplars alone, without the original's mirrored copies.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from dacr.errors import UserError
from dacr.learning.losses import knowledge_distillation
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.parts.classifier import DistilledClassifier, PriorOptions
from dacr.methods.parts.method import Parts
from dacr.methods.parts.setting import Setting
from dacr.model.super_feature import Features


class ICarlOptions(PriorOptions):
    form: Literal["cross_entropy", "binary"] = "cross_entropy"
    """Cross-entropy and distillation as two terms, or the original's one binary cross-entropy.

    In the original every old class has the old network's output for a target, also on new images of
    that class. Where all classes are old the labels never enter the loss, so it cannot learn a new
    domain.
    """
    temperature: float = Field(default=2.0, gt=0)
    distillation: float = Field(default=1.0, ge=0)
    """Temperature and weight of the distillation; the binary form has neither."""


class NearestMean(DistilledClassifier):
    Options = ICarlOptions
    exemplar_means: Tensor
    """The unit prototypes [n_seen, dim] of all classes, as of the last choice of the memory."""

    def __init__(self, setting: Setting, dim: int) -> None:
        super().__init__(setting, dim)
        params = setting.params
        if params.memory.size < params.data.classes:
            raise UserError(
                f"{params.method} classifies by exemplars, so memory.size must be at least "
                f"{params.data.classes}, one for each class (it is {params.memory.size})"
            )
        if setting.options.form == "binary" and setting.options.prior == "empirical":
            raise UserError(
                "options.prior=empirical is a prior of a softmax, which options.form=binary does "
                "not have; take one of them back"
            )
        self.register_buffer("exemplar_means", torch.zeros(0, dim))

    def losses(self, features: Features, batch: Batch) -> Losses:
        options = self.setting.options
        logits = self.head(features.feature)
        old_logits = None if self.old_logits is None else self.old_logits(batch)
        if options.form == "binary":
            targets = binary_targets(batch.labels, old_logits, logits.shape[1])
            loss = F.binary_cross_entropy_with_logits(logits, targets)
            return {"binary_cross_entropy": loss}
        losses = {"cross_entropy": self.cross_entropy(logits, batch.labels)}
        if old_logits is not None:
            losses["distillation"] = options.distillation * knowledge_distillation(
                logits, old_logits, options.temperature
            )
        return losses

    def remember(self, session: Session, features: Tensor, chosen: Tensor) -> None:
        """The mean of each class's exemplars, in the features of the current network."""
        rows = session.data.labels[chosen].to(features.device)
        unit = F.normalize(features[chosen.to(features.device)], dim=1)
        means = torch.stack([unit[rows == row].mean(0) for row in range(session.n_seen)])
        self.exemplar_means = F.normalize(means, dim=1)

    def scores(self, features: Tensor) -> Tensor:
        """Cosines: on the sphere the nearest mean is the one with the largest."""
        return F.normalize(features, dim=1) @ self.exemplar_means.T


def binary_targets(rows: Tensor, old_logits: Tensor | None, n_seen: int) -> Tensor:
    """One-hot labels [B, n_seen], overwritten by the old network's outputs on its classes."""
    targets = F.one_hot(rows, n_seen).float()
    if old_logits is not None:
        targets[:, : old_logits.shape[1]] = old_logits.sigmoid()
    return targets


METHOD = Parts(classifier=NearestMean)
