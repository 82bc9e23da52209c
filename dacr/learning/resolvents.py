"""The geodesic kernel of GeoDL for a GPU: no decomposition that makes the host wait.

`dacr.learning.geodesic` has G by singular value decompositions, for which the host waits three
times in every step. Here, with orthonormal bases P and Q of the old and the new subspace, C = PᵀQ
(its singular values are the cosines of the principal angles θ) and D = Q − PC,

    G = P E₁ Pᵀ + P E₂ Dᵀ + D E₂ᵀ Pᵀ + D E₃ Dᵀ,
    E₁ = f₁(CCᵀ),  E₂ = C f₂(CᵀC),  E₃ = f₃(CᵀC)   (functions of x = cos² θ, `_functions`).

Functions of matrices are sums of resolvents (CᵀC + s)⁻¹, and all that is factorised is positive
definite: a Cholesky decomposition waits for nothing. Both ways agree to about 10⁻⁸.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

LEFT_OUT = 2
"""A subspace leaves out the weakest directions, as in the reference implementation."""
_JITTER = 1e-13
_POLES = 40
_SQUARINGS = 18


class ResolventKernel(NamedTuple):
    """G of the module's text: P, D [d, n] and E₁, E₂, E₃ [n, n]."""

    p: Tensor
    d: Tensor
    e1: Tensor
    e2: Tensor
    e3: Tensor

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """xᵀGy for each pair of rows of x and y [B, d]."""
        xp, xd, yp, yd = x @ self.p, x @ self.d, y @ self.p, y @ self.d
        with_p, with_d = xp @ self.e1 + xd @ self.e2.T, xp @ self.e2 + xd @ self.e3
        return (with_p * yp + with_d * yd).sum(dim=1)


def subspace(unit: Tensor) -> Tensor:
    """An orthonormal basis [d, min(B, d) − 2] of the strongest directions of features [B, d].

    Each feature is centred over its own entries first, as in the reference implementation.
    """
    centred = (unit - unit.mean(dim=1, keepdim=True)).double()
    gram = _gram(centred)
    weakest = _weakest_directions(gram)
    if len(centred) >= centred.shape[1]:  # then the Gram matrix is that of the d entries
        return _complement(weakest)
    factor = torch.linalg.cholesky_ex(gram).L
    orthonormal = torch.linalg.solve_triangular(factor, centred, upper=False)  # its rows, [B, d]
    basis: Tensor = orthonormal.T @ _complement(F.normalize(factor.T @ weakest, dim=0))
    return basis


def _gram(features: Tensor) -> Tensor:
    """The smaller of XXᵀ and XᵀX; the jitter keeps it positive where samples are equal or dead."""
    few = len(features) < features.shape[1]
    gram = features @ features.T if few else features.T @ features
    return gram + (_JITTER * gram.diagonal().sum() + torch.finfo(gram.dtype).tiny) * _eye(gram)


def _weakest_directions(gram: Tensor) -> Tensor:
    """The two eigenvectors [n, 2] with the smallest eigenvalues of a positive matrix.

    By repeated squaring of its inverse: the power 2¹⁸ is the weakest direction alone, but for
    eigenvalues that agree to four digits, between which the choice does not matter. Then that
    direction is made the strongest of all, and the next one found.
    """
    found: list[Tensor] = []
    for _ in range(LEFT_OUT):
        power = torch.cholesky_inverse(torch.linalg.cholesky_ex(gram).L)
        for _ in range(_SQUARINGS):
            power = power / power.diagonal().sum()
            power = power @ power
        direction = power @ _start(power)
        for other in found:
            direction = direction - other * (other @ direction)
        direction = direction / direction.norm()
        found.append(direction)
        gram = gram + gram.diagonal().sum() * torch.outer(direction, direction)
    return torch.stack(found, dim=1)


def _start(like: Tensor) -> Tensor:
    """A vector that no direction of interest is orthogonal to."""
    return torch.cos(torch.arange(1, len(like) + 1, dtype=like.dtype, device=like.device))


