"""The functions of the core on a GPU that is not there: no mixed devices, the values of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dacr.config import Memory, Mixture, Reduction
from dacr.data.augmentation import AUGMENTATIONS
from dacr.learning.assignment import assign, own_class, possible_logits
from dacr.learning.expansion import carry_over, k_means_seeds, mean_perturbed, random_sample
from dacr.learning.expansion import random_vector as random_vectors
from dacr.learning.geodesic import GeodesicKernel, geodesic_distillation, kernel_between
from dacr.learning.losses import intra_class_distillation, margin_ranking
from dacr.learning.memory import herding, select_memory
from dacr.learning.reduction import group_means, reduce_mixtures
from dacr.learning.resolvents import ResolventKernel
from dacr.methods.parts.reading import mean_of_features
from dacr.model.heads import CosineHead, MixtureHead
from dacr.runtime.pretend import PretendGpu, counting_waits, pretend_device
from tests.learning import CPU, small_params, small_session

DIM, N, CLASSES = 5, 18, 3
ROWS = torch.arange(N) % CLASSES
IS_MEMORY = torch.arange(N) % 2 == 0

Values = tuple[Tensor, ...]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(device: torch.device, dim: int = DIM) -> Tensor:
    return torch.randn(N, dim, generator=generator(1)).to(device)


def head_on(device: torch.device) -> MixtureHead:
    """Three classes of two, three and one inherited components; the first two have new ones."""
    means = [torch.randn(k, DIM, generator=generator(k)) for k in (2, 3, 1)]
    head = MixtureHead(DIM, 5.0, kappa_learnable=True)
    head.set_components(means)
    head = head.to(device)
    head.expand([0, 1], [torch.randn(2, DIM, generator=generator(9)).to(device)] * 2)
    return head


def sections() -> tuple[Mixture, Memory, Reduction]:
    params = small_params("method=ucir_dacr", "mixture.components=4")
    return params.mixture, params.memory, params.reduction


def e_step(device: torch.device) -> Values:
    head, rows = head_on(device), ROWS.to(device)
    candidates = head.same_age(rows, IS_MEMORY.to(device))
    return (
        assign(head, features(device), ROWS),
        assign(head, features(device), ROWS, candidates),
        own_class(head(features(device)), rows),
        possible_logits(head(features(device)), rows, candidates).exp(),
    )


def heads(device: torch.device) -> Values:
    head, own = head_on(device), features(device)
    cosine = CosineHead(DIM, 2, generator()).to(device)
    cosine.grow(1, generator(2))
    cosine.imprint([1], own[:1].double())
    return (
        head.component_log_posterior(own, ROWS.to(device)).exp(),
        head.class_log_posterior(own),
        *head.nearest(own),
        cosine(own),
    )


def losses(device: torch.device) -> Values:
    head, own = head_on(device), features(device)
    old = head(own + 1)[:, :2, :3]
    cosines = CosineHead(DIM, CLASSES, generator()).to(device).cosines(own)
    return intra_class_distillation(head(own), old), margin_ranking(cosines, ROWS.to(device), 2)


def expansion(device: torch.device) -> Values:
    mixture, _, _ = sections()
    own = torch.nn.functional.normalize(features(device), dim=1)
    starts = (random_vectors, random_sample, mean_perturbed)
    return (
        *(start(own, mixture, generator(3), None) for start in starts),
        k_means_seeds(own, 4, generator(4)),
    )


def growth(device: torch.device) -> Values:
    """A representation that grew by a block of two entries."""
    head = head_on(device)
    session = small_session(2, [0, 1, 2], [1], [0, 1, 2], each=12)
    carry_over(head, features(device, DIM + 2), session)
    return tuple(head.components())


def reduction(device: torch.device) -> Values:
    head, own, rows = head_on(device), features(device), ROWS.to(device)
    _, _, section = sections()
    section = section.model_copy(update={"delta": 0.9})
    assigned = assign(head, own, ROWS)
    reduced = reduce_mixtures(
        head.components(), own, rows, assigned, [2, 3, 1], [0, 1], section, mean_of_features
    )
    assert reduced.merges
    return (
        *reduced.means,
        reduced.assigned,
        *group_means(reduced.means, own, rows, reduced.assigned),
    )


def memory(device: torch.device) -> Values:
    own = features(device)
    components = (torch.arange(N) // CLASSES % 2).to(device)
    chosen = [herding(own, 4)]
    for strategy, inside in (("random", "random"), ("herding", "random"), ("bilevel", "herding")):
        section = sections()[1].model_copy(update={"strategy": strategy, "inside": inside})
        chosen.append(
            select_memory(
                section,
                ROWS.to(device),
                IS_MEMORY,
                CLASSES,
                features=own,
                components=components,
                generator=generator(5),
            )
        )
    return tuple(chosen)


def geodesic(device: torch.device) -> Values:
    old = features(device, 40)
    return (geodesic_distillation(old + 0.3 * old.flip(0), old),)


def augmentation(device: torch.device) -> Values:
    images = torch.randint(0, 256, (4, 9, 8, 3), generator=generator(6)).to(torch.uint8).to(device)
    made = [kind(8, [0.5] * 3, [0.2, 0.3, 0.4]) for kind in AUGMENTATIONS.values()]
    return (
        *(own.train(images, generator(7)) for own in made),
        *(own.test(images) for own in made),
    )


PARTS: list[Callable[[torch.device], Values]] = [
    e_step,
    heads,
    losses,
    expansion,
    growth,
    reduction,
    memory,
    geodesic,
    augmentation,
]


@pytest.mark.parametrize("part", PARTS)
def test_values_on_a_gpu_are_those_of_the_cpu(part: Callable[[torch.device], Values]) -> None:
    expected = part(CPU)
    with PretendGpu():
        found = part(pretend_device())
        devices = [own.device for own in found]
        found = tuple(own.detach().cpu() for own in found)
    assert part is memory or set(devices) == {pretend_device()}  # a memory is a list of files
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-6, atol=1e-6)


def test_singular_values_are_for_the_cpu_alone() -> None:
    """A GPU would make the host wait for them in every step."""
    assert isinstance(kernel_between(features(CPU), features(CPU).flip(0)), GeodesicKernel)
    with PretendGpu():
        own = features(pretend_device())
        assert isinstance(kernel_between(own, own.flip(0)), ResolventKernel)


def test_a_step_of_the_mixture_makes_nobody_wait() -> None:
    """An index on the CPU gives the same values; a GPU has to wait for it."""
    with PretendGpu():
        device = pretend_device()
        head, own = head_on(device), features(device)
        rows, is_memory = ROWS.to(device), IS_MEMORY.to(device)
        with counting_waits() as waits:
            logits = head(own)
            own_class(logits, rows)
            possible_logits(logits, rows, head.same_age(rows, is_memory))
            head.component_log_posterior(own, rows)
    assert not waits
