"""Classifiers on features: linear, cosine, and the paper's von Mises-Fisher mixtures (Sec. 3.2).

A *row* is a class; rows follow the order of first appearance, so a head only ever grows at its end.
The ``state_dict()`` of a head is enough to ``restore`` it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

KAPPA_RANGE = (1.0, 64.0)


def _uniform(rows: int, dim: int, generator: Generator) -> Tensor:
    """[rows, dim] uniform in ±1/sqrt(dim)."""
    return (2 * torch.rand(rows, dim, generator=generator) - 1) / math.sqrt(dim)


def _append(parameter: Tensor, rows: Tensor) -> nn.Parameter:
    return nn.Parameter(torch.cat([parameter.detach(), rows.to(parameter)]))


def _widened(weight: Tensor, dim: int) -> nn.Parameter:
    return nn.Parameter(F.pad(weight.detach(), (0, dim - weight.shape[1])))


class Head(nn.Module, ABC):
    """What every classifier can do besides scoring features."""

    @abstractmethod
    def grow(self, new_rows: int, generator: Generator) -> None:
        """Append ``new_rows`` randomly initialised classes; the others keep their bits."""

    @abstractmethod
    def widen(self, dim: int) -> None:
        """Take features that have grown to ``dim`` numbers; the new ones have weight 0 at first."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over a ``state_dict()``, whatever its numbers of classes and dimensions."""
        for name in self.state_dict().keys() & state.keys():
            own, empty = getattr(self, name), torch.empty_like(state[name])
            setattr(self, name, nn.Parameter(empty) if isinstance(own, nn.Parameter) else empty)
        self.load_state_dict(state)


class LinearHead(Head):
    """o(x) = W f(x) + b."""

    bias: nn.Parameter | None

    def __init__(self, dim: int, rows: int, generator: Generator, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.bias = nn.Parameter(torch.empty(0)) if bias else None
        self.grow(rows, generator)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)

    def grow(self, new_rows: int, generator: Generator) -> None:
        dim = self.weight.shape[1]
        self.weight = _append(self.weight, _uniform(new_rows, dim, generator))
        if self.bias is not None:
            self.bias = _append(self.bias, _uniform(new_rows, dim, generator)[:, 0])

    def widen(self, dim: int) -> None:
        self.weight = _widened(self.weight, dim)


class CosineHead(Head):
    """o_c(x) = σ · cos(f(x), w_c) with one learnable scale σ for all classes."""

    def __init__(self, dim: int, rows: int, generator: Generator, scale_init: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.scale = nn.Parameter(torch.tensor(float(scale_init)))
        self.grow(rows, generator)

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * self.cosines(features)

    def cosines(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=-1), F.normalize(self.weight, dim=-1))

    def grow(self, new_rows: int, generator: Generator) -> None:
        self.weight = _append(self.weight, _uniform(new_rows, self.weight.shape[1], generator))

    def widen(self, dim: int) -> None:
        self.weight = _widened(self.weight, dim)

    @torch.no_grad()
    def imprint(self, rows: Sequence[int], means: Tensor) -> None:
        """Set ``rows`` to the directions of ``means``, with the mean norm of the other rows.

        ``means`` [R, d] are the classes' averages of normalised features. Where there is no other
        row, the norm is 1.
        """
        imprinted = set(rows)
        others = [row for row in range(len(self.weight)) if row not in imprinted]
        norm = self.weight[others].norm(dim=1).mean() if others else 1.0
        self.weight[list(rows)] = norm * F.normalize(means.to(self.weight), dim=1)


