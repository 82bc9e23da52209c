"""The classifier: what tells classes apart, given features.

This one is linear over all seen classes and trained by cross-entropy. Others override what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from dacr.config import Section
from dacr.learning.prior import class_log_frequencies
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.setting import Setting, Teacher, frozen_copy
from dacr.model.heads import Head, LinearHead
from dacr.model.super_feature import Features


class Answer(NamedTuple):
    """What the model says about a batch of features, [B] each."""

    rows: Tensor
    """The predicted classes."""
    confidence: Tensor
    """P(y|x) of the predicted class."""
    components: Tensor
    """The component inside the class; 0 for a classifier with one prototype per class."""


class PriorOptions(Section):
    prior: Literal["uniform", "empirical"] = "uniform"
    """P(y) in the softmax of training; empirical: the class frequencies of D̃_t (logit adjustment).

    Asked with a uniform prior, a classifier that was trained with the frequencies of its data does
    not prefer the classes that had more of them.
    """


class Classifier(nn.Module):
    """A linear head that grows by the new classes of every session."""

    Options: ClassVar[type[Section]] = PriorOptions
    """Hyper-parameters of its own, in the section ``options`` of ``params.yaml``."""
    last_relu: ClassVar[bool] = True
    """Cosine and vMF heads need features on the whole sphere, so they remove the last ReLU."""
    needs_old_features: ClassVar[bool] = False
    """Whether ``losses`` asks for the features of the model of session t−1."""
    head: Head
    log_prior: Tensor | None = None
    """log P(y) up to a constant, [n_seen], where it is not uniform."""

    def __init__(self, setting: Setting, dim: int) -> None:
        super().__init__()
        self.setting = setting
        self.head = self.new_head(dim)

    def new_head(self, dim: int) -> Head:
        return LinearHead(dim, 0, self.setting.generator("head", 0))

    # -- learning ---------------------------------------------------------------------------

    def begin(self, session: Session, representation: Representation) -> None:
        """Make room for the new classes, and look how frequent each class is."""
        self.make_room(session, representation)
        if self.setting.options.prior == "empirical":
            frequencies = class_log_frequencies(session.data.labels, session.n_seen)
            self.log_prior = frequencies.to(self.setting.device)

    def make_room(self, session: Session, representation: Representation) -> None:
        self.head.grow(len(session.new), self.setting.generator("head", session))

    def start_epoch(self, session: Session, representation: Representation, epoch: int) -> None:
        """Before each epoch of the main phase."""

    def losses(self, features: Features, batch: Batch) -> Losses:
        """The weighted terms of the loss on a batch; each is a curve of the report."""
        return {"cross_entropy": self.cross_entropy(self.head(features.feature), batch.labels)}

    def cross_entropy(self, logits: Tensor, rows: Tensor) -> Tensor:
        """−log P(y|x), where the logits stand for log P(x|y) and the prior is that of training."""
        return F.cross_entropy(logits if self.log_prior is None else logits + self.log_prior, rows)

    def second_stage(
        self, session: Session, representation: Representation, first: Phase
    ) -> Iterator[Phase]:
        """Training after the main phase ``first``; none by default."""
        yield from ()

    def without_decay(self) -> list[nn.Parameter]:
        """Parameters that weight decay must not touch."""
        return []

    # -- after learning: only the stage `consolidate` calls these ---------------------------

    def view(self, features: Tensor) -> Tensor:
        """Features of D̃_t as the classifier sees them."""
        return features

    def consolidate(self, session: Session, features: Tensor) -> Any:
        """Reduce, align …; what was done, for the record."""

    def memory_components(self, session: Session, features: Tensor) -> Tensor:
        """What bi-level memory balances inside a class: here clusters of the features."""
        from dacr.learning.memory import cluster_components

        params = self.setting.params
        generator = self.setting.generator("clustering", session)
        return cluster_components(
            features.cpu(), session.data.labels, params.mixture.components, params.reduction,
            generator,
        )  # fmt: skip

    def remember(self, session: Session, features: Tensor, chosen: Tensor) -> None:
        """Whatever is kept of the exemplars at positions ``chosen`` besides their images."""

    # -- inference --------------------------------------------------------------------------

    def scores(self, features: Tensor) -> Tensor:
        """[B, n_seen]; the prediction is their arg max."""
        scores: Tensor = self.head(features)
        return scores

    def probabilities(self, features: Tensor) -> Tensor:
        """P(y|x), [B, n_seen]."""
        return self.scores(features).float().softmax(1)

    def components(self, features: Tensor, rows: Tensor) -> Tensor:
        """The component of each feature inside the classes ``rows``."""
        return rows.new_zeros(rows.shape)

    def answer(self, features: Tensor, rows: Tensor | None = None) -> Answer:
        """Class, confidence and component of features.

        The component is the one inside the predicted class, or inside the classes ``rows``.
        """
        predicted = self.scores(features).argmax(1)
        confidence = self.probabilities(features).gather(1, predicted.unsqueeze(1)).squeeze(1)
        return Answer(
            predicted, confidence, self.components(features, predicted if rows is None else rows)
        )

    # -- counting ---------------------------------------------------------------------------

    @classmethod
    def session_views(cls, scale: Scale) -> int:
        """How often it asks for the features of D̃_t while a session is learned."""
        return 0

    @classmethod
    def retrained(cls, scale: Scale) -> int:
        """How many images the extractor is trained on in the second stage, each epoch anew."""
        return 0

    @classmethod
    def looked_at(cls, scale: Scale) -> int:
        """How many images pass the whole network, untrained, in the second stage."""
        return 0

    @classmethod
    def teacher_passes(cls, scale: Scale, extractors: int) -> int:
        """Passes of a teacher of its own, where the feature is made by so many extractors."""
        return 0

    # -- between sessions -------------------------------------------------------------------

    def lasting(self) -> dict[str, Tensor]:
        """What crosses to the next session: the head and own buffers, not modules beside them."""
        tensors = self.state_dict().items()
        return {name: t for name, t in tensors if name.startswith("head.") or "." not in name}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what ``lasting`` gave."""
        head = {k.removeprefix("head."): v for k, v in tensors.items() if k.startswith("head.")}
        self.head.restore(head)
        for name, tensor in tensors.items():
            if not name.startswith("head."):
                self.register_buffer(name, tensor)


class DistilledClassifier(Classifier):
    """A linear classifier with a teacher of logits: the network as it was, head included."""

    old_logits: Teacher | None = None

    def begin(self, session: Session, representation: Representation) -> None:
        if session.n_old:
            self.remember_network(session, representation)
        super().begin(session, representation)

    def remember_network(self, session: Session, representation: Representation) -> None:
        network = frozen_copy(nn.Sequential(representation.features, self.head))
        self.old_logits = Teacher(self.setting, session, network)

    @classmethod
    def teacher_passes(cls, scale: Scale, extractors: int) -> int:
        return 0 if scale.first else scale.teacher(extractors, scale.trained)
