"""UCIR: learning a unified classifier incrementally via rebalancing (Hou et al., CVPR 2019).

A cosine classifier, a less-forget constraint on the direction of features, a margin between samples
of old classes and the new classes nearest to them, and a balanced fine-tuning of the classifier.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from dacr.config import Section
from dacr.learning.losses import less_forget, margin_ranking
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.parts.method import Parts
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.second_stage import HeadTwice, SecondStageOptions
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


class MarginOptions(SecondStageOptions):
    scale: float = Field(default=1.0, gt=0)
    """Where the learnable scale σ of the cosines starts."""
    margin: float = Field(default=0.5, ge=0)
    margin_weight: float = Field(default=1.0, ge=0)
    nearest: int = Field(default=2, ge=1)
    """How many new classes a sample of an old class is kept away from."""
    second_stage_epochs: int = Field(default=20, ge=0)
    second_stage_lr: float = Field(default=0.01, gt=0)
    second_stage_milestones: tuple[int, ...] = (10,)
    """The authors' class balance fine-tuning."""


class CosineWithMargin(HeadTwice):
    Options = MarginOptions
    last_relu = False
    head: CosineHead
    n_old = 0

    def new_head(self, dim: int) -> CosineHead:
        return CosineHead(dim, 0, self.setting.generator("head", 0), self.setting.options.scale)

    def begin(self, session: Session, representation: Representation) -> None:
        """Imprint the new classes; embeddings of old ones without new data rest at first."""
        super().begin(session, representation)
        self.n_old = session.n_old
        if not session.n_old:
            return
        device = self.setting.device
        self.head.to(device)
        self.imprint(session, representation)
        resting = torch.ones(session.n_seen, 1, dtype=torch.bool, device=device)
        resting[session.incoming.to(device)] = False
        self.rest = self.head.weight.register_hook(lambda own: own.masked_fill(resting, 0.0))

    def imprint(self, session: Session, representation: Representation) -> None:
        unit = F.normalize(representation.session_features(session), dim=1)
        rows = session.new.tolist()
        labels = session.data.labels.to(unit.device)
        if rows:
            self.head.imprint(rows, torch.stack([unit[labels == row].mean(0) for row in rows]))

    def losses(self, features: Features, batch: Batch) -> Losses:
        return self.losses_again(features.feature, batch)

    def losses_again(self, features: Tensor, batch: Batch) -> Losses:
        """Fine-tuning keeps the margin."""
        losses = {"cross_entropy": self.cross_entropy(self.head(features), batch.labels)}
        options = self.setting.options
        if self.n_old and options.margin_weight:
            losses["margin"] = options.margin_weight * margin_ranking(
                self.head.cosines(features),
                batch.labels,
                self.n_old,
                margin=options.margin,
                nearest=options.nearest,
            )
        return losses

    def begin_again(self, session: Session, representation: Representation) -> list[nn.Parameter]:
        """All embeddings move, the scale σ does not."""
        self.rest.remove()
        return [self.head.weight]

    @classmethod
    def session_views(cls, scale: Scale) -> int:
        """To imprint, and for the second stage."""
        return super().session_views(scale) + (0 if scale.first else 1)


METHOD = Parts(LessForget, CosineWithMargin)
