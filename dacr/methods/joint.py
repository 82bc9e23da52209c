"""Joint training: a new network in every session, trained on everything seen so far.

The upper bound, and no method of incremental learning: **it breaks the protocol**. Sec. 3.1 lets a
learner keep B exemplars; this one keeps every training image, M_{t+1} = D_1 ∪ … ∪ D_t. The images
reach it by the one way that all methods have, the memory that a session hands to the next, so a
view holds D_t ∪ M_t here, too, and no other method sees more than before. Two parameters declare
it: ``options.protocol: broken``, which every other method refuses, and a ``memory.size`` without
limit, which this one insists on.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dacr.config import Params, Section
from dacr.errors import UserError
from dacr.learning.session import Session
from dacr.methods.parts.classifier import Classifier
from dacr.methods.parts.method import Method, Parts
from dacr.methods.parts.representation import Representation

NO_LIMIT = 1_000_000_000
"""The ``memory.size`` that stands for all images: more than any benchmark has."""


class NewNetwork(Representation):
    """Random weights at the start of every session: nothing of session t−1 remains."""

    def begin(self, session: Session) -> None:
        self.features.newest.load_state_dict(self._new_extractor(session.index).state_dict())


class NewHead(Classifier):
    """A linear head over all seen classes, learned anew in every session."""

    def make_room(self, session: Session, representation: Representation) -> None:
        self.head = self.new_head(representation.features.dim)
        self.head.grow(session.n_seen, self.setting.generator("head", session))


class ProtocolOptions(Section):
    protocol: Literal["broken"]
    """Whoever runs it says so: its numbers are a bound, to be set beside no method's."""


class WholeMemory(Method):
    """The memory is everything seen so far."""

    def __init__(self, parts: Parts, params: Params, device: torch.device) -> None:
        super().__init__(parts, params, device)
        if params.memory.size != NO_LIMIT:
            raise UserError(
                f"{params.method} keeps every image, so memory.size must be {NO_LIMIT}, which is "
                f"no limit (it is {params.memory.size}); method=replay has a limited memory"
            )

    def exemplars(self, session: Session, features: Tensor) -> Tensor:
        return torch.arange(len(session.data))


METHOD = Parts(NewNetwork, NewHead, WholeMemory, ProtocolOptions)
