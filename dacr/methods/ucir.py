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
from dacr.methods.parts.classifier import Classifier, PriorOptions
from dacr.methods.parts.method import Parts
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.model.heads import CosineHead
from dacr.model.super_feature import Features


class LessForgetOptions(Section):
    lambda_base: float = Field(default=5.0, ge=0)
    """Weight of the less-forget loss; grows with the number of old classes."""


class LessForget(Representation):
    """Features keep the direction that the model of session t−1 gave them."""

    Options = LessForgetOptions

    def begin(self, session: Session) -> None:
        if not session.n_old:
            return
        self.remember(session)
        # λ_base·sqrt(|old| / |incoming|): the original where all incoming classes are new, and
        # never a division by zero where none is.
        self.adaptive_lambda = self.setting.options.lambda_base * math.sqrt(
            session.n_old / len(session.incoming)
        )

    def losses(self, features: Features, batch: Batch) -> Losses:
        if features.old is None:
            return {}
        return {"less_forget": self.adaptive_lambda * less_forget(features.feature, features.old)}

    @classmethod
    def teachers(cls, scale: Scale, wanted: bool) -> int:
        return super().teachers(scale, wanted=True)


class MarginOptions(PriorOptions):
    scale: float = Field(default=1.0, gt=0)
    """Where the learnable scale σ of the cosines starts."""
    margin: float = Field(default=0.5, ge=0)
    margin_weight: float = Field(default=1.0, ge=0)
    nearest: int = Field(default=2, ge=1)
    """How many new classes an exemplar is kept away from."""


class CosineWithMargin(Classifier):
    Options = MarginOptions
    last_relu = False
    head: CosineHead
    n_old = 0

    def new_head(self, dim: int) -> CosineHead:
        return CosineHead(dim, 0, self.setting.generator("head", 0), self.setting.options.scale)

    def begin(self, session: Session, representation: Representation) -> None:
        """Imprint the new classes; the embeddings of old classes without new data stay put."""
        super().begin(session, representation)
        self.n_old = session.n_old
        if not session.n_old:
            return
        device = self.setting.device
        self.head.to(device)
        self.imprint(session, representation)
        resting = torch.ones(session.n_seen, 1, dtype=torch.bool, device=device)
        resting[session.incoming.to(device)] = False
        self.head.weight.register_hook(lambda gradient: gradient.masked_fill(resting, 0.0))

    def imprint(self, session: Session, representation: Representation) -> None:
        unit = F.normalize(representation.session_features(session), dim=1)
        rows = session.new.tolist()
        labels = session.data.labels.to(unit.device)
        if rows:
            self.head.imprint(rows, torch.stack([unit[labels == row].mean(0) for row in rows]))

    def losses(self, features: Features, batch: Batch) -> Losses:
        losses = super().losses(features, batch)
        options = self.setting.options
        if self.n_old and options.margin_weight:
            losses["margin"] = options.margin_weight * margin_ranking(
                self.head.cosines(features.feature),
                batch.labels,
                batch.is_memory,
                self.n_old,
                margin=options.margin,
                nearest=options.nearest,
            )
        return losses

    @classmethod
    def session_views(cls, scale: Scale) -> int:
        """To imprint."""
        return 0 if scale.first else 1


METHOD = Parts(LessForget, CosineWithMargin)
