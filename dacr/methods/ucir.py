"""UCIR: learning a unified classifier incrementally via rebalancing (Hou et al., CVPR 2019).

A cosine classifier, a less-forget constraint on the direction of features, and a margin between the
exemplars and the new classes nearest to them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field

from dacr.config import Section
from dacr.learning.losses import less_forget, margin_ranking
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.base import Method
from dacr.model.heads import CosineHead
from dacr.model.super_feature import Representation


class UcirOptions(Section):
    lambda_base: float = Field(default=5.0, ge=0)
    """Weight of the less-forget loss; grows with the number of old classes."""
    margin: float = Field(default=0.5, ge=0)
    margin_weight: float = Field(default=1.0, ge=0)
    nearest: int = Field(default=2, ge=1)
    """How many new classes an exemplar is kept away from."""


class Ucir(Method):
    Options = UcirOptions
    last_relu = False
    head: CosineHead

    def new_head(self) -> CosineHead:
        return CosineHead(self.features.dim, 0, self.generator("head", 0))

    def begin_representation(self, session: Session) -> None:
        self.n_old = session.n_old
        if not session.n_old:
            return
        self.remember_features(session)
        # λ_base·sqrt(|old| / |incoming|): the original where all incoming classes are new, and
        # never a division by zero where none is.
        self.adaptive_lambda = self.options.lambda_base * math.sqrt(
            session.n_old / len(session.incoming)
        )

    def begin_classifier(self, session: Session) -> None:
        """Imprint the new classes; the embeddings of old classes without new data stay put."""
        super().begin_classifier(session)
        if not session.n_old:
            return
        self.place()
        self.imprint(session)
        resting = torch.ones(session.n_seen, 1, dtype=torch.bool, device=self.device)
        resting[session.incoming.to(self.device)] = False
        self.head.weight.register_hook(lambda gradient: gradient.masked_fill(resting, 0.0))

    def imprint(self, session: Session) -> None:
        unit = F.normalize(self.session_features(session), dim=1)
        rows = session.new.tolist()
        labels = session.data.labels.to(unit.device)
        if rows:
            self.head.imprint(rows, torch.stack([unit[labels == row].mean(0) for row in rows]))

    def classification_losses(self, representation: Representation, batch: Batch) -> Losses:
        losses = super().classification_losses(representation, batch)
        if self.n_old and self.options.margin_weight:
            losses["margin"] = self.options.margin_weight * margin_ranking(
                self.head.cosines(representation.feature),
                batch.labels,
                batch.is_memory,
                self.n_old,
                margin=self.options.margin,
                nearest=self.options.nearest,
            )
        return losses

    def representation_losses(self, representation: Representation, batch: Batch) -> Losses:
        if self.old_features is None:
            return {}
        loss = less_forget(representation.feature, self.old_features(batch))
        return {"less_forget": self.adaptive_lambda * loss}


METHOD = Ucir
