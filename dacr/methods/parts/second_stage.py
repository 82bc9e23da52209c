"""The second stage: training after the main phase, on class-balanced data.

EE2L fine-tunes the whole network in it, DER and UCIR train the head alone on features that no
longer change. The first session has none: it has no memory that could be out of balance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field
from torch import Tensor, nn

from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase, balanced
from dacr.methods.parts.classifier import Classifier, PriorOptions
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale


class SecondStageOptions(PriorOptions):
    second_stage_epochs: int = Field(default=30, ge=0)
    second_stage_lr: float = Field(gt=0)
    second_stage_milestones: tuple[int, ...]


class TwoStage(Classifier):
    """A classifier that is trained once more, on equally many samples of every class."""

    def second_stage(
        self, session: Session, representation: Representation, first: Phase
    ) -> Iterator[Phase]:
        options = self.setting.options
        if not session.n_old or not options.second_stage_epochs:
            return
        self.log_prior = None  # balanced data have a uniform one
        yield replace(
            self.again(session, representation, first),
            name="second stage",
            epochs=options.second_stage_epochs,
            lr=options.second_stage_lr,
            milestones=options.second_stage_milestones,
            positions=balanced(session.data.labels, self.setting.generator("balance", session)),
        )

    @abstractmethod
    def again(self, session: Session, representation: Representation, first: Phase) -> Phase:
        """What is trained, and by which losses; called when the main phase ``first`` has ended."""

    @classmethod
    def trained_again(cls, scale: Scale) -> int:
        """How many images it is trained on, each epoch anew."""
        return 0 if scale.first else scale.options.second_stage_epochs * scale.balanced


class HeadTwice(TwoStage):
    """A second stage that trains the head alone; the network is in eval mode and rests.

    Where augmentation is random its features are computed anew in every epoch, from images as the
    main phase sees them; otherwise they are the same in every epoch and computed once.
    """

    def again(self, session: Session, representation: Representation, first: Phase) -> Phase:
        features = representation.fixed(session)
        parameters = self.begin_again(session, representation)
        return replace(
            first,
            parameters=[{"params": parameters}],
            losses=lambda batch: self.losses_again(features(batch), batch),
            start_epoch=lambda epoch: None,
            training=False,
            images=self.setting.augmentation.random,
        )

    @abstractmethod
    def begin_again(self, session: Session, representation: Representation) -> list[nn.Parameter]:
        """Prepare the head; the parameters that are trained."""

    @abstractmethod
    def losses_again(self, features: Tensor, batch: Batch) -> Losses:
        """The losses of the second stage, given features [B, dim]."""

    @classmethod
    def session_views(cls, scale: Scale) -> int:
        return 1 if cls.trained_again(scale) and not scale.augmented else 0

    @classmethod
    def looked_at(cls, scale: Scale) -> int:
        return cls.trained_again(scale) if scale.augmented else 0
