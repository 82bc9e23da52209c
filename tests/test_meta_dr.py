"""Meta-DR: manipulations against PIL, the meta step against a linear model worked out by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from dacr.learning.checkpoint import scratch_root
from dacr.learning.randomisation import (
    MANIPULATIONS,
    Chain,
    Randomisation,
    draw_chain,
    manipulate,
)
from dacr.learning.session import Session
from dacr.learning.training import Batch
from dacr.methods import make_method, meta_dr
from dacr.methods.meta_dr import MetaDR, MetaDROptions
from dacr.methods.parts.method import Parts
from dacr.methods.parts.representation import Representation
from dacr.model.heads import LinearHead
from dacr.model.super_feature import Features
from dacr.rng import torch_generator
from dacr.sessions.learn import learn
from tests.learning import CPU, small_params, small_session
from tests.teaching import values_of, whole_batch
from tests.tiny_pipeline import prepare, run, tiny_params

# -- manipulations --------------------------------------------------------------------------


def pil_shift(image: Image.Image, channel: int, level: float) -> Image.Image:
    array = np.asarray(image).astype(float)
    array[:, :, channel] += level
    return Image.fromarray(array.round().clip(0, 255).astype(np.uint8))


PIL = {
    "autocontrast": lambda image, level: ImageOps.autocontrast(image, cutoff=level),
    "brightness": lambda image, level: ImageEnhance.Brightness(image).enhance(level),
    "colour": lambda image, level: ImageEnhance.Color(image).enhance(level),
    "contrast": lambda image, level: ImageEnhance.Contrast(image).enhance(level),
    "sharpness": lambda image, level: ImageEnhance.Sharpness(image).enhance(level),
    "solarise": lambda image, level: ImageOps.solarize(image, threshold=level),
    "grayscale": lambda image, level: ImageOps.grayscale(image).convert("RGB"),
    "red": lambda image, level: pil_shift(image, 0, level),
    "green": lambda image, level: pil_shift(image, 1, level),
    "blue": lambda image, level: pil_shift(image, 2, level),
}


def photographs(count: int = 4, size: int = 32) -> NDArray[np.uint8]:
    """Smooth gradients with noise, each within its own range of grey levels."""
    generator = np.random.default_rng(0)
    ramp = np.linspace(0, 1, size)
    images = []
    for low, high in zip(range(0, 10 * count, 10), range(250, 250 - 40 * count, -40), strict=True):
        mixing = generator.random((2, 3))
        plane = np.multiply.outer(ramp, np.ones(size))[..., None] * mixing[0]
        plane = plane + np.multiply.outer(np.ones(size), ramp)[..., None] * mixing[1]
        plane = plane + 0.3 * generator.random((size, size, 3))
        plane = (plane - plane.min()) / (plane.max() - plane.min())
        images.append((low + (high - low) * plane).round().astype(np.uint8))
    return np.stack(images)


def to_float(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2) / 255


def to_grey_levels(images: Tensor) -> NDArray[np.float64]:
    return 255 * images.permute(0, 2, 3, 1).double().numpy()


@pytest.mark.parametrize("name", MANIPULATIONS)
@pytest.mark.parametrize("where", [0.0, 0.3, 1.0])
def test_a_manipulation_is_that_of_pil(name: str, where: float) -> None:
    """Up to PIL's rounding to grey levels, of the result and of the mean that contrast uses."""
    images = photographs()
    _, low, high = MANIPULATIONS[name]
    level = low + where * (high - low)
    if name == "solarise":
        level = round(level)  # PIL's threshold is a whole number
    number = torch.full((1, len(images)), list(MANIPULATIONS).index(name))
    levels = torch.full(number.shape, (level - low) / (high - low or 1))
    result = to_grey_levels(manipulate(to_float(images), Chain(number, levels)))
    expected = np.stack([np.asarray(PIL[name](Image.fromarray(i), level)) for i in images])
    assert np.abs(result - expected).max() <= 1.25
    assert np.abs(result - images).max() > 3  # otherwise leaving the image alone would pass


def test_autocontrast_leaves_a_flat_channel_alone() -> None:
    images = torch.full((1, 3, 8, 8), 0.25)
    images[0, 1, 0, 0] = 0.5
    number = torch.tensor([[list(MANIPULATIONS).index("autocontrast")]])
    result = manipulate(images, Chain(number, torch.zeros(1, 1)))
    assert torch.equal(result[:, ::2], images[:, ::2])
    assert result[0, 1].unique().tolist() == [0.0, 1.0]