def _complement(directions: Tensor) -> Tensor:
    """An orthonormal basis [n, n − k] of what is orthogonal to k orthonormal ``directions``."""
    basis = _eye(directions)
    for k in range(directions.shape[1]):
        mirrored = basis.T @ directions[:, k]
        mirrored[k] = mirrored[k] + torch.where(mirrored[k] < 0, -1.0, 1.0)
        mirrored[:k] = 0
        mirrored = mirrored / mirrored.norm()
        basis = basis - 2 * torch.outer(basis @ mirrored, mirrored)
    return basis[:, directions.shape[1] :]


def resolvent_kernel(old_basis: Tensor, new_basis: Tensor) -> ResolventKernel:
    """The kernel of the geodesic between two subspaces given by orthonormal bases [d, n]."""
    p, q = old_basis.double(), new_basis.double()
    c = p.T @ q
    d = q - p @ c
    poles, weights = _expansion_on(c.device)
    resolvents = torch.cholesky_inverse(
        torch.linalg.cholesky_ex(c.T @ c + poles[:, None, None] * _eye(c)).L
    )
    h, f2, f3 = torch.einsum("fj,jab->fab", weights, resolvents)
    e1 = (_eye(c) + c @ c.T) / 2 + c @ h @ (_eye(c) - c.T @ c) @ c.T
    kernel = ResolventKernel(p, d, e1, c @ f2, f3)
    return ResolventKernel(*(part.to(old_basis.dtype) for part in kernel))


@cache
def _expansion_on(device: torch.device) -> tuple[Tensor, Tensor]:
    """`_expansion`, once per device."""
    poles, weights = _expansion()
    return torch.from_numpy(poles).to(device), torch.from_numpy(weights).to(device)


def _eye(like: Tensor) -> Tensor:
    return torch.eye(like.shape[0], dtype=like.dtype, device=like.device)


def _functions(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """h, f₂ and f₃ of x = cos² θ, where f₁ = ½ + ½x + x(1 − x)h: exact at θ = 0.

    With Λ₁ = ½(1 + sin 2θ/2θ), Λ₂ = (cos 2θ − 1)/4θ and Λ₃ = ½(1 − sin 2θ/2θ): f₁ = Λ₁,
    f₂ = −Λ₂/(sin θ cos θ), f₃ = Λ₃/sin² θ. Near θ = 0 they are taken from their series.
    """
    theta = np.arccos(np.sqrt(x))
    small, angle = theta < 1e-2, np.maximum(theta, 1e-2)
    sine2, lambda1 = np.sin(angle) ** 2, (1 + np.sinc(2 * angle / math.pi)) / 2
    h = np.where(small, 1 / 6 + 11 * theta**2 / 90, (lambda1 - (1 + x) / 2) / (x * sine2))
    f2 = np.where(small, 0.5 + theta**2 / 6, np.tan(angle) / (2 * angle))
    f3 = np.where(small, 1 / 3 + 2 * theta**2 / 45, (1 - lambda1) / sine2)
    return np.stack([h, f2, f3])


@cache
def _expansion() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Poles s [J] and weights w [3, J]: each of `_functions` is Σ_j w_j / (x + s_j) on (0, 1].

    Fitted by least squares, weighted as the functions enter G. The branch point at x = 0 needs
    poles that crowd there.
    """
    poles = np.geomspace(1e-14, 1e4, _POLES)
    x = np.concatenate([np.geomspace(1e-18, 1, 6000), np.linspace(0.01, 1, 3000)])
    enters = np.stack([x * (1 - x), np.sqrt(x * (1 - x)) * (x > 1e-12), 1 - x])
    weights = []
    for values, weight in zip(_functions(x), enters, strict=True):
        columns = weight[:, None] / (x[:, None] + poles)
        scale = np.linalg.norm(columns, axis=0)
        weights.append(np.linalg.lstsq(columns / scale, weight * values, rcond=1e-15)[0] / scale)
    return poles, np.stack(weights)
