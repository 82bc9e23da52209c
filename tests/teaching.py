"""What tests of distillation share: a student that differs from its teacher, slow softmaxes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dacr.learning.session import Session
from dacr.learning.training import Batch
from dacr.methods.parts.method import Method


def whole_batch(session: Session, method: Method) -> Batch:
    """All of D̃_t as one batch."""
    data, positions = session.data, torch.arange(len(session.data))
    images = method.augmentation.test(data.images(positions))
    return Batch(images, data.labels, data.is_memory, positions)


def disturb(method: Method, seed: int) -> None:
    """Change all weights that are not frozen a little, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (own for own in method.parameters() if own.requires_grad):
            parameter.add_(0.07 * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def logits_of(method: Method, batch: Batch) -> Tensor:
    method.eval()
    logits: Tensor = method.head(method.features(batch.images))
    return logits.double()


def values_of(losses: dict[str, Tensor]) -> dict[str, float]:
    return {name: loss.item() for name, loss in losses.items()}


def softmax(values: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in values]
    return [power / sum(powers) for power in powers]


def cross_entropy(target: list[float], values: list[float], temperature: float) -> float:
    """−Σ q log p of softmax(``values``/T)."""
    return -sum(q * math.log(p) for p, q in zip(softmax(values, temperature), target, strict=True))
