"""GeoDL's distillation: old and new features compared along the geodesic between their subspaces.

The geodesic Φ(t) on the Grassmannian leads from the subspace of a batch's old features to that of
its new ones. G = ∫₀¹ Φ(t)Φ(t)ᵀ dt weighs every subspace on the way. With principal angles θ, the
principal vectors A of the old subspace and the directions B in which they turn,

    G = A Λ₁ Aᵀ + A Λ₂ Bᵀ + B Λ₂ Aᵀ + B Λ₃ Bᵀ,

so products with G need neither the d × d matrix nor the null space of the old subspace. On a GPU
`dacr.learning.resolvents` has the same G without singular value decompositions.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.learning import resolvents
from dacr.learning.resolvents import LEFT_OUT, ResolventKernel, resolvent_kernel

Variant = Literal["cosine", "distance"]

MIN_BATCH = 16
_MIN_ANGLE = 1e-4
_MIN_SQUARE = 1e-8


class GeodesicKernel(NamedTuple):
    """G of the module's text: A, B [d, n] and the diagonals Λ₁, Λ₂, Λ₃ [n]."""

    a: Tensor
    b: Tensor
    lambda1: Tensor
    lambda2: Tensor
    lambda3: Tensor

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """xᵀGy for each pair of rows of x and y [B, d]."""
        xa, xb, ya, yb = x @ self.a, x @ self.b, y @ self.a, y @ self.b
        return (
            self.lambda1 * xa * ya + self.lambda2 * (xa * yb + xb * ya) + self.lambda3 * xb * yb
        ).sum(dim=1)


def subspace(unit: Tensor, n: int) -> Tensor:
    """An orthonormal basis [d, n] of the n strongest directions of features [B, d].

    Each feature is centred over its own entries first, as in the reference implementation.
    """
    centred = unit - unit.mean(dim=1, keepdim=True)
    directions: Tensor = torch.linalg.svd(centred.T, full_matrices=False).U
    return directions[:, :n]


def geodesic_kernel(old_basis: Tensor, new_basis: Tensor) -> GeodesicKernel:
    """The kernel of the geodesic between two subspaces given by orthonormal bases [d, n]."""
    u, cosines, vh = torch.linalg.svd(old_basis.T @ new_basis)
    a = old_basis @ u
    turn = a * cosines - new_basis @ vh.T
    # ‖turn‖ = sin θ. atan2 keeps small angles that arccos of a cosine near 1 would lose.
    sines = turn.norm(dim=0)
    theta = torch.atan2(sines, cosines)
    moves = theta > _MIN_ANGLE
    b = turn * moves / sines.clamp(min=_MIN_ANGLE / 2)
    half_wave = torch.sinc(2 * theta / math.pi)  # sin 2θ / 2θ, 1 at 0
    return GeodesicKernel(
        a=a,
        b=b,
        lambda1=(1 + half_wave) / 2,
        lambda2=-theta.sin() * torch.sinc(theta / math.pi) / 2,  # (cos 2θ − 1) / 4θ, 0 at 0
        lambda3=(1 - half_wave) / 2,
    )


def kernel_between(old: Tensor, new: Tensor) -> GeodesicKernel | ResolventKernel:
    """G of normalised features [B, d], by what suits the device."""
    if old.device.type == "cpu":
        n = min(new.shape) - LEFT_OUT
        return geodesic_kernel(subspace(old, n), subspace(new, n))
    kernel = resolvent_kernel(resolvents.subspace(old), resolvents.subspace(new))
    return ResolventKernel(*(part.to(new.dtype) for part in kernel))


def geodesic_distillation(
    features: Tensor, old_features: Tensor, variant: Variant = "cosine"
) -> Tensor:
    """1 − the cosine of old and new features under G, or their squared distance under G.

    Only ``features`` [B, d] receive a gradient; G is a constant of the batch. Batches smaller than
    ``MIN_BATCH`` span too small a subspace and give 0.
    """
    if len(features) < MIN_BATCH:
        return features.new_zeros(())
    new, old = F.normalize(features, dim=1), F.normalize(old_features.detach(), dim=1)
    with torch.no_grad():
        kernel = kernel_between(old, new)
    if variant == "distance":
        return kernel.product(new - old, new - old).mean()
    old_norm, new_norm = (kernel.product(z, z).clamp(min=_MIN_SQUARE).sqrt() for z in (old, new))
    return (1 - kernel.product(new, old) / (old_norm * new_norm)).mean()
