"""What the mixture costs beside a ResNet-18: the head with all its losses, and the E-step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from dacr.learning.assignment import assign, possible_logits
from dacr.learning.losses import (
    component_regularisation,
    inter_class_loss,
    intra_class_distillation,
    intra_class_loss,
)
from dacr.learning.prior import empirical_log_prior
from dacr.model.backbones import build_backbone
from dacr.model.heads import MixtureHead

CLASSES, COMPONENTS, INHERITED, BATCH = 100, 36, 6, 128
BACKBONE = "resnet18_32"


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The median time of ``work`` after one round to warm up."""
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return median(times)


def make_head(dim: int, components: int, generator: torch.Generator) -> MixtureHead:
    head = MixtureHead(dim, 16.0, False)
    head.set_components([torch.randn(components, dim, generator=generator) for _ in range(CLASSES)])
    return head


def mixture_costs() -> tuple[float, float, float, float]:
    """Seconds of a training step, of the head with all losses, of inference and of the E-step.

    All for one batch: the E-step of an epoch is a forward pass in eval mode and the assignment.
    """
    generator = torch.Generator().manual_seed(0)
    network = build_backbone(BACKBONE, False, generator).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(BATCH, 3, 32, 32, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (BATCH,), generator=generator)
    old_head = make_head(network.dim, INHERITED, generator).requires_grad_(False)
    head = make_head(network.dim, INHERITED, generator)
    new = [torch.randn(COMPONENTS - INHERITED, network.dim, generator=generator)] * CLASSES
    head.expand(range(CLASSES), new)
    is_memory = torch.arange(BATCH) % 2 == 0
    log_prior = empirical_log_prior(labels, is_memory, head.inherited, head.counts())
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, fused=True)
    features = torch.randn(BATCH, network.dim, generator=generator)
    assigned = assign(head, features, labels)

    def backbone_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        network(images).square().mean().backward()
        optimizer.step()

    def head_step() -> None:
        leaf = features.clone().requires_grad_()
        logits = head(leaf)
        joint = logits + log_prior
        possible = possible_logits(joint, labels, head.same_age(labels, is_memory))
        loss = (
            inter_class_loss(possible.logsumexp(-1), labels)
            + 0.1 * intra_class_loss(joint, labels, assigned)
            + intra_class_distillation(logits, old_head(features))
            + 0.1 * component_regularisation(head.unit_means(), head.counts())
        )
        head.zero_grad(set_to_none=True)
        loss.backward()

    @torch.no_grad()
    def expectation() -> None:
        assign(head, network(images), labels)

    step = seconds(backbone_step, 3)
    mixture = seconds(head_step, 9)
    network.eval()
    with torch.no_grad():
        inference = seconds(lambda: network(images), 3)
    return step, mixture, inference, seconds(expectation, 3)
