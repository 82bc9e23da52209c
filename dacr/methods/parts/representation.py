"""The representation: how features are learned and kept from forgetting.

This one does nothing against forgetting. A host overrides ``begin`` and ``losses``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from dacr.config import Section
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.setting import Setting, Teacher, frozen_copy
from dacr.model.backbones import Backbone, build_backbone
from dacr.model.super_feature import Features, SuperFeature


class NoOptions(Section):
    """For parts without hyper-parameters of their own."""


class Representation(nn.Module):
    """v = F(x), and beside it the feature of the model of session t−1 where that is needed."""

    Options: ClassVar[type[Section]] = NoOptions
    """Hyper-parameters of its own, in the section ``options`` of ``params.yaml``."""

    def __init__(self, setting: Setting, last_relu: bool) -> None:
        super().__init__()
        self.setting = setting
        self.last_relu = last_relu
        self.features = SuperFeature([self._new_extractor(1)])
        self.old: Teacher | None = None
        """The features of the model of session t−1, once ``remember`` was called."""

    def begin(self, session: Session) -> None:
        """Whatever is needed before training: a teacher, a new extractor …"""

    def remember(self, session: Session) -> None:
        """Keep the features of session t−1 as a teacher."""
        self.old = Teacher(self.setting, session, frozen_copy(self.features))

    def forward(self, batch: Batch) -> Features:
        old = None if self.old is None else self.old(batch)
        return self.features.represent(batch.images)._replace(old=old)

    def losses(self, features: Features, batch: Batch) -> Losses:
        """What keeps the features from forgetting; nothing by default."""
        return {}

    def session_features(self, session: Session) -> Tensor:
        """The features of all of D̃_t in eval mode, [len(D̃_t), dim]."""
        self.eval()
        return self.setting.over_session(session, self.features)

    def fixed(self, session: Session) -> Callable[[Batch], Tensor]:
        """The features of a batch, [B, dim], of the network as it is: it must not change any more.

        Looked up where images are the same in every epoch.
        """
        if self.setting.augmentation.random:
            return torch.no_grad()(self.feature)
        features = self.session_features(session)
        return lambda batch: features[batch.positions]

    def feature(self, batch: Batch) -> Tensor:
        """v of a batch alone, [B, dim]."""
        return self.features.represent(batch.images).feature

    def restore(self, extractors: Sequence[Mapping[str, Tensor]]) -> None:
        """Take over the weights of all extractors, the oldest first."""
        networks = [self._new_extractor(number) for number in range(1, len(extractors) + 1)]
        for network, weights in zip(networks, extractors, strict=True):
            network.load_state_dict(weights)
        self.features = SuperFeature(networks)

    # -- counting ---------------------------------------------------------------------------

    @classmethod
    def extractors(cls, session: int) -> int:
        """How many extractors make the feature in a session."""
        return 1

    @classmethod
    def teachers(cls, scale: Scale, wanted: bool) -> int:
        """How many extractors make ``old``; none where nobody wants it."""
        return cls.extractors(scale.index) if wanted and not scale.first else 0

    @classmethod
    def session_passes(cls, scale: Scale, times: int) -> int:
        """Passes of ``session_features``, called so many times while a session is learned."""
        return times * cls.extractors(scale.index) * scale.images

    @classmethod
    def feature_passes(cls, scale: Scale, images: int) -> int:
        """Passes of ``feature`` on so many images."""
        return images

    # -- building ---------------------------------------------------------------------------

    def _new_extractor(self, session: int) -> Backbone:
        generator = self.setting.generator("extractor", session)
        return build_backbone(self.setting.params.model.backbone, self.last_relu, generator)
