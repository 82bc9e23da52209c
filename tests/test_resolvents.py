"""The kernel by resolvents against the one by singular values, and by its own properties."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.learning import geodesic, resolvents
from dacr.learning.resolvents import ResolventKernel, resolvent_kernel
from tests.test_geodesic import basis, integrated, randn


def matrix(kernel: ResolventKernel) -> Tensor:
    """G itself, from its products with unit vectors."""
    eye = torch.eye(len(kernel.p), dtype=kernel.p.dtype)
    return torch.stack([kernel.product(row.expand_as(eye), eye) for row in eye])


@pytest.mark.parametrize(("d", "n"), [(6, 2), (12, 5), (20, 10)])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_integral_over_the_geodesic(d: int, n: int, seed: int) -> None:
    old, new = basis(d, n, seed), basis(d, n, seed + 10)
    torch.testing.assert_close(matrix(resolvent_kernel(old, new)), integrated(old, new))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-5, 1e-3])
def test_it_is_the_projection_where_nothing_moved(angle: float) -> None:
    old = basis(12, 5, 0)
    new = torch.linalg.qr(old + angle * randn(12, 5, seed=1)).Q
    kernel = matrix(resolvent_kernel(old, new))
    torch.testing.assert_close(kernel, old @ old.T, rtol=0, atol=10 * angle + 1e-14)


def test_partly_overlapping_subspaces() -> None:
    """Three shared directions and two at right angles: both ends of the angles at once."""
    eye = torch.eye(8, dtype=torch.float64)
    kernel = resolvent_kernel(eye[:, [0, 1, 2, 3, 4]], eye[:, [0, 1, 2, 5, 6]])
    diagonal = matrix(kernel).diagonal()
    torch.testing.assert_close(diagonal[:3], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(diagonal[3:7], torch.full((4,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize(("b", "d"), [(30, 10), (10, 30), (24, 64)])
def test_a_subspace_holds_the_strongest_directions(b: int, d: int) -> None:
    features = F.normalize(randn(b, d, seed=4) * torch.linspace(1, 3, d), dim=1)
    found, n = resolvents.subspace(features), min(b, d) - 2
    torch.testing.assert_close(found.T @ found, torch.eye(n, dtype=torch.float64))
    expected = geodesic.subspace(features, n)
    torch.testing.assert_close(found @ found.T, expected @ expected.T)


@pytest.mark.parametrize("variant", ["cosine", "distance"])
@pytest.mark.parametrize("change", [1e-3, 0.1, 1.0])
def test_loss_and_gradient_agree_with_the_decomposition(
    variant: geodesic.Variant, change: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = randn(32, 64, seed=8)
    leaves = [(old + change * randn(32, 64, seed=9)).requires_grad_() for _ in range(2)]
    losses = [geodesic.geodesic_distillation(leaves[0], old, variant)]
    monkeypatch.setattr(
        geodesic, "kernel_between",
        lambda a, b: resolvent_kernel(resolvents.subspace(a), resolvents.subspace(b)),
    )  # fmt: skip
    losses.append(geodesic.geodesic_distillation(leaves[1], old, variant))
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(leaves[1].grad, leaves[0].grad, rtol=1e-4, atol=1e-7)


def test_dead_and_equal_samples_give_no_nan() -> None:
    features = randn(20, 64, seed=13)
    features[3] = 0
    features[5] = features[4]
    unit = F.normalize(features, dim=1)
    kernel = resolvent_kernel(resolvents.subspace(unit), resolvents.subspace(randn(20, 64, seed=1)))
    assert all(part.isfinite().all() for part in kernel)


def test_the_sums_of_poles_are_the_functions() -> None:
    """To 10⁻⁷ as they enter G, from right angles to almost none."""
    x = np.concatenate([np.geomspace(1e-12, 1, 7001), np.linspace(0.001, 1, 3001)])
    poles, weights = resolvents._expansion()
    sums = weights @ (1 / (x + poles[:, None]))
    error = np.abs(sums - resolvents._functions(x))
    assert (error[0] * x * (1 - x)).max() < 1e-7
    assert (error[1] * np.sqrt(x * (1 - x))).max() < 1e-7
    assert (error[2] * (1 - x)).max() < 1e-7
