"""A method: a representation and a classifier, and what they do with a session.

A session runs ``begin`` → ``phases`` (trained one after the other by the one training loop) →
``consolidate`` → ``exemplars`` → ``answer``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import ValidationError
from torch import Tensor

from dacr.config import Params, Section, explain
from dacr.data.augmentation import make_augmentation
from dacr.errors import UserError
from dacr.learning.session import Session
from dacr.learning.training import Batch, Learner, Losses, Phase
from dacr.methods.parts.classifier import Answer, Classifier
from dacr.methods.parts.representation import Representation
from dacr.methods.parts.setting import Setting
from dacr.model.heads import Head
from dacr.model.super_feature import SuperFeature


class Method(Learner):
    """The learner. ``params.memory`` says how it chooses its memory."""

    losses_per_step: ClassVar[int] = 1
    """How often a step passes a batch through the representation."""

    def __init__(self, parts: Parts, params: Params, device: torch.device) -> None:
        super().__init__()
        self.params = params
        self.device = device
        self.augmentation = make_augmentation(params.augmentation)
        self.options = parts.options(params)
        self.setting = Setting(params, self.options, self.augmentation, device)
        self.representation = parts.representation(self.setting, parts.classifier.last_relu)
        self.classifier = parts.classifier(self.setting, self.features.dim)

    @property
    def features(self) -> SuperFeature:
        """F: images to features."""
        return self.representation.features

    @property
    def head(self) -> Head:
        return self.classifier.head

    # -- a session: begin and train ---------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Adapt the model of session t−1 to the classes of session t."""
        train = self.params.train
        # For learning alone: what is evaluated was computed in float32, by the plain network.
        self.features.bf16, self.features.compiled = train.precision == "bf16", train.compile
        self.representation.old = None
        self.representation.begin(session)
        self.head.widen(self.features.dim)
        wanted = self.classifier.needs_old_features and session.n_old > 0
        if wanted and self.representation.old is None:
            self.representation.remember(session)
        self.place()
        self.classifier.begin(session, self.representation)
        self.place()

    def phases(self, session: Session) -> Iterator[Phase]:
        """Everything together, then the classifier's second stage if it has one."""
        first = self.main_phase(session)
        yield first
        yield from self.classifier.second_stage(session, self.representation, first)

    def main_phase(self, session: Session) -> Phase:
        train = self.params.train
        return Phase(
            name="train",
            epochs=train.epochs,
            lr=train.lr,
            milestones=tuple(train.milestones),
            parameters=self.parameter_groups(),
            losses=self.losses,
            start_epoch=lambda epoch: self.start_epoch(session, epoch),
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        exempt = self.classifier.without_decay()
        trained = [p for p in self.parameters() if p.requires_grad]
        decayed = [p for p in trained if all(p is not other for other in exempt)]
        groups: list[dict[str, Any]] = [{"params": decayed}]
        return [*groups, {"params": exempt, "weight_decay": 0.0}] if exempt else groups

    def start_epoch(self, session: Session, epoch: int) -> None:
        self.classifier.start_epoch(session, self.representation, epoch)

    def losses(self, batch: Batch) -> Losses:
        """The classifier's terms and those that protect the representation."""
        features = self.representation(batch)
        return {
            **self.classifier.losses(features, batch),
            **self.representation.losses(features, batch),
        }

    # -- a session: consolidate, remember, answer -------------------------------------------

    def session_features(self, session: Session) -> Tensor:
        """The features of D̃_t as the classifier sees them."""
        return self.classifier.view(self.representation.session_features(session))

    def consolidate(self, session: Session, features: Tensor) -> Any:
        """After training, with the features of D̃_t; what was done, for the record."""
        return self.classifier.consolidate(session, features)

    def exemplars(self, session: Session, features: Tensor) -> Tensor:
        """The positions in D̃_t that become the memory M_{t+1} (Sec. 3.4)."""
        from dacr.learning.memory import select_memory

        memory = self.params.memory
        balanced = memory.strategy == "bilevel"
        chosen = select_memory(
            memory,
            session.data.labels,
            session.data.is_memory,
            session.n_seen,
            features=features,
            components=self.classifier.memory_components(session, features) if balanced else None,
            generator=self.setting.generator("memory", session),
        )
        self.classifier.remember(session, features, chosen)
        return chosen

    def features_of(self, images: Tensor) -> Tensor:
        """v of uint8 images [B, H, W, 3], as they enter a test."""
        features: Tensor = self.features(self.augmentation.test(images.to(self.device)))
        return features

    def answer(self, features: Tensor, rows: Tensor | None = None) -> Answer:
        """Class, confidence and component (inside ``rows`` if given) of features."""
        return self.classifier.answer(features, rows)

    def place(self) -> None:
        """Put all weights on the device, in the memory layout that convolutions are fastest in."""
        self.to(self.device)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@dataclass(frozen=True)
class Parts:
    """What a file of ``dacr/methods`` defines as ``METHOD``."""

    representation: type[Representation] = Representation
    classifier: type[Classifier] = Classifier
    method: type[Method] = Method
    """Only for methods that change how the two are trained together."""
    own_options: type[Section] | None = None
    """Hyper-parameters of ``method``."""

    def make(self, params: Params, device: torch.device) -> Method:
        return self.method(self, params, device)

    def options(self, params: Params) -> Any:
        """The section ``options`` of ``params.yaml``: those of all parts together."""
        sections = [self.own_options, self.classifier.Options, self.representation.Options]
        bases = tuple(dict.fromkeys(section for section in sections if section is not None))
        together: type[Section] = type("Options", bases, {})
        try:
            return together.model_validate(params.options)
        except ValidationError as error:
            raise UserError(explain(error, f"params.yaml: options of {params.method}")) from None
