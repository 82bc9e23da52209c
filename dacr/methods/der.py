"""DER: dynamically expandable representation (Yan et al., CVPR 2021).

One extractor per session on top of frozen ones, an auxiliary loss that makes the new extractor
learn what the session brings, and a second stage that retrains the classifier on balanced data.
A session begins with a warm-up. Channel masks are left out; both as in the authors' published code.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from dacr.config import Params, Section
from dacr.errors import UserError
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase
from dacr.methods.parts.method import Method, Parts
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.second_stage import HeadTwice, SecondStageOptions
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
        self.renew(session, "auxiliary")

    def renew(self, session: Session, purpose: str) -> None:
        """An auxiliary classifier with random weights, drawn for ``purpose``."""
        if session.n_old:
            generator, classes = self.setting.generator(purpose, session), len(session.incoming)
            self.auxiliary = LinearHead(self.features.newest.dim, classes + 1, generator)

    def forward(self, batch: Batch) -> Features:
        frozen = None if self.old is None else self.old(batch)
        return self.features.represent(batch.images, frozen)._replace(old=frozen)

    def feature(self, batch: Batch) -> Tensor:
        return self.forward(batch).feature

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

    @classmethod
    def feature_passes(cls, scale: Scale, images: int) -> int:
        """With a fixed number of views the teacher has asked the frozen extractors already."""
        return images * (scale.index if scale.views is None else 1)


class BalancedLinearOptions(SecondStageOptions):
    second_stage_lr: float = Field(default=0.1, gt=0)
    second_stage_milestones: tuple[int, ...] = (15,)
    temperature: float = Field(default=5.0, gt=0)
    """The logits of the second stage are divided by it."""


class BalancedLinear(HeadTwice):
    """A linear head, learned anew in every session and once more on balanced data."""

    Options = BalancedLinearOptions
    head: LinearHead

    def new_head(self, dim: int) -> LinearHead:
        return LinearHead(dim, 0, self.setting.generator("head", 0), bias=False)

    def make_room(self, session: Session, representation: Representation) -> None:
        self.renew(session, representation, "head")

    def renew(self, session: Session, representation: Representation, purpose: str) -> None:
        """A head with random weights, drawn for ``purpose``."""
        generator = self.setting.generator(purpose, session)
        head = LinearHead(representation.features.dim, session.n_seen, generator, bias=False)
        self.head = head.to(self.setting.device)

    def begin_again(self, session: Session, representation: Representation) -> list[nn.Parameter]:
        self.renew(session, representation, "second stage")
        return list(self.head.parameters())

    def losses_again(self, features: Tensor, batch: Batch) -> Losses:
        logits = self.head(features) / self.setting.options.temperature
        return {"cross_entropy": self.cross_entropy(logits, batch.labels)}


class WarmUpOptions(Section):
    warmup_epochs: int = Field(default=10, ge=0)
    """The first of ``train.epochs``; milestones are counted after them."""


class WarmedUp(Method):
    """Every session begins with epochs of a growing learning rate; then both heads start anew."""

    representation: Expandable
    classifier: BalancedLinear

    def __init__(self, parts: Parts, params: Params, device: torch.device) -> None:
        super().__init__(parts, params, device)
        if self.options.warmup_epochs >= params.train.epochs:
            raise UserError(
                f"options.warmup_epochs={self.options.warmup_epochs} leaves nothing of "
                f"train.epochs={params.train.epochs}; lower it (0 is no warm-up)"
            )

    def phases(self, session: Session) -> Iterator[Phase]:
        epochs = self.options.warmup_epochs
        if epochs:
            main = self.main_phase(session)
            yield replace(main, name="warm-up", epochs=epochs, warm_up=True)
            self.classifier.renew(session, self.representation, "head after the warm-up")
            self.representation.renew(session, "auxiliary after the warm-up")
            self.place()
        yield from super().phases(session)

    def main_phase(self, session: Session) -> Phase:
        whole = super().main_phase(session)
        return replace(whole, epochs=whole.epochs - self.options.warmup_epochs)


METHOD = Parts(Expandable, BalancedLinear, WarmedUp, WarmUpOptions)
