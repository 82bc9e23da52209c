"""Domain-aware categorical representations: the paper's Sec. 3, as printed.

Every class is a mixture of von Mises-Fisher components on a host's representation. A session
expands the mixtures of its classes, learns them by EM together with the representation, and merges
what came close. `dacr.methods.parts.departures` says where our settings depart from the print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from dacr.learning.assignment import assign, own_class, possible_logits
from dacr.learning.expansion import carry_over
from dacr.learning.losses import (
    component_regularisation,
    inter_class_loss,
    intra_class_distillation,
    intra_class_loss,
    lambda_at,
)
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.parts.classifier import Classifier
from dacr.methods.parts.reading import Reading
from dacr.methods.parts.representation import NoOptions, Representation
from dacr.methods.parts.scale import Scale
from dacr.methods.parts.setting import Setting, frozen_copy
from dacr.model.heads import MixtureHead
from dacr.model.super_feature import Features
from dacr.runtime.device import send

if TYPE_CHECKING:
    from dacr.learning.reduction import Reduced


class VmfMixture(Classifier):
    """A mixture per class: p(ṽ|y) = Σ_k P(z=k|y) C_d(κ) exp(κ μ̃_{y,k}ᵀ ṽ) (Eq. 2)."""

    Options = NoOptions
    last_relu = False
    needs_old_features = True
    head: MixtureHead
    old_head: MixtureHead

    def __init__(self, setting: Setting, dim: int, reading: Reading | None = None) -> None:
        self.reading = reading or Reading()
        self.mixture, self.loss = setting.params.mixture, setting.params.loss
        super().__init__(setting, dim)

    def new_head(self, dim: int) -> MixtureHead:
        return self.reading.head(dim, self.mixture.kappa, self.mixture.kappa_learnable)

    def view(self, features: Tensor) -> Tensor:
        """A mixture sees the direction of features alone."""
        return self.head.directed(features)

    # -- expansion (Eq. 3) ------------------------------------------------------------------

    def begin(self, session: Session, representation: Representation) -> None:
        """The mixtures of session t−1 become the teacher; those of C_t grow by m components."""
        features = self.view(representation.session_features(session))
        self.old_head = frozen_copy(self.head)
        carry_over(self.head, features, session)
        self.expand(session, features)
        self.log_prior = self.reading.log_prior(session, self.head).to(features.device)

    def expand(self, session: Session, features: Tensor) -> None:
        """Every class of D_t, new or seen, gets m components that start at its new data."""
        unit = F.normalize(features, dim=1)
        labels, is_memory = session.data.labels, session.data.is_memory
        inherited = self.head.components()
        generator = self.setting.generator("expansion", session)
        rows, new_means = session.incoming.tolist(), []
        for row in rows:
            own = unit[send((~is_memory & (labels == row)).nonzero().squeeze(1), unit.device)]
            old = inherited[row] if row < len(inherited) else None
            new_means.append(self.reading.start(own, self.mixture, generator, old))
        self.head.expand(rows, new_means)

    # -- EM learning ------------------------------------------------------------------------

    def start_epoch(self, session: Session, representation: Representation, epoch: int) -> None:
        """λ of this epoch, and the E-step over D̃_t where L_intra needs it."""
        self.lambda_ = lambda_at(epoch, self.loss.lambda_, self.loss.lambda_epochs)
        if self.lambda_ > 0:
            features = self.view(representation.session_features(session))
            self.assigned = self.expectation(session, features)

    def expectation(self, session: Session, features: Tensor) -> Tensor:
        """ẑ = argmax_k μ̃_{y,k}ᵀ ṽ of all of D̃_t (Eq. 6)."""
        rows, is_memory = session.data.labels, session.data.is_memory
        on_device = (send(own, features.device) for own in (rows, is_memory))
        return assign(self.head, features, rows, self.reading.candidates(self.head, *on_device))

    def losses(self, features: Features, batch: Batch) -> Losses:
        """L_overall of the M-step (Eq. 14), term by term; one of weight 0 is not computed."""
        head, loss, rows = self.head, self.loss, batch.labels
        logits = head(features.feature)
        joint = logits + self.log_prior
        candidates = self.reading.candidates(head, rows, batch.is_memory)
        scores = possible_logits(joint, rows, candidates).logsumexp(-1)  # log P(y|x), Eq. 11
        losses = {"inter": inter_class_loss(scores, rows)}
        if self.lambda_:
            intra = intra_class_loss(joint, rows, self.assigned[batch.positions])
            losses["intra"] = self.lambda_ * intra
        if loss.beta and features.old is not None:
            old_logits = self.old_head(features.old)
            kept = intra_class_distillation(logits, old_logits, loss.distillation)
            losses["distillation"] = loss.beta * kept
        if loss.eta:
            tightness = component_regularisation(head.unit_means(), head.counts())
            losses["regularisation"] = loss.eta * tightness
        return losses

    def without_decay(self) -> list[nn.Parameter]:
        """Weight decay would pull a learnable κ towards 0."""
        kappa = self.head.learnable_kappa
        return [] if kappa is None else [kappa]

    # -- reduction (Eq. 4) and memory (Sec. 3.4) --------------------------------------------

    def consolidate(self, session: Session, features: Tensor) -> Reduced | None:
        """Merge components of the incoming classes that are closer than δ."""
        from dacr.learning.reduction import reduce_mixtures

        reduced = reduce_mixtures(
            self.head.components(),
            features,
            session.data.labels.to(features.device),
            self.expectation(session, features),
            self.head.inherited.tolist(),
            session.incoming.tolist(),
            self.setting.params.reduction,
            self.reading.merged_mean,
        )
        self.head.set_components(reduced.means)
        return reduced

    def memory_components(self, session: Session, features: Tensor) -> Tensor:
        """Bi-level memory balances the components of each class."""
        return assign(self.head, features, session.data.labels).cpu()

    # -- inference (Sec. 3.5) ---------------------------------------------------------------

    def scores(self, features: Tensor) -> Tensor:
        return self.reading.scores(self.head, self.head(features))

    def probabilities(self, features: Tensor) -> Tensor:
        """The posterior P(y|x) (Eq. 11), whichever rule chooses the class."""
        return self.head.class_log_posterior(features).exp()

    def components(self, features: Tensor, rows: Tensor) -> Tensor:
        return own_class(self.head(features), rows).argmax(1)

    # -- counting ---------------------------------------------------------------------------

    @classmethod
    def session_views(cls, scale: Scale) -> int:
        """To expand, and for the E-step of each epoch with λ > 0."""
        loss, epochs = scale.params.loss, range(scale.params.train.epochs)
        return 1 + sum(lambda_at(own, loss.lambda_, loss.lambda_epochs) > 0 for own in epochs)
