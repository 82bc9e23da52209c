"""What the mixture costs beside a ResNet-18: the head with all its losses, and the E-step."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from dacr.learning.assignment import assign
from dacr.learning.losses import (
    component_regularisation,
    inter_class_loss,
    intra_class_distillation,
    intra_class_loss,
)
from dacr.model.backbones import build_backbone
from dacr.model.heads import MixtureHead, class_log_scores

CLASSES, COMPONENTS, BATCH = 100, 36, 128
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
    head = make_head(network.dim, COMPONENTS, generator)
    old_head = make_head(network.dim, 6, generator).requires_grad_(False)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, fused=True)
    features = torch.randn(BATCH, network.dim, generator=generator)
    assigned = assign(head, features, labels)

    def backbone_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        network(images).square().mean().backward()
        optimizer.step()

    def head_step() -> None:
        leaf = features.clone().requires_grad_()
        logits, counts = head(leaf), head.counts()
        loss = (
            inter_class_loss(class_log_scores(logits, counts), labels)
            + 0.1 * intra_class_loss(logits, labels, assigned)
            + intra_class_distillation(logits, old_head(features))
            + 0.1 * component_regularisation(head.unit_means(), counts)
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
