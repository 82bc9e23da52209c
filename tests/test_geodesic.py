"""The geodesic kernel against numerical integration of the geodesic itself."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.linalg import expm, logm
from torch import Tensor

from dacr.learning.geodesic import (
    GeodesicKernel,
    Variant,
    geodesic_distillation,
    geodesic_kernel,
    subspace,
)


def randn(*shape: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def basis(d: int, n: int, seed: int) -> Tensor:
    orthonormal: Tensor = torch.linalg.qr(randn(d, n, seed=seed)).Q
    return orthonormal


def matrix(kernel: GeodesicKernel) -> Tensor:
    """G itself, from its products with unit vectors."""
    d = len(kernel.a)
    eye = torch.eye(d, dtype=kernel.a.dtype)
    rows = [kernel.product(eye[i].expand(d, d), eye) for i in range(d)]
    return torch.stack(rows)


def integrated(old: Tensor, new: Tensor, points: int = 24) -> Tensor:
    """∫₀¹ Φ(t)Φ(t)ᵀ dt by Gauss-Legendre quadrature along the geodesic of the Grassmannian.

    With the projections P and Q on both subspaces, the product of the reflections 2Q − I and 2P − I
    turns by twice the principal angles. Half its logarithm is the velocity X, and the projection on
    the subspace at t is exp(tX) P exp(−tX): no principal vectors, no closed form in θ.
    """
    p, q = (old @ old.T).numpy(), (new @ new.T).numpy()
    eye = np.eye(len(p))
    velocity = np.real(logm((2 * q - eye) @ (2 * p - eye))) / 2
    assert np.allclose(expm(velocity) @ p @ expm(-velocity), q)  # it does arrive
    nodes, weights = np.polynomial.legendre.leggauss(points)
    total = sum(
        weight * expm(node * velocity) @ p @ expm(-node * velocity)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True)
    )
    return torch.from_numpy(total)


@pytest.mark.parametrize(("d", "n"), [(6, 2), (12, 5), (20, 10)])
@pytest.mark.parametrize("seed", range(3))
def test_kernel_is_the_integral_over_the_geodesic(d: int, n: int, seed: int) -> None:
    old, new = basis(d, n, seed), basis(d, n, seed + 10)
    torch.testing.assert_close(matrix(geodesic_kernel(old, new)), integrated(old, new))


@pytest.mark.parametrize("theta", [0.8, 1.5e-4])
def test_kernel_of_two_lines_by_hand(theta: float) -> None:
    """From the x axis to a line at θ: ∫ [cos², cos·sin; cos·sin, sin²](tθ) dt."""
    old = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    new = torch.tensor([[np.cos(theta)], [np.sin(theta)]], dtype=torch.float64)
    diagonal = np.sin(2 * theta) / (4 * theta)
    cross = (1 - np.cos(2 * theta)) / (4 * theta)
    expected = torch.tensor([[0.5 + diagonal, cross], [cross, 0.5 - diagonal]], dtype=torch.float64)
    torch.testing.assert_close(matrix(geodesic_kernel(old, new)), expected)


def test_kernel_does_not_depend_on_the_choice_of_bases() -> None:
    old, new = basis(12, 5, 0), basis(12, 5, 1)
    rotation, other = torch.linalg.qr(randn(5, 5, seed=2)).Q, torch.linalg.qr(randn(5, 5, seed=3)).Q
    torch.testing.assert_close(
        matrix(geodesic_kernel(old @ rotation, new @ other)), matrix(geodesic_kernel(old, new))
    )


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_tends_to_the_projection_as_the_angles_vanish(
    angle: float, dtype: torch.dtype
) -> None:
    old = basis(12, 5, 0)
    new = torch.linalg.qr(old + angle * randn(12, 5, seed=1)).Q
    kernel = matrix(geodesic_kernel(old.to(dtype), new.to(dtype)))
    torch.testing.assert_close(
        kernel, (old @ old.T).to(dtype), rtol=0, atol=10 * angle + 20 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("angle", [3e-4, 1e-3, 1e-2])
def test_small_angles_survive_single_precision(angle: float) -> None:
    """Near 1 a float32 cosine no longer tells them; the error here stays far below the angle."""
    old = basis(12, 5, 0)
    new = torch.linalg.qr(old + angle * randn(12, 5, seed=1)).Q
    torch.testing.assert_close(
        matrix(geodesic_kernel(old.float(), new.float())).double(),
        matrix(geodesic_kernel(old, new)),
        rtol=0,
        atol=1e-6,
    )


def test_partly_overlapping_subspaces() -> None:
    """Three shared directions and two at right angles: both ends of the angles at once."""
    eye = torch.eye(8, dtype=torch.float64)
    old, new = eye[:, [0, 1, 2, 3, 4]], eye[:, [0, 1, 2, 5, 6]]
    kernel = geodesic_kernel(old, new)
    assert all(part.isfinite().all() for part in kernel)
    g = matrix(kernel)
    torch.testing.assert_close(g.diagonal()[:3], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(g.diagonal()[3:7], torch.full((4,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(g.trace(), torch.tensor(5.0, dtype=torch.float64))


def test_kernel_is_positive_with_eigenvalues_up_to_one() -> None:
    eigenvalues = torch.linalg.eigvalsh(matrix(geodesic_kernel(basis(20, 8, 0), basis(20, 8, 1))))
    assert eigenvalues.min() > -1e-12
    assert eigenvalues.max() < 1 + 1e-12


def test_subspace_holds_the_strongest_directions_of_centred_features() -> None:
    features = F.normalize(randn(30, 10, seed=4) * torch.linspace(1, 3, 10), dim=1)
    found = subspace(features, 4)
    torch.testing.assert_close(found.T @ found, torch.eye(4, dtype=torch.float64))
    # Each feature was centred over its entries, so nothing points along (1, …, 1).
    assert found.sum(dim=0).abs().max() < 1e-12
    centred = features - features.mean(dim=1, keepdim=True)
    strongest = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -4:]
    torch.testing.assert_close(found @ found.T, strongest @ strongest.T)


@pytest.mark.parametrize("variant", ["cosine", "distance"])
@pytest.mark.parametrize(("b", "d"), [(20, 64), (40, 24)])
def test_loss_and_gradient_with_the_full_matrix(variant: Variant, b: int, d: int) -> None:
    """The d × d matrix by integration; n = min(B, d) − 2 also where the batch is the larger."""
    features, old_features = 3 * randn(b, d, seed=5), randn(b, d, seed=6)
    n = min(b, d) - 2
    new, old = F.normalize(features, dim=1), F.normalize(old_features, dim=1)
    g = integrated(subspace(old, n), subspace(new, n))

    slow_leaf = features.clone().requires_grad_()
    terms = []
    for f, o in zip(slow_leaf, old, strict=True):
        z = f / f.norm()
        if variant == "distance":
            terms.append((o - z) @ g @ (o - z))
        else:
            terms.append(1 - (z @ g @ o) / ((z @ g @ z).sqrt() * (o @ g @ o).sqrt()))
    slow = torch.stack(terms).mean()
    slow.backward()

    leaf, old_leaf = features.clone().requires_grad_(), old_features.clone().requires_grad_()
    loss = geodesic_distillation(leaf, old_leaf, variant)
    loss.backward()
    torch.testing.assert_close(loss, slow)
    torch.testing.assert_close(leaf.grad, slow_leaf.grad)
    assert old_leaf.grad is None


@pytest.mark.parametrize("variant", ["cosine", "distance"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_features_cost_nothing(variant: Variant, dtype: torch.dtype) -> None:
    features = randn(32, 64, seed=7).to(dtype).requires_grad_()
    loss = geodesic_distillation(features, features.detach().clone(), variant)
    loss.backward()
    assert loss.abs() < 10 * torch.finfo(dtype).eps
    assert features.grad is not None
    assert features.grad.abs().max() < 10 * torch.finfo(dtype).eps


def test_loss_ignores_the_lengths_of_features_and_grows_with_the_change() -> None:
    old, change = randn(32, 64, seed=8), randn(32, 64, seed=9)
    losses = [float(geodesic_distillation(old + s * change, old)) for s in (0.05, 0.2, 0.8)]
    assert 0 < losses[0] < losses[1] < losses[2] < 2
    lengths = 1 + randn(32, 1, seed=10).abs()
    torch.testing.assert_close(
        geodesic_distillation(lengths * (old + change), old),
        geodesic_distillation(old + change, old),
    )


def test_float32_agrees_with_float64() -> None:
    old, change = randn(32, 64, seed=8), randn(32, 64, seed=9)
    for s in (1e-3, 0.1, 1.0):
        exact = geodesic_distillation(old + s * change, old)
        single = geodesic_distillation((old + s * change).float(), old.float())
        torch.testing.assert_close(single.double(), exact, rtol=1e-3, atol=1e-6)


def test_a_small_last_batch_is_skipped() -> None:
    """One of fewer than 16 images."""
    features = randn(15, 64, seed=11)
    assert geodesic_distillation(features, -features) == 0
    assert geodesic_distillation(features[:0], features[:0]) == 0
    full = randn(16, 64, seed=11)
    assert geodesic_distillation(full, randn(16, 64, seed=12)) > 0


def test_dead_features_give_no_nan() -> None:
    features = randn(20, 64, seed=13)
    features[3] = 0
    features.requires_grad_()
    loss = geodesic_distillation(features, randn(20, 64, seed=14))
    loss.backward()
    assert loss.isfinite()
    assert features.grad is not None
    assert features.grad.isfinite().all()