def test_every_sample_undergoes_its_own_chain_in_order() -> None:
    images = to_float(np.repeat(photographs(), 8, axis=0))
    given = images.clone()
    chain = draw_chain(3, len(images), torch.Generator().manual_seed(3))
    assert len(chain.manipulations.unique()) == len(MANIPULATIONS)
    together = manipulate(images, chain)
    assert torch.equal(images, given)
    manipulations = list(MANIPULATIONS.values())
    for position in range(len(images)):
        image = images[position : position + 1]
        for number, where in zip(*(part[:, position].tolist() for part in chain), strict=True):
            apply, low, high = manipulations[number]
            image = apply(image, torch.tensor(low + (high - low) * where).view(1, 1, 1, 1))
        torch.testing.assert_close(together[position : position + 1], image)
    assert together.min() >= 0
    assert together.max() <= 1


def test_a_made_up_domain_is_one_chain_and_randomisation_many() -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    randomise = Randomisation(3, mean, std)
    scale, offset = torch.tensor(std).view(3, 1, 1), torch.tensor(mean).view(3, 1, 1)
    image = to_float(photographs(1))
    batch = ((image - offset) / scale).expand(12, -1, -1, -1)
    domain = randomise.domain(batch, torch.Generator().manual_seed(1))
    torch.testing.assert_close(domain, domain[:1].expand_as(domain))
    each = randomise.each(batch, torch.Generator().manual_seed(1))
    assert len(torch.unique(each, dim=0)) > 6
    again = randomise.each(batch, torch.Generator().manual_seed(1))
    assert torch.equal(each, again)
    chain = draw_chain(3, 12, torch.Generator().manual_seed(1))
    expected = manipulate(image.expand(12, -1, -1, -1), chain)
    torch.testing.assert_close(each * scale + offset, expected)


# -- the meta step --------------------------------------------------------------------------

ALPHA, BETA, GAMMA = 0.4, 0.7, 1.3


class Pixels(Representation):
    """The pixels themselves: with a linear classifier, softmax regression."""

    def forward(self, batch: Batch) -> Features:
        return Features(batch.images.flatten(1), batch.images)


