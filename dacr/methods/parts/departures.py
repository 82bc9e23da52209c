"""Where our settings depart from the print, or read it otherwise: one function each.

``params.mixture`` and ``params.reduction`` choose them one by one. docs/fidelity.md has the
measurements behind each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Generator, Tensor

from dacr.config import Mixture, Params
from dacr.learning.assignment import all_components
from dacr.learning.expansion import InitialMeans, mean_perturbed, random_sample, random_vector
from dacr.learning.prior import empirical_log_prior, uniform_log_prior
from dacr.learning.session import Session
from dacr.methods.parts.mixture import VmfMixture
from dacr.methods.parts.reading import Reading, closest_component, mean_of_features
from dacr.methods.parts.setting import Setting
from dacr.model.heads import MixtureHead, class_log_scores

if TYPE_CHECKING:
    from dacr.learning.reduction import Reduced


class BlockMixtureHead(MixtureHead):
    """Every extractor's block of DER's super-feature is normalised before the whole.

    Reason: all extractors then have equal weight for every image. As a whole, an extractor that
    never saw the domain of an image and answers with long features outweighs those that know it.
    """

    def __init__(self, dim: int, kappa: float, kappa_learnable: bool) -> None:
        super().__init__(dim, kappa, kappa_learnable)
        self.block = dim  # a method starts with one extractor

    def directed(self, features: Tensor) -> Tensor:
        return F.normalize(features.unflatten(1, (-1, self.block)), dim=2).flatten(1)


def anchored(
    unit: Tensor, mixture: Mixture, generator: Generator, inherited: Tensor | None
) -> Tensor:
    """New means of a seen class start half-way to the direction of its inherited ones.

    Reason: a representation that does not know a new domain puts all classes of it in one place.
    New components that start there are the same for every class, and L_inter between them has
    almost no gradient: they win the new samples and learn nothing. Half-way they are where the
    domain is and still tell classes apart.
    """
    new_means = mean_perturbed(unit, mixture, generator, inherited)
    if inherited is None:
        return new_means
    centre = F.normalize(F.normalize(inherited.to(new_means), dim=1).mean(0, keepdim=True), dim=1)
    return F.normalize(new_means + centre, dim=1)


def same_age(head: MixtureHead, rows: Tensor, is_memory: Tensor) -> Tensor:
    """Exemplars belong to inherited components, incoming samples to new ones.

    Reason: otherwise incoming samples join an inherited component that happens to lie close, and
    exemplars a new one, whose samples are many: domains run together.
    """
    return head.same_age(rows, is_memory)


def empirical(session: Session, head: MixtureHead) -> Tensor:
    """The class and component frequencies of D̃_t as prior in training (logit adjustment).

    Reason: D̃_t is not uniform: an old class, or an old domain of a class, is there with a few
    exemplars. A classifier that is trained as if it were uniform learns the imbalance as part of
    its means. Trained with the priors that D̃_t has, and asked with uniform ones, it does not.
    """
    return empirical_log_prior(
        session.data.labels, session.data.is_memory, head.inherited.cpu(), head.counts().cpu()
    )


def learned_mean(total: Tensor, unit_means: Tensor, weights: Tensor) -> Tensor:
    """A merged mean is that of the learned means, weighted by their samples.

    Reason: SGD moves means off the centre of their samples, away from other classes. A merged mean
    that returns to the centre (Eq. 4) meets unmerged ones that did not.
    """
    return F.normalize(weights @ unit_means, dim=0)


def mixture_posterior(head: MixtureHead, logits: Tensor) -> Tensor:
    """log P(y|x) up to a constant (Eq. 11), in place of the closest component."""
    return class_log_scores(logits, head.counts())


HEADS: dict[str, type[MixtureHead]] = {"whole": MixtureHead, "blocks": BlockMixtureHead}
STARTS: dict[str, InitialMeans] = {
    "random_vector": random_vector,
    "random_sample": random_sample,
    "mean_perturbed": mean_perturbed,
    "anchored": anchored,
}
PRIORS: dict[str, Callable[[Session, MixtureHead], Tensor]] = {
    "uniform": uniform_log_prior,
    "empirical": empirical,
}
CANDIDATES = {"all": all_components, "same_age": same_age}
MERGED_MEANS = {"features": mean_of_features, "learned": learned_mean}
SCORES = {"nearest_component": closest_component, "posterior": mixture_posterior}


def reading_of(params: Params) -> Reading:
    """The functions that the parameters choose."""
    mixture = params.mixture
    return Reading(
        head=HEADS[mixture.normalisation],
        start=STARTS[mixture.initialisation],
        log_prior=PRIORS[mixture.prior],
        candidates=CANDIDATES[mixture.candidates],
        merged_mean=MERGED_MEANS[params.reduction.merged_mean],
        scores=SCORES[mixture.inference],
    )


class Ours(VmfMixture):
    """The mixture classifier as the parameters read the paper."""

    def __init__(self, setting: Setting, dim: int) -> None:
        super().__init__(setting, dim, reading_of(setting.params))

    def consolidate(self, session: Session, features: Tensor) -> Reduced | None:
        """The ablation's rows without reduction keep every component; see ``group_means``."""
        from dacr.learning.reduction import group_means

        reduction = self.setting.params.reduction
        if not reduction.enabled:
            return None
        reduced = super().consolidate(session, features)
        if reduction.every_group and reduced:
            rows = session.data.labels.to(features.device)
            self.head.set_components(group_means(reduced.means, features, rows, reduced.assigned))
        return reduced
