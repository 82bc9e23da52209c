"""DER: dynamically expandable representation (Yan et al., CVPR 2021).

One extractor per session on top of frozen ones, an auxiliary loss that makes the new extractor
learn what the session brings, and a second stage that retrains the classifier on balanced data.
Channel masks are left out, as in the authors' published code.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from dacr.config import Section
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase, balanced
from dacr.methods.parts.classifier import Classifier, PriorOptions
from dacr.methods.parts.method import Parts
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.setting import Teacher
from dacr.model.heads import LinearHead
from dacr.model.super_feature import Features


class AuxiliaryOptions(Section):
    auxiliary: float = Field(default=1.0, ge=0)
    """The weight of the auxiliary loss."""


class Expandable(Representation):
    """The super-feature grows by an extractor per session; older ones are frozen."""

    Options = AuxiliaryOptions

    def begin(self, session: Session) -> None:
        if not session.n_old:
            return
        self.features.add(copy.deepcopy(self.features.newest))
        device = self.setting.device
        self.features.to(device).eval()
        # The frozen extractors are the model of session t−1.
        self.old = Teacher(self.setting, session, self.features.frozen)
        # Auxiliary classes: those of D_t, and one for exemplars of all other classes.
        incoming = session.incoming
        self.auxiliary_label = torch.full((session.n_seen,), len(incoming), device=device)
        self.auxiliary_label[incoming.to(device)] = torch.arange(len(incoming), device=device)
        generator = self.setting.generator("auxiliary", session)
        self.auxiliary = LinearHead(self.features.newest.dim, len(incoming) + 1, generator)

    def forward(self, batch: Batch) -> Features:
        frozen = None if self.old is None else self.old(batch)
        return self.features.represent(batch.images, frozen)._replace(old=frozen)

    def losses(self, features: Features, batch: Batch) -> Losses:
        """The auxiliary classifier sees the newest extractor alone."""
        if self.old is None:
            return {}
        newest = features.feature[:, -self.features.newest.dim :]
        loss = F.cross_entropy(self.auxiliary(newest), self.auxiliary_label[batch.labels])
        return {"auxiliary": self.setting.options.auxiliary * loss}

    def session_features(self, session: Session) -> Tensor:
        """While a session is trained, only the newest extractor has to see its images again."""
        if self.old is None:
            return super().session_features(session)
        self.eval()
        newest = self.setting.over_session(session, self.features.newest_feature)
        return torch.cat([self.old.on_session, newest], 1)

    @classmethod
    def extractors(cls, session: int) -> int:
        return session

    @classmethod
    def teachers(cls, scale: Scale, wanted: bool) -> int:
        return scale.index - 1

    @classmethod
    def session_passes(cls, scale: Scale, times: int) -> int:
        """The frozen extractors see D̃_t once; without augmentation the teacher has asked them."""
        frozen = scale.index - 1 if times and scale.augmented else 0
        return (frozen + times) * scale.images


class SecondStageOptions(PriorOptions):
    second_stage_epochs: int = Field(default=30, ge=0)
    second_stage_lr: float = Field(default=0.1, gt=0)
    second_stage_milestones: tuple[int, ...] = (15,)
    temperature: float = Field(default=5.0, gt=0)
    """The logits of the second stage are divided by it."""


class BalancedLinear(Classifier):
    """A linear head, learned anew in every session and once more on balanced data."""

    Options = SecondStageOptions
    head: LinearHead

    def new_head(self, dim: int) -> LinearHead:
        return LinearHead(dim, 0, self.setting.generator("head", 0), bias=False)

    def make_room(self, session: Session, representation: Representation) -> None:
        self.head = self.fresh_head(session, representation, "head")

    def fresh_head(
        self, session: Session, representation: Representation, purpose: str
    ) -> LinearHead:
        generator = self.setting.generator(purpose, session)
        head = LinearHead(representation.features.dim, session.n_seen, generator, bias=False)
        return head.to(self.setting.device)

    def second_stage(
        self, session: Session, representation: Representation, first: Phase
    ) -> Iterator[Phase]:
        """Retrain the head alone, on as many samples of every class as the smallest class has."""
        options = self.setting.options
        if not session.n_old or not options.second_stage_epochs:
            return
        self.head = self.fresh_head(session, representation, "second stage")
        features = representation.session_features(session)

        def losses(batch: Batch) -> Losses:
            logits = self.head(features[batch.positions]) / options.temperature
            return {"cross_entropy": F.cross_entropy(logits, batch.labels)}

        yield Phase(
            name="second stage",
            epochs=options.second_stage_epochs,
            lr=options.second_stage_lr,
            milestones=options.second_stage_milestones,
            parameters=[{"params": list(self.head.parameters())}],
            losses=losses,
            training=False,
            images=False,
            positions=balanced(session.data.labels, self.setting.generator("balance", session)),
        )

    @classmethod
    def session_views(cls, scale: Scale) -> int:
        """Once for the second stage, which trains the head alone."""
        return 0 if scale.first or not scale.options.second_stage_epochs else 1


METHOD = Parts(Expandable, BalancedLinear)
