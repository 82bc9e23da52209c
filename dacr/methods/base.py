"""What a method is: the hooks that the one training loop calls, with the defaults most share.

A session runs ``begin`` → ``phases`` (trained one after the other) → ``consolidate`` →
``exemplars``. The classifier and the representation have hooks of their own, because 'w/ ours'
(`dacr.methods.ours`) swaps the first and keeps the second.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from dacr.config import Params, Section, explain
from dacr.data.augmentation import make_augmentation
from dacr.errors import UserError
from dacr.learning.memory import cluster_components, select_memory
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase, extract
from dacr.model.backbones import Backbone, build_backbone
from dacr.model.heads import Head, LinearHead
from dacr.model.super_feature import Representation, SuperFeature
from dacr.rng import torch_generator

M = TypeVar("M", bound=nn.Module)


class Answer(NamedTuple):
    """The model's word on a batch of features, [B] each."""

    rows: Tensor
    """The predicted classes."""
    confidence: Tensor
    """P(y|x) of the predicted class."""
    components: Tensor


class NoOptions(Section):
    """For methods without hyper-parameters of their own."""


class Method(nn.Module):
    """The learner: a representation, a head, and what it does with a session."""

    Options: ClassVar[type[Section]] = NoOptions
    """The method's own hyper-parameters, the section ``options`` of ``params.yaml``."""
    last_relu: ClassVar[bool] = True
    """Cosine and vMF heads need features on the whole sphere, so they remove the last ReLU."""

    def __init__(self, params: Params, device: torch.device) -> None:
        super().__init__()
        self.params = params
        self.device = device
        self.options = read_options(type(self), params)
        augmentation = params.augmentation
        self.augmentation = make_augmentation(
            augmentation.name, augmentation.input_size, augmentation.mean, augmentation.std
        )
        self.features = self.super_feature([self.new_extractor(1)])
        self.head: Head = self.new_head()
        self.old_features: Callable[[Batch], Tensor] | None = None
        """The feature that the model of session t−1 gives a batch, once it is remembered."""
        self.old_logits: Callable[[Batch], Tensor] | None = None
        """The logits of the remembered network, for methods that distil them."""
        self.history: dict[str, list[dict[str, Any]]] = {}
        """What the method tells of this session beyond its losses (components, merges …)."""

    # -- what a session does ----------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Adapt the model of session t−1 to the classes of session t."""
        self.begin_representation(session)
        self.begin_classifier(session)
        self.place()

    def begin_representation(self, session: Session) -> None:
        """Whatever the representation needs before training: a teacher, a new extractor …"""

    def begin_classifier(self, session: Session) -> None:
        """Make room for the new classes."""
        self.head.grow(len(session.new), self.generator("head", session))

    def phases(self, session: Session) -> Iterator[Phase]:
        """The training of a session: everything together, then the classifier alone if wanted."""
        yield self.training_phase(session)
        yield from self.classifier_phases(session)

    def classifier_phases(self, session: Session) -> Iterator[Phase]:
        """A second, balanced stage for the classifier; none by default."""
        yield from ()

    def losses(self, batch: Batch) -> Losses:
        """The weighted terms of the loss on a batch."""
        representation = self.represent(batch)
        return {
            **self.classification_losses(representation, batch),
            **self.representation_losses(representation, batch),
        }

    def classification_losses(self, representation: Representation, batch: Batch) -> Losses:
        """Cross-entropy over all seen classes."""
        logits = self.head(representation.feature)
        return {"cross_entropy": nn.functional.cross_entropy(logits, batch.labels)}

    def representation_losses(self, representation: Representation, batch: Batch) -> Losses:
        """What keeps the representation from forgetting; nothing by default."""
        return {}

    def start_epoch(self, session: Session, epoch: int) -> None:
        """Before each epoch of the training phase."""

    def consolidate(self, session: Session, features: Tensor) -> None:
        """After training, with the features of D̃_t: reduce, align …"""

    def exemplars(self, session: Session, features: Tensor) -> Tensor:
        """The positions in D̃_t that become the memory M_{t+1}."""
        memory = self.params.memory
        return select_memory(
            memory.strategy,
            session.data.labels,
            memory.size,
            session.n_seen,
            features=features,
            components=(
                self.memory_components(session, features) if memory.strategy == "bilevel" else None
            ),
            generator=self.generator("memory", session),
            inside=memory.inside,
        )

    def memory_components(self, session: Session, features: Tensor) -> Tensor:
        """What bi-level memory balances inside a class: here a clustering of the features."""
        return cluster_components(
            features.cpu(),
            session.data.labels,
            self.params.reduction.delta,
            self.params.mixture.components,
            self.generator("clustering", session),
            distance=self.params.reduction.distance,
        )

    def remember(self, session: Session, features: Tensor, chosen: Tensor) -> None:
        """Whatever the method keeps of the exemplars besides their images."""

    # -- inference --------------------------------------------------------------------------

    def class_scores(self, features: Tensor) -> Tensor:
        """Scores [B, n_seen]; the prediction is their arg max."""
        scores: Tensor = self.head(features)
        return scores

    def class_probabilities(self, features: Tensor) -> Tensor:
        """P(y|x) [B, n_seen]: how sure the model is of every class."""
        return self.class_scores(features).float().softmax(1)

    def answer(self, features: Tensor, rows: Tensor | None = None) -> Answer:
        """What the model says of features: class, confidence, and the component inside the class.

        The component is that of the predicted class, or of the classes ``rows``.
        """
        predicted = self.class_scores(features).argmax(1)
        confidence = self.class_probabilities(features).gather(1, predicted.unsqueeze(1))
        component = self.components_of(features, predicted if rows is None else rows)
        return Answer(predicted, confidence.squeeze(1), component)

    def components_of(self, features: Tensor, rows: Tensor) -> Tensor:
        """The nearest component of each feature inside its class (0: a single prototype)."""
        return torch.zeros_like(rows)

    # -- shared tools -----------------------------------------------------------------------

    def place(self) -> None:
        """Put all weights on the device, in the layout that convolutions like best."""
        self.to(self.device)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def generator(self, purpose: str, session: Session | int) -> torch.Generator:
        index = session if isinstance(session, int) else session.index
        return torch_generator(self.params.seed, purpose, index)

    def new_extractor(self, session: int) -> Backbone:
        return build_backbone(
            self.params.model.backbone, self.last_relu, self.generator("extractor", session)
        )

    def super_feature(self, extractors: list[Backbone]) -> SuperFeature:
        return SuperFeature(extractors, bf16=self.params.train.precision == "bf16")

    def new_head(self) -> Head:
        return LinearHead(self.features.dim, 0, self.generator("head", 0))

    def head_from_state(self, state: Mapping[str, Tensor]) -> Head:
        """The head whose ``state_dict()`` this is."""
        return self.head.from_state(state)

    def represent(self, batch: Batch) -> Representation:
        return self.features.represent(batch.images)

    def training_phase(self, session: Session) -> Phase:
        """The main phase, on all of D̃_t with the schedule of ``params.train``."""
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

    def parameter_groups(self) -> list[dict[str, object]]:
        """What the training phase optimises."""
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]

    def remember_features(self, session: Session) -> None:
        """Keep the representation of session t−1 as a teacher."""
        self.old_features = self.once_a_session(session, frozen_copy(self.features))

    def remember_logits(self, session: Session) -> None:
        """Keep the network as it is now, with its head, as a teacher."""
        network = nn.Sequential(self.features, self.head)
        self.old_logits = self.once_a_session(session, frozen_copy(network))

    def once_a_session(
        self, session: Session, module: Callable[[Tensor], Tensor]
    ) -> Callable[[Batch], Tensor]:
        """A frozen ``module`` of a batch, looked up where images are not augmented.

        Without augmentation a sample always gives the same result, so one pass over D̃_t serves
        every epoch.
        """
        if self.augmentation.random:

            def compute(batch: Batch) -> Tensor:
                with torch.no_grad():
                    return module(batch.images)

            return compute
        known = extract(
            session.data.images, len(session.data), module, self.augmentation, self.device
        )
        return lambda batch: known[batch.positions]

    def session_features(self, session: Session) -> Tensor:
        """The features of all of D̃_t in eval mode, [len(D̃_t), dim]."""
        self.eval()
        data = session.data
        return extract(data.images, len(data), self.features, self.augmentation, self.device)


def frozen_copy(module: M) -> M:
    """A teacher: the module as it is now, in eval mode, never trained again."""
    return copy.deepcopy(module).requires_grad_(False).eval()


def read_options(method: type[Method], params: Params) -> Any:
    try:
        return method.Options.model_validate(params.options)
    except ValidationError as error:
        raise UserError(explain(error, f"params.yaml: options of {params.method}")) from None
