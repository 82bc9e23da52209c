"""Domain-aware categorical representations (the paper's Sec. 3), as what a host method takes.

'w/ ours' replaces the host's classifier and its loss by a vMF mixture a class, learned by EM with
expansion and reduction. The host keeps its representation and the loss that protects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.learning.assignment import assign
from dacr.learning.expansion import initial_means
from dacr.learning.losses import (
    component_regularisation,
    inter_class_loss,
    intra_class_distillation,
    intra_class_loss,
    lambda_at,
)
from dacr.learning.prior import empirical_log_prior, uniform_log_prior
from dacr.learning.reduction import reduce_mixtures
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses, Phase
from dacr.methods.base import Method, frozen_copy
from dacr.model.heads import MixtureHead, class_log_scores
from dacr.model.super_feature import Representation


class Ours(Method):
    """Put before a host in the order of bases: ``class DerWithOurs(Ours, Der)``."""

    last_relu = False
    head: MixtureHead

    def new_head(self) -> MixtureHead:
        mixture = self.params.mixture
        return MixtureHead(self.features.dim, mixture.kappa, mixture.kappa_learnable, self.block)

    def head_from_state(self, state: Mapping[str, Tensor]) -> MixtureHead:
        return MixtureHead.from_state(state, self.block)

    @property
    def block(self) -> int | None:
        blocks = self.params.mixture.normalisation == "blocks"
        return self.features.newest.dim if blocks else None

    def session_features(self, session: Session) -> Tensor:
        return self.head.directed(super().session_features(session))

    # -- expansion (Eq. 3) ------------------------------------------------------------------

    def begin_representation(self, session: Session) -> None:
        super().begin_representation(session)
        if session.n_old and self.old_features is None:
            self.remember_features(session)

    def begin_classifier(self, session: Session) -> None:
        self.place()
        features = self.session_features(session)
        if session.n_old:
            # A list hides the teacher from the module's own parameters and state.
            self._teacher = [frozen_copy(self.head)]
            self.follow_growth(session, features)
        self.expand(session, features)
        self.log_prior = self.log_prior_of(session).to(self.device)

    def expand(self, session: Session, features: Tensor) -> None:
        """Give every incoming class, new or seen, m components that start at its new data."""
        mixture = self.params.mixture
        rows = (session.incoming if mixture.enabled else session.new).tolist()
        incoming = (~session.data.is_memory).to(features.device)
        means = initial_means(
            mixture.initialisation,
            features[incoming],
            session.data.labels.to(features.device)[incoming],
            rows,
            mixture.components if mixture.enabled else 1,
            generator=self.generator("expansion", session),
            perturbation=mixture.perturbation,
            inherited=self.head.components(),
        )
        self.head.expand(rows, means)

    def log_prior_of(self, session: Session) -> Tensor:
        """log P(y, z) up to a constant, [C, K_max], as training takes it."""
        counts = self.head.counts().cpu()
        if self.params.mixture.prior == "uniform":
            return uniform_log_prior(counts)
        return empirical_log_prior(
            session.data.labels, session.data.is_memory, self.head.inherited.cpu(), counts
        )

    def follow_growth(self, session: Session, features: Tensor) -> None:
        """Carry inherited means into a representation that has grown by a block (DER).

        A mean becomes that of its exemplars' features in the new representation. The extractor of
        the new block starts as a copy of the last, so a mean without exemplars repeats its last
        block.
        """
        old_dim = self.head.raw_means.shape[2]
        block = features.shape[1] - old_dim
        if not block:
            return
        memory = session.data.is_memory.to(features.device)
        exemplars, rows = features[memory], session.data.labels.to(features.device)[memory]
        assigned = assign(self.head, exemplars[:, :old_dim], rows)
        unit = F.normalize(exemplars, dim=1)
        grown = []
        for row, means in enumerate(self.head.components()):
            repeated = F.normalize(torch.cat([means, means[:, -block:]], 1), dim=1)
            for k in range(len(means)):
                own = unit[(rows == row) & (assigned == k)]
                if len(own):
                    repeated[k] = F.normalize(own.mean(0), dim=0)
            grown.append(repeated)
        self.head.set_components(grown)

    # -- EM learning ------------------------------------------------------------------------

    def start_epoch(self, session: Session, epoch: int) -> None:
        """λ of this epoch, and the E-step (Eq. 6) over D̃_t in eval mode without augmentation."""
        super().start_epoch(session, epoch)
        loss = self.params.loss
        self.lambda_ = lambda_at(epoch, loss.lambda_, loss.lambda_epochs)
        if self.params.mixture.expectation == "epoch" and self.lambda_ > 0:
            self.assigned = self.assign(session, self.session_features(session))

    def assign(self, session: Session, features: Tensor) -> Tensor:
        """ẑ of D̃_t (Eq. 6)."""
        rows = session.data.labels.to(features.device)
        is_memory = session.data.is_memory.to(features.device)
        return assign(self.head, features, rows, self.candidates(rows, is_memory))

    def candidates(self, rows: Tensor, is_memory: Tensor) -> Tensor | None:
        """The components that a sample of D̃_t may come from, [B, K_max]; None: all of its class.

        Left to themselves, incoming samples join an inherited component that happens to lie
        close, and exemplars a new one, whose samples are many: domains run together.
        """
        if self.params.mixture.candidates == "all":
            return None
        return self.head.same_age(rows, is_memory)

    def classification_losses(self, representation: Representation, batch: Batch) -> Losses:
        """L_overall (Eq. 14) of the M-step, term by term."""
        loss, head = self.params.loss, self.head
        logits = head(representation.feature)
        joint = logits + self.log_prior
        candidates = self.candidates(batch.labels, batch.is_memory)
        class_scores = only(candidates, joint, batch.labels).logsumexp(-1)
        losses = {"inter": inter_class_loss(class_scores, batch.labels)}
        if self.lambda_ > 0:
            if self.params.mixture.expectation == "epoch":
                assigned = self.assigned[batch.positions]
            else:
                possible = only(candidates, logits.detach(), batch.labels)
                assigned = own_logits(possible, batch.labels).argmax(1)
            losses["intra"] = self.lambda_ * intra_class_loss(joint, batch.labels, assigned)
        if loss.beta > 0 and self.old_features is not None:
            (old_head,) = self._teacher
            old_logits = old_head(self.old_features(batch))
            losses["distillation"] = loss.beta * intra_class_distillation(
                logits, old_logits, loss.distillation
            )
        if loss.eta > 0:
            losses["regularisation"] = loss.eta * component_regularisation(
                head.unit_means(), head.counts()
            )
        return losses

    def classifier_phases(self, session: Session) -> Iterator[Phase]:
        """The mixture is trained with the representation; the host's second stage is left out."""
        yield from ()

    def parameter_groups(self) -> list[dict[str, object]]:
        """Weight decay would pull a learnable κ towards 0."""
        kappa = self.head.learnable_kappa
        groups = super().parameter_groups()
        if kappa is None:
            return groups
        parameters = [p for group in groups for p in group["params"]]  # type: ignore[attr-defined]
        others = [p for p in parameters if p is not kappa]
        return [{"params": others}, {"params": [kappa], "weight_decay": 0.0}]

    # -- reduction and memory ---------------------------------------------------------------

    def consolidate(self, session: Session, features: Tensor) -> None:
        """Merge components of the incoming classes that came closer than δ (Eq. 4)."""
        super().consolidate(session, features)
        before = self.head.counts().tolist()
        merges = []
        reduction = self.params.reduction
        dropped = [0] * len(before)
        if reduction.enabled:
            rows = session.data.labels.to(features.device)
            reduced = reduce_mixtures(
                self.head.components(),
                features,
                rows,
                self.assign(session, features),
                session.incoming.tolist(),
                delta=reduction.delta,
                distance=reduction.distance,
                linkage=reduction.linkage,
                min_support=reduction.min_support,
                merged_mean=reduction.merged_mean,
            )
            self.head.set_components(reduced.means)
            self.head.to(self.device)
            merges = reduced.merges
            dropped = [int((new < 0).sum()) for new in reduced.relabelling]
        after = self.head.counts().tolist()
        self.history["components"] = [
            {
                "session": session.index,
                "row": row,
                "before": before[row],
                "dropped": dropped[row],
                "merged": before[row] - dropped[row] - after[row],
                "after": after[row],
            }
            for row in range(len(after))
        ]
        self.history["merges"] = [
            {
                "session": session.index,
                "row": merge.row,
                "left": list(merge.left),
                "right": list(merge.right),
                "distance": round(merge.distance, 6),
                "left_support": merge.left_support,
                "right_support": merge.right_support,
            }
            for merge in merges
        ]
        kappa = round(float(self.head.kappa), 6)
        self.history["kappa"] = [{"session": session.index, "kappa": kappa}]

    def memory_components(self, session: Session, features: Tensor) -> Tensor:
        """Bi-level memory balances the components of the mixture (Sec. 3.4)."""
        return assign(self.head, features, session.data.labels.to(features.device)).cpu()

    # -- inference (Sec. 3.5) ---------------------------------------------------------------

    def class_scores(self, features: Tensor) -> Tensor:
        """κ times the cosine of the closest component of each class (Eq. 15), or log P(y|x)."""
        logits: Tensor = self.head(features)
        if self.params.mixture.inference == "nearest_component":
            return logits.amax(-1)
        return class_log_scores(logits, self.head.counts())

    def class_probabilities(self, features: Tensor) -> Tensor:
        """The posterior P(y|x) (Eq. 11), whichever rule chooses the class."""
        return self.head.class_log_posterior(features).exp()

    def components_of(self, features: Tensor, rows: Tensor) -> Tensor:
        return own_logits(self.head(features), rows).argmax(1)


def only(candidates: Tensor | None, logits: Tensor, rows: Tensor) -> Tensor:
    """``logits`` [B, C, K_max], in a sample's own class of its ``candidates`` [B, K_max] alone."""
    if candidates is None:
        return logits
    possible = torch.ones_like(logits, dtype=torch.bool)
    possible[torch.arange(len(rows), device=rows.device), rows] = candidates
    return logits.masked_fill(~possible, -torch.inf)


def own_logits(logits: Tensor, rows: Tensor) -> Tensor:
    """The component logits [B, K_max] of each sample's own class."""
    return logits[torch.arange(len(rows), device=rows.device), rows]


def with_ours(host: type[Method]) -> type[Method]:
    """The host method w/ ours."""
    return type(f"{host.__name__}WithOurs", (Ours, host), {})
