"""EE2L: end-to-end incremental learning (Castro et al., ECCV 2018, who call it EEIL).

A cross-distilled loss with one distillation term for each earlier group of classes, and a second
stage that fine-tunes the whole network on class-balanced data. Gradient noise is left out.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from dacr.learning.losses import knowledge_distillation
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase
from dacr.methods.parts.classifier import DistilledClassifier
from dacr.methods.parts.method import Parts
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.second_stage import SecondStageOptions, TwoStage
from dacr.methods.parts.setting import Setting
from dacr.model.super_feature import Features


class EeilOptions(SecondStageOptions):
    temperature: float = Field(default=2.0, gt=0)
    distillation: float = Field(default=1.0, ge=0)
    """Temperature and weight of the distillation."""
    second_stage_lr: float = Field(default=0.01, gt=0)
    second_stage_milestones: tuple[int, ...] = (10, 20)


class GroupDistilled(TwoStage, DistilledClassifier):
    Options = EeilOptions
    group: Tensor
    """The session [n_seen] in which each class was first seen; those of one session are a group."""

    def __init__(self, setting: Setting, dim: int) -> None:
        super().__init__(setting, dim)
        self.register_buffer("group", torch.zeros(0, dtype=torch.long))

    def begin(self, session: Session, representation: Representation) -> None:
        super().begin(session, representation)
        newcomers = self.group.new_full((len(session.new),), session.index)
        self.group = torch.cat([self.group, newcomers])
        self.group_sizes = self.group.unique_consecutive(return_counts=True)[1].tolist()

    def losses(self, features: Features, batch: Batch) -> Losses:
        """The cross-distilled loss; the teacher is the old network, or that of the first stage."""
        options = self.setting.options
        logits = self.head(features.feature)
        losses = {"cross_entropy": self.cross_entropy(logits, batch.labels)}
        if self.old_logits is not None:
            losses["distillation"] = options.distillation * grouped_distillation(
                logits, self.old_logits(batch), self.group_sizes, options.temperature
            )
        return losses

    def again(self, session: Session, representation: Representation, first: Phase) -> Phase:
        """Fine-tune everything by the same loss; the teacher now knows the new group too."""
        self.remember_network(session, representation)
        return first

    @classmethod
    def retrained(cls, scale: Scale) -> int:
        return cls.trained_again(scale)

    @classmethod
    def teacher_passes(cls, scale: Scale, extractors: int) -> int:
        """The second stage has a teacher of its own."""
        again = cls.retrained(scale)
        second = scale.teacher(extractors, again) if again else 0
        return super().teacher_passes(scale, extractors) + second


def grouped_distillation(
    logits: Tensor, old_logits: Tensor, group_sizes: list[int], temperature: float
) -> Tensor:
    """The sum over the groups of the distillation inside each group.

    A group that the teacher does not know adds 0. So does one of a single class, as a softmax over
    one logit is 1 whatever the logit.
    """
    total, end = logits.new_zeros(()), 0
    for size in group_sizes:
        start, end = end, end + size
        total = total + knowledge_distillation(
            logits[:, start:end], old_logits[:, start:end], temperature
        )
    return total


METHOD = Parts(classifier=GroupDistilled)