class Fixed(Randomisation):
    """A current and a made-up domain that are known beforehand."""

    def __init__(self, current: Tensor, other: Tensor) -> None:
        self.current, self.other = current, other

    def each(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return self.current

    def domain(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return self.other


def meta_dr_params(*overrides: str):
    return small_params("method=meta_dr", *overrides)


def linear_case(second_order: bool) -> tuple[MetaDR, Batch]:
    """Three classes, five samples of 3·1·1 'pixels', no bias."""
    params = meta_dr_params(
        f"options.alpha={ALPHA}",
        f"options.beta={BETA}",
        f"options.gamma={GAMMA}",
        f"options.second_order={str(second_order).lower()}",
    )
    method = Parts(Pixels, method=MetaDR, own_options=MetaDROptions).make(params, CPU).double()
    assert isinstance(method, MetaDR)
    method.features.requires_grad_(False)
    method.classifier.head = LinearHead(3, 3, torch.Generator().manual_seed(0), bias=False).double()
    generator = torch.Generator().manual_seed(1)
    current, other = torch.randn(2, 5, 3, 1, 1, generator=generator, dtype=torch.float64)
    method.randomise = Fixed(current, other)
    method.start_epoch(small_session(1, [], [0, 1, 2], []), 0)
    labels = torch.tensor([0, 2, 1, 1, 0])
    return method, Batch(torch.zeros(5, 3, 1, 1), labels, labels < 0, torch.arange(5))


def posterior(weight: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(weight @ x)
    return powers / powers.sum()


def regression_loss(weight, inputs, labels) -> float:
    return -np.mean([np.log(posterior(weight, x)[y]) for x, y in zip(inputs, labels, strict=True)])


def regression_gradient(weight, inputs, labels) -> NDArray[np.float64]:
    """Mean of (p − e_y) xᵀ."""
    total = np.zeros_like(weight)
    for x, y in zip(inputs, labels, strict=True):
        error = posterior(weight, x)
        error[y] -= 1
        total += np.outer(error, x)
    return total / len(inputs)


def hessian_times(weight, inputs, direction) -> NDArray[np.float64]:
    """Mean of (diag(p) − p pᵀ) V x xᵀ: how the gradient moves with the weights along V."""
    total = np.zeros_like(weight)
    for x in inputs:
        p = posterior(weight, x)
        total += np.outer((np.diag(p) - np.outer(p, p)) @ direction @ x, x)
    return total / len(inputs)


@pytest.mark.parametrize("second_order", [False, True])
def test_the_meta_step_of_softmax_regression_by_hand(second_order: bool) -> None:
    method, batch = linear_case(second_order)
    weight, labels = method.head.weight.detach().numpy().copy(), batch.labels.tolist()
    current = method.randomise.current.flatten(1).numpy()
    other = method.randomise.other.flatten(1).numpy()

    adapted = weight - ALPHA * regression_gradient(weight, other, labels)
    expected = {
        "cross_entropy": regression_loss(weight, current, labels),
        "recall": BETA * regression_loss(adapted, current, labels),
        "adapt": GAMMA * regression_loss(adapted, other, labels),
    }
    at_adapted = BETA * regression_gradient(adapted, current, labels)
    at_adapted += GAMMA * regression_gradient(adapted, other, labels)
    gradient = regression_gradient(weight, current, labels) + at_adapted
    if second_order:
        gradient -= ALPHA * hessian_times(weight, other, at_adapted)

    losses = method.losses(batch)
    assert values_of(losses) == pytest.approx(expected)
    torch.stack(list(losses.values())).sum().backward()
    np.testing.assert_allclose(method.head.weight.grad.numpy(), gradient, rtol=1e-9)


# -- on a network ---------------------------------------------------------------------------


def begun(*overrides: str) -> tuple[MetaDR, Session, Batch]:
    method = make_method(meta_dr_params(*overrides), CPU)
    assert isinstance(method, MetaDR)
    session = small_session(1, [], [0, 1, 2], [])
    method.begin(session)
    method.start_epoch(session, 0)
    method.train()
    return method, session, whole_batch(session, method)


def statistics(method: MetaDR) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in method.named_buffers()}


def test_running_statistics_see_the_current_domain_once_and_nothing_else() -> None:
    method, _, batch = begun()
    method.losses(batch)
    reference, _, _ = begun()
    generator = torch_generator(reference.params.seed, "randomise", 1, 0)
    reference.features(reference.randomise.each(batch.images, generator))
    expected = statistics(reference)
    assert any("running_mean" in name and buffer.any() for name, buffer in expected.items())
    torch.testing.assert_close(statistics(method), expected, rtol=0, atol=0)


def test_both_orders_have_one_objective_and_different_gradients() -> None:
    results = []
    for second_order in ("false", "true"):
        method, _, batch = begun(f"options.second_order={second_order}")
        losses = method.losses(batch)
        torch.stack(list(losses.values())).sum().backward()
        gradients = [p.grad for p in method.parameters()]
        assert all(g is not None and g.isfinite().all() for g in gradients)
        results.append((values_of(losses), torch.cat([g.flatten() for g in gradients])))
    assert results[0][0] == pytest.approx(results[1][0])
    assert not torch.allclose(results[0][1], results[1][1], rtol=0.01)


def test_the_step_really_follows_the_made_up_domain() -> None:
    """A step against the gradient lowers the loss there."""
    method, _, batch = begun("options.alpha=0.01")
    other = replace(batch, images=method.randomise.domain(batch.images, method.draws))
    theta = dict(method.named_parameters())
    before = method.loss_at(theta, other)
    assert method.loss_at(method.step_towards(other), other) < before


def test_every_epoch_and_session_has_draws_of_its_own() -> None:
    method, session, batch = begun()
    drawn = []
    for index, epoch in ((1, 0), (1, 1), (2, 0), (1, 0)):
        method.start_epoch(replace(session, index=index), epoch)
        drawn.append(values_of(method.losses(batch))["adapt"])
    assert drawn[0] == drawn[3]
    assert len(set(drawn)) == 3


class Killed(Exception):
    """Ends the training as a signal would."""


class Mortal(MetaDR):
    def start_epoch(self, session: Session, epoch: int) -> None:
        super().start_epoch(session, epoch)
        if epoch == 2:
            raise Killed


def test_a_resumed_run_meets_the_same_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = tiny_params("method=meta_dr", "split=nd", "train.epochs=3")
    results = []
    for killed in (False, True):
        folder = tmp_path / str(killed)
        folder.mkdir()
        prepare(folder, params)
        monkeypatch.chdir(folder)
        if killed:
            with monkeypatch.context() as patch:
                patch.setattr(meta_dr, "METHOD", replace(meta_dr.METHOD, method=Mortal))
                with pytest.raises(Killed):
                    learn(params, "01")
            assert list(scratch_root().glob("*/train.safetensors"))
        learn(params, "01")
        files = sorted((folder / "runs/01/learned").rglob("*.*"))
        results.append({file.name: file.read_bytes() for file in files})
    assert results[0] == results[1]


@pytest.mark.parametrize("split", ["nc", "nd", "ncd"])
def test_it_learns_every_split_and_logs_its_three_terms(tmp_path: Path, split: str) -> None:
    params = tiny_params("method=meta_dr", f"split={split}")
    run(tmp_path, params)
    for key in params.schedule.sessions:
        losses = (tmp_path / "runs" / key / "learned" / "losses.json").read_text()
        assert all(f'"{term}"' in losses for term in ("cross_entropy", "recall", "adapt"))
