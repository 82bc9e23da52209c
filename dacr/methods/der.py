"""DER: dynamically expandable representation (Yan et al., CVPR 2021).

One extractor a session on top of frozen ones, an auxiliary loss that makes the new extractor learn
what the session brings, and a second stage that retrains the classifier on balanced data. Channel
masks are left out, as in the authors' published code.
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
from dacr.learning.training import Batch, Losses, Phase, balanced, extract
from dacr.methods.base import Method
from dacr.model.heads import Head, LinearHead
from dacr.model.super_feature import Representation


class DerOptions(Section):
    auxiliary: float = Field(default=1.0, ge=0)
    """The weight of the auxiliary loss."""
    second_stage_epochs: int = Field(default=30, ge=0)
    second_stage_lr: float = Field(default=0.1, gt=0)
    second_stage_milestones: tuple[int, ...] = (15,)
    temperature: float = Field(default=5.0, gt=0)
    """The logits of the second stage are divided by it."""


class Der(Method):
    """The super-feature grows by an extractor a session; the head is learned anew."""

    Options = DerOptions

    def begin_representation(self, session: Session) -> None:
        if not session.n_old:
            return
        self.features.add(copy.deepcopy(self.features.newest))
        self.place()
        self.features.eval()
        self.old_features = self.once_a_session(session, self.features.frozen)
        # Auxiliary classes: those of D_t, and one for exemplars of all other classes.
        incoming = session.incoming
        self.auxiliary_label = torch.full((session.n_seen,), len(incoming), device=self.device)
        self.auxiliary_label[incoming.to(self.device)] = torch.arange(
            len(incoming), device=self.device
        )
        self.auxiliary = LinearHead(
            self.features.newest.dim, len(incoming) + 1, self.generator("auxiliary", session)
        )

    def new_head(self) -> Head:
        return LinearHead(self.features.dim, 0, self.generator("head", 0), bias=False)

    def begin_classifier(self, session: Session) -> None:
        self.head = self.fresh_head(session, "head")

    def fresh_head(self, session: Session, purpose: str) -> LinearHead:
        generator = self.generator(purpose, session)
        return LinearHead(self.features.dim, session.n_seen, generator, bias=False).to(self.device)

    def represent(self, batch: Batch) -> Representation:
        frozen = None if self.old_features is None else self.old_features(batch)
        return self.features.represent(batch.images, frozen)

    def representation_losses(self, representation: Representation, batch: Batch) -> Losses:
        """The auxiliary classifier sees the newest extractor alone."""
        if self.old_features is None:
            return {}
        newest = representation.feature[:, -self.features.newest.dim :]
        loss = F.cross_entropy(self.auxiliary(newest), self.auxiliary_label[batch.labels])
        return {"auxiliary": self.options.auxiliary * loss}

    def classifier_phases(self, session: Session) -> Iterator[Phase]:
        """Retrain the head alone, on as many samples of every class as the smallest class has."""
        options = self.options
        if not session.n_old or not options.second_stage_epochs:
            return
        self.head = self.fresh_head(session, "second stage")
        self.eval()
        features = self.session_features(session)

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
            positions=balanced(session.data.labels, self.generator("balance", session)),
        )

    def session_features(self, session: Session) -> Tensor:
        """Without augmentation only the newest extractor has to see the images again."""
        if self.old_features is None or self.augmentation.random:
            return super().session_features(session)
        self.eval()
        data = session.data
        newest = extract(
            data.images, len(data), self.features.newest, self.augmentation, self.device
        )
        everything = torch.arange(len(data), device=self.device)
        return torch.cat([self.old_features(at(everything)), newest], 1)


def at(positions: Tensor) -> Batch:
    """A batch of which only the positions matter."""
    return Batch(positions, positions, positions, positions)


METHOD = Der
