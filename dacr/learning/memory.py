"""Memory selection (Sec. 3.4): which samples of D_t ∪ M_t are kept as exemplars.

Every strategy gives each seen class ⌊B/|C̃|⌋ places, so the memory never exceeds its budget B. They
differ in which samples of a class take the places.
"""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from dacr.config import Memory, Reduction
from dacr.learning.assignment import assign_to
from dacr.learning.expansion import k_means_seeds
from dacr.learning.reduction import component_sums, reduce_mixtures


def class_quota(budget: int, n_classes: int) -> int:
    """Places of each class: ⌊B/|C̃|⌋."""
    return budget // n_classes


def component_quotas(support: list[int], quota: int, generator: Generator) -> list[int]:
    """Share a class's ``quota`` equally among its components with ``support`` samples each.

    A component with less than its share gives all it has, and the others share the rest again.
    Places that cannot be shared equally go to components in random order.
    """
    quotas = [0] * len(support)
    unfilled = [k for k, available in enumerate(support) if available > 0]
    places = quota
    while unfilled:
        share = places // len(unfilled)
        filled = [k for k in unfilled if support[k] <= share]
        if not filled:
            lucky = torch.randperm(len(unfilled), generator=generator)[: places % len(unfilled)]
            for k in unfilled:
                quotas[k] = share
            for position in lucky.tolist():
                quotas[unfilled[position]] += 1
            break
        for k in filled:
            quotas[k] = support[k]
            places -= support[k]
        unfilled = [k for k in unfilled if support[k] > share]
    return quotas


def random_choice(n: int, k: int, generator: Generator) -> Tensor:
    """k of n positions, uniformly without replacement; all where k > n."""
    return torch.randperm(n, generator=generator)[:k]


def herding(features: Tensor, k: int) -> Tensor:
    """k positions, each bringing the mean of the chosen closest to the mean of all (iCaRL).

    Features are normalised, so ‖(i+1)μ − Σ chosen − f‖² is smallest where fᵀ((i+1)μ − Σ chosen) is
    largest. The order is kept: a prefix is the herding of a smaller k.
    """
    unit = F.normalize(features.double(), dim=1)
    mean = unit.mean(dim=0)
    taken = torch.zeros(len(unit), dtype=torch.bool, device=unit.device)
    chosen: list[int] = []
    wanted = mean.clone()
    for _ in range(min(k, len(unit))):
        pick = int((unit @ wanted).masked_fill(taken, -torch.inf).argmax())
        chosen.append(pick)
        taken[pick] = True
        wanted += mean - unit[pick]
    return torch.tensor(chosen, dtype=torch.long)


def bilevel(
    components: Tensor, quota: int, generator: Generator, features: Tensor | None = None
) -> Tensor:
    """Positions balanced over the components of one class.

    Inside a component they are random, as in the paper, or where ``features`` are given, herded.
    """
    support = components.bincount().tolist()
    picks = []
    for k, share in enumerate(component_quotas(support, quota, generator)):
        own = (components == k).nonzero().squeeze(1)
        if features is None:
            inside = random_choice(len(own), share, generator)
        else:
            inside = herding(features[own.to(features.device)], share)
        picks.append(own[inside])
    return torch.cat(picks) if picks else torch.empty(0, dtype=torch.long)


@torch.no_grad()
def select_memory(
    memory: Memory,
    rows: Tensor,
    is_memory: Tensor,
    n_classes: int,
    *,
    features: Tensor,
    components: Tensor | None,
    generator: Generator,
) -> Tensor:
    """Positions of the exemplars among the samples with ``rows`` [N], class by class.

    ``features`` [N, d] are what herding looks at; ``bilevel`` needs the ``components`` [N]. A class
    without new data has its exemplars in the order in which they were herded, and keeps the first
    of them, as in iCaRL. (Components are found anew in every session and have no such order.)
    """
    rows = rows.cpu()
    quota = class_quota(memory.size, n_classes)
    selected = []
    for row in range(n_classes):
        own = (rows == row).nonzero().squeeze(1)
        herded = features[own.to(features.device)]
        if memory.strategy == "random":
            picks = random_choice(len(own), quota, generator)
        elif memory.strategy == "herding":
            herded_before = bool(is_memory[own].all())
            picks = torch.arange(len(own))[:quota] if herded_before else herding(herded, quota)
        else:
            assert components is not None, "bilevel needs components"
            inside = herded if memory.inside == "herding" else None
            picks = bilevel(components.cpu()[own], quota, generator, inside)
        selected.append(own[picks])
    return torch.cat(selected)


@torch.no_grad()
def cluster_components(
    features: Tensor,
    rows: Tensor,
    m: int,
    reduction: Reduction,
    generator: Generator,
    iterations: int = 10,
) -> Tensor:
    """Components [N] for a model that has none: what a mixture fitted to fixed features would give.

    In each class: m k-means++ seeds, spherical k-means, then the reduction at δ.
    """
    unit = F.normalize(features, dim=1)
    present, rows = rows.unique(return_inverse=True)
    classes = range(len(present))
    means = [k_means_seeds(unit[rows == row], m, generator) for row in classes]
    for _ in range(iterations):
        assigned = assign_to(means, unit, rows)
        for row in classes:
            own = rows == row
            totals, support = component_sums(unit[own], assigned[own], len(means[row]))
            means[row] = torch.where(
                support.unsqueeze(1) > 0, F.normalize(totals, dim=1), means[row]
            )
    assigned = assign_to(means, unit, rows)

    def unused(total: Tensor, unit_means: Tensor, weights: Tensor) -> Tensor:
        return unit_means[0]  # only the assignments are asked for

    none_inherited = [0] * len(means)
    return reduce_mixtures(
        means, unit, rows, assigned, none_inherited, classes, reduction, unused
    ).assigned