class _Bounded(torch.autograd.Function):
    """Clamp whose gradient vanishes only where a step along it would leave the bounds further.

    The gradient of a plain clamp is zero everywhere outside, so a value that momentum carried over
    a bound would stay there for ever.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(value)
        ctx.bounds = (low, high)
        return value.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        (value,) = ctx.saved_tensors
        low, high = ctx.bounds
        outward = ((value <= low) & (gradient > 0)) | ((value >= high) & (gradient < 0))
        return gradient.masked_fill(outward, 0.0), None, None


def class_log_scores(logits: Tensor, counts: Tensor) -> Tensor:
    """log (1/K_c) Σ_k exp(κ μ_ckᵀ v) [B, C], the log of the numerator of Eq. 11.

    ``logits`` [B, C, K_max] come from a ``MixtureHead``, ``counts`` [C] are its K_c.
    """
    return logits.logsumexp(dim=-1) - counts.to(logits.dtype).log()


class MixtureHead(Head):
    """A von Mises-Fisher mixture for each class (Eq. 2), P(z|y) = 1/K_y, one κ for all components.

    The raw means [C, K_max, d] are padded with zeros; ``mask`` [C, K_max] is true for components.
    The components of a class come first in its row, the oldest first; ``inherited`` [C] of them
    are older than the last expansion. C_d(κ) never appears: with a shared κ it cancels in every
    posterior. A learnable κ stays within ``KAPPA_RANGE``.
    """

    mask: Tensor
    inherited: Tensor
    fixed_kappa: Tensor | None
    learnable_kappa: nn.Parameter | None

    def __init__(self, dim: int, kappa: float, kappa_learnable: bool) -> None:
        super().__init__()
        value = torch.tensor(float(kappa))
        self.raw_means = nn.Parameter(torch.zeros(0, 0, dim))
        self.register_buffer("mask", torch.zeros(0, 0, dtype=torch.bool))
        self.register_buffer("inherited", torch.zeros(0, dtype=torch.long))
        self.register_buffer("fixed_kappa", None if kappa_learnable else value)
        self.learnable_kappa = nn.Parameter(value) if kappa_learnable else None

    @property
    def kappa(self) -> Tensor:
        if self.learnable_kappa is None:
            assert self.fixed_kappa is not None
            return self.fixed_kappa
        bounded: Tensor = _Bounded.apply(self.learnable_kappa, *KAPPA_RANGE)
        return bounded

    def counts(self) -> Tensor:
        """K_c of every class, [C]."""
        return self.mask.sum(dim=1)

    def same_age(self, rows: Tensor, is_memory: Tensor) -> Tensor:
        """Which components of its class are as old as a sample, [B, K_max].

        The inherited ones for an exemplar, the new ones for an incoming sample; where its class
        has none of them, all.
        """
        places = torch.arange(self.mask.shape[1], device=rows.device)
        own = self.mask[rows]
        of_age = own & ((places < self.inherited[rows].unsqueeze(1)) == is_memory.unsqueeze(1))
        return torch.where(of_age.any(dim=1, keepdim=True), of_age, own)

    def unit_means(self) -> Tensor:
        """The means μ̃ [C, K_max, d] on the sphere; zero at the padding.

        The product with the mask also stops the gradient there, which ``normalize`` would divide by
        its epsilon at a zero vector.
        """
        return F.normalize(self.raw_means, dim=-1) * self.mask.unsqueeze(-1)

    def directed(self, features: Tensor) -> Tensor:
        """``features`` [B, d] with the direction that the mixture sees; their length is free."""
        return features

    def cosines(self, features: Tensor) -> Tensor:
        """μ̃ᵀṽ [B, C, K_max]; zero at the padding."""
        flat = F.normalize(self.directed(features), dim=-1) @ self.unit_means().flatten(0, 1).T
        return flat.reshape(len(features), *self.mask.shape)

    def forward(self, features: Tensor) -> Tensor:
        """Component logits κ μ̃ᵀṽ [B, C, K_max]; −inf at the padding.

        κ multiplies before −inf is filled in: the other order gives κ the gradient 0 · −inf.
        """
        return (self.kappa * self.cosines(features)).masked_fill(~self.mask, -torch.inf)

    def class_log_scores(self, features: Tensor) -> Tensor:
        """The log of the numerator of Eq. 11, [B, C]."""
        return class_log_scores(self(features), self.counts())

    def class_log_posterior(self, features: Tensor) -> Tensor:
        """log P(y|x) (Eq. 11), [B, C]."""
        return self.class_log_scores(features).log_softmax(dim=-1)

    def component_log_posterior(self, features: Tensor, rows: Tensor) -> Tensor:
        """log P(z|y=rows, x) (Eq. 10), [B, K_max]; −inf at the padding."""
        logits: Tensor = self(features)
        return logits[torch.arange(len(rows), device=rows.device), rows].log_softmax(dim=-1)

    def nearest(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The class row and component with the closest mean: the inference rule (Eq. 15)."""
        cosines = self.cosines(features).masked_fill(~self.mask, -torch.inf)
        best = cosines.flatten(1).argmax(dim=1)
        k_max = self.mask.shape[1]
        return best // k_max, best % k_max

    def components(self) -> list[Tensor]:
        """The raw means of each class, [K_c, d]."""
        counts = self.counts().tolist()
        return [
            means[:count].clone()
            for means, count in zip(self.raw_means.detach(), counts, strict=True)
        ]

    def set_components(self, components: Sequence[Tensor]) -> None:
        """Inherit exactly these means: one [K_c, d] tensor per class. They may bring another d."""
        counts = [len(means) for means in components]
        if 0 in counts:
            raise ValueError("every class of a mixture needs at least one component")
        dim = components[0].shape[1] if components else self.raw_means.shape[2]
        padded = self.raw_means.new_zeros(len(counts), max(counts, default=0), dim)
        mask = self.mask.new_zeros(padded.shape[:2])
        for row, means in enumerate(components):
            padded[row, : len(means)] = means.to(padded)
            mask[row, : len(means)] = True
        self.raw_means = nn.Parameter(padded)
        self.mask = mask
        self.inherited = self.counts()

    def expand(self, rows: Sequence[int], new_means: Sequence[Tensor]) -> None:
        """Append ``new_means`` ([m, d] per class) to the mixtures of ``rows`` (Eq. 3).

        New classes take the next rows, in order.
        """
        components, inherited = self.components(), self.counts()
        for row, means in zip(rows, new_means, strict=True):
            if row == len(components):
                components.append(means)
            else:
                components[row] = torch.cat([components[row], means.to(components[row])])
        self.set_components(components)
        self.inherited = F.pad(inherited, (0, len(components) - len(inherited)))

    def grow(self, new_rows: int, generator: Generator) -> None:
        """New classes of one random direction each; ``expand`` gives them components from data."""
        known, _, dim = self.raw_means.shape
        directions = F.normalize(torch.randn(new_rows, 1, dim, generator=generator), dim=-1)
        self.expand(range(known, known + new_rows), list(directions))

    def widen(self, dim: int) -> None:
        """Nothing: ``carry_over`` moves means into features that have grown, with their data."""
