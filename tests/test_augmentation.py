"""Batched augmentation against torchvision's, image by image and sampler by sampler."""

import math
from collections.abc import Callable
from pathlib import Path

import tests.torchvision_compat  # noqa: F401

# isort: split
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn.functional import interpolate
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from dacr import config
from dacr.data import augmentation as library
from dacr.data.augmentation import (
    AUGMENTATIONS,
    Augmentation,
    Boxes,
    CropFlipJitter,
    ResizedCropFlip,
    ResizedCropFlipDraw,
    choose_sizes,
    draw_boxes,
    draw_of,
    interpolation_weights,
)
from dacr.errors import UserError

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
GREY_LEVEL = 1 / 255 / min(STD)
NAMES = sorted(AUGMENTATIONS)
TRIALS = 4000
ALPHA = 1e-3  # with fixed seeds: a wrong sampler fails far below it


def make_augmentation(name: str, size: int) -> Augmentation:
    section = {"name": name, "input_size": size, "mean": MEAN, "std": STD}
    return library.make_augmentation(config.Augmentation.model_validate(section))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(count: int, height: int, width: int) -> Tensor:
    """Random images [B, H, W, 3] with structure at several scales and the whole range of greys."""
    noise = generator(1)
    total = torch.zeros(count, 3, height, width)
    for size in (3, 9, 40):
        coarse = torch.randn(count, 3, size, size, generator=noise)
        total += interpolate(coarse, (height, width), mode="bilinear")
    return (total * 60 + 128).clamp(0, 255).round().byte().permute(0, 2, 3, 1).contiguous()


def finish(image: Tensor) -> Tensor:
    """torchvision's last two steps: to float in 0 … 1, normalise."""
    return tv.normalize(tv.to_dtype(image, torch.float32, scale=True), list(MEAN), list(STD))


def per_image(images: Tensor, transform: Callable[[int, Tensor], Tensor]) -> Tensor:
    planes = images.permute(0, 3, 1, 2)
    return torch.stack([finish(transform(i, image)) for i, image in enumerate(planes)])


def as_float(image: Tensor) -> Tensor:
    return tv.to_dtype(image, torch.float32, scale=True)


# -- crop, flip, jitter ---------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(32, 32), (36, 34)])
def test_crop_flip_jitter_is_torchvisions_on_each_image(height: int, width: int) -> None:
    images = photographs(40, height, width)
    augmentation = CropFlipJitter(32, MEAN, STD)
    draw = augmentation.draw(images.shape, generator(3))
    tops, lefts, flips, factors = (t.tolist() for t in draw)
    assert set(flips) == {True, False}

    def reference(i: int, image: Tensor) -> Tensor:
        image = tv.crop(tv.pad(image, [4]), tops[i], lefts[i], 32, 32)
        image = tv.horizontal_flip(image) if flips[i] else image
        return tv.adjust_brightness(image, factors[i])

    result = augmentation.train(images, generator(3))
    exact = per_image(images, lambda i, image: reference(i, as_float(image)))
    torch.testing.assert_close(result, exact, rtol=0, atol=1e-5)
    rounded = per_image(images, reference)
    assert (result - rounded).abs().max() < GREY_LEVEL


def test_crop_flip_jitter_draws_as_torchvision_does() -> None:
    draw = CropFlipJitter(32, MEAN, STD).draw(torch.Size((TRIALS, 32, 32, 3)), generator())
    padded = torch.zeros(3, 40, 40)
    jitter = v2.ColorJitter(brightness=63 / 255)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        corners = [v1.RandomCrop.get_params(padded, (32, 32))[:2] for _ in range(TRIALS)]
        factors = [jitter.make_params([padded])["brightness_factor"] for _ in range(TRIALS)]
    theirs = torch.tensor(corners)
    for ours, reference in ((draw.top, theirs[:, 0]), (draw.left, theirs[:, 1])):
        assert set(ours.tolist()) == set(reference.tolist()) == set(range(9))
        assert stats.chisquare(ours.bincount().numpy()).pvalue > ALPHA
    assert stats.ks_2samp(draw.brightness.numpy(), factors).pvalue > ALPHA
    assert draw.brightness.sub(1).abs().max().item() == pytest.approx(63 / 255, abs=1e-3)
    assert stats.binomtest(int(draw.flip.sum()), TRIALS).pvalue > ALPHA
    drawn = torch.stack([t.double() for t in draw])
    dependence = drawn.corrcoef() - torch.eye(4)
    assert dependence.abs().max() < 4 / TRIALS**0.5


# -- resized crop, flip ---------------------------------------------------------------------


def resized_crop_reference(
    images: Tensor, draw: ResizedCropFlipDraw, size: int, prepare: Callable[[Tensor], Tensor]
) -> Tensor:
    boxes = torch.stack(draw.boxes, 1).tolist()
    flips = draw.flip.tolist()

    def reference(i: int, image: Tensor) -> Tensor:
        image = tv.resized_crop(prepare(image), *boxes[i], [size, size], antialias=True)
        return tv.horizontal_flip(image) if flips[i] else image

    return per_image(images, reference)


@pytest.mark.parametrize(("height", "width"), [(128, 128), (120, 150)])
def test_resized_crop_flip_is_torchvisions_on_each_image(height: int, width: int) -> None:
    images = photographs(24, height, width)
    augmentation = ResizedCropFlip(112, MEAN, STD)
    draw = augmentation.draw(images.shape, generator(4))
    assert set(draw.flip.tolist()) == {True, False}
    result = augmentation.train(images, generator(4))
    exact = resized_crop_reference(images, draw, 112, as_float)
    torch.testing.assert_close(result, exact, rtol=0, atol=5e-5)
    rounded = resized_crop_reference(images, draw, 112, lambda image: image)
    assert (result - rounded).abs().max() < 1.5 * GREY_LEVEL  # torchvision rounds after each axis


def test_resized_crop_at_the_edges() -> None:
    """Whole image, one pixel, a row, a column, each corner; and strong reduction to few pixels."""
    corners = [(0, 0), (0, 88), (88, 0), (88, 88)]
    rows = [(0, 0, 128, 128), (5, 7, 1, 1), (127, 0, 1, 128), (0, 127, 128, 1)]
    boxes = torch.tensor(rows + [(top, left, 40, 40) for top, left in corners])
    images = photographs(len(boxes), 128, 128)
    draw = ResizedCropFlipDraw(Boxes(*boxes.unbind(1)), torch.arange(len(boxes)) % 2 == 0)
    for size in (112, 9):
        result = ResizedCropFlip(size, MEAN, STD).apply(images, draw)
        exact = resized_crop_reference(images, draw, size, as_float)
        torch.testing.assert_close(result, exact, rtol=0, atol=5e-5)


@settings(max_examples=60, deadline=None)
@given(st.tuples(st.integers(1, 60), st.integers(0, 20), st.integers(0, 20)), st.integers(1, 70))
def test_interpolation_weights_are_torchs(box: tuple[int, int, int], target: int) -> None:
    """Resizing unit vectors by torch yields its weights, one column each.

    They lie along the width: torch 2.13 resizes the height of one-pixel-wide images wrongly.
    """
    length, before, after = box
    source = before + length + after
    ours = interpolation_weights(torch.tensor([before]), torch.tensor([length]), source, target)
    unit = torch.eye(source)[:, before : before + length].reshape(source, 1, 1, length)
    theirs = interpolate(unit, (1, target), mode="bilinear", antialias=True)
    torch.testing.assert_close(ours[0], theirs[:, 0, 0].T, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(128, 128), (100, 200)])
def test_boxes_are_drawn_as_torchvision_draws_them(height: int, width: int) -> None:
    ours = torch.stack(draw_boxes(TRIALS, height, width, generator(2)), 1)
    image = torch.zeros(3, height, width)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        parameters = v1.RandomResizedCrop.get_params
        drawn = [parameters(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(TRIALS)]
    theirs = torch.tensor(drawn)
    for mine, their in zip(ours.T, theirs.T, strict=True):
        assert stats.ks_2samp(mine.numpy(), their.numpy()).pvalue > ALPHA
    for quantity in (area, aspect, vertical_position, horizontal_position):
        mine, their = quantity(ours, height, width), quantity(theirs, height, width)
        assert stats.ks_2samp(mine.numpy(), their.numpy()).pvalue > ALPHA
    positions = torch.stack(
        [f(ours, height, width) for f in (vertical_position, horizontal_position)]
    )
    assert abs(positions.corrcoef()[0, 1]) < 4 / TRIALS**0.5
    top, left, box_height, box_width = ours.T
    assert (torch.stack([top, left]) >= 0).all()
    assert (top + box_height <= height).all()
    assert (left + box_width <= width).all()


def area(boxes: Tensor, height: int, width: int) -> Tensor:
    return boxes[:, 2] * boxes[:, 3] / (height * width)


def aspect(boxes: Tensor, height: int, width: int) -> Tensor:
    return boxes[:, 3] / boxes[:, 2]


def vertical_position(boxes: Tensor, height: int, width: int) -> Tensor:
    return (boxes[:, 0] + 0.5) / (height - boxes[:, 2] + 1)


def horizontal_position(boxes: Tensor, height: int, width: int) -> Tensor:
    return (boxes[:, 1] + 0.5) / (width - boxes[:, 3] + 1)


def test_the_first_try_that_fits_is_taken() -> None:
    """Against a loop; areas up to three times the image, so that most tries do not fit."""
    height, width = 60, 90
    areas = torch.rand(200, 10, generator=generator(5), dtype=torch.float64) * 3 * height * width
    aspects = (torch.rand(200, 10, generator=generator(6), dtype=torch.float64) - 0.5).exp()
    chosen = torch.stack(choose_sizes(areas, aspects, height, width), 1).tolist()
    tried = []
    for sample in range(200):
        for attempt in range(10):
            a, r = areas[sample, attempt].item(), aspects[sample, attempt].item()
            w, h = round((a * r) ** 0.5), round((a / r) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                assert chosen[sample] == [h, w, 1]
                tried.append(attempt)
                break
        else:
            assert chosen[sample][2] == 0
            tried.append(10)
    assert set(tried) >= set(range(8))


@pytest.mark.parametrize(("height", "width"), [(128, 128), (60, 200), (200, 60), (90, 100)])
def test_fallback_where_no_try_fits(height: int, width: int) -> None:
    """torchvision's own fallback, provoked by areas of four images."""
    image = torch.zeros(3, height, width)
    expected = v1.RandomResizedCrop.get_params(image, [4.0, 4.0], [3 / 4, 4 / 3])
    areas = torch.full((3, 10), 4.0 * height * width, dtype=torch.float64)
    box_height, box_width, fits = choose_sizes(areas, torch.ones_like(areas), height, width)
    assert not fits.any()
    assert box_height.tolist() == [expected[2]] * 3
    assert box_width.tolist() == [expected[3]] * 3


@pytest.mark.parametrize(("height", "width"), [(60, 201), (201, 60)])
def test_fallback_is_central(height: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dacr.data.augmentation.AREA_SCALE", (4.0, 4.0))
    image = torch.zeros(3, height, width)
    expected = v1.RandomResizedCrop.get_params(image, [4.0, 4.0], [3 / 4, 4 / 3])
    boxes = torch.stack(draw_boxes(5, height, width, generator()), 1)
    assert boxes.tolist() == [list(expected)] * 5


def test_ten_tries_are_made() -> None:
    """In a strip of 20 × 200 few tries fit: how often the fallback is taken tells their number."""
    height, width, grid, trials = 20, 200, 1500, 20_000
    middles = (torch.arange(grid, dtype=torch.float64) + 0.5) / grid
    areas = (0.08 + 0.92 * middles)[:, None] * height * width
    aspects = (math.log(3 / 4) + math.log(16 / 9) * middles).exp()
    fits = ((areas * aspects).sqrt().round() <= width) & ((areas / aspects).sqrt().round() <= 20)
    expected = (1 - fits.double().mean().item()) ** 10
    boxes = torch.stack(draw_boxes(trials, height, width, generator()), 1)
    fallback = v1.RandomResizedCrop.get_params(torch.zeros(3, 20, 200), [4.0, 4.0], [3 / 4, 4 / 3])
    taken = int((boxes == torch.tensor(fallback)).all(dim=1).sum())
    assert 0.2 < expected < 0.8
    assert stats.binomtest(taken, trials, expected).pvalue > ALPHA


def test_a_try_of_one_pixel_fits_and_one_of_none_does_not() -> None:
    """Areas and aspect ratios of boxes of height × width 0 × 1, 1 × 0, 1 × 3 and 3 × 1."""
    areas = torch.tensor([[0.2, 0.2, 3.0], [0.2, 0.2, 3.0]], dtype=torch.float64)
    aspects = torch.tensor([[2.0, 0.5, 3.0], [0.5, 2.0, 1 / 3]], dtype=torch.float64)
    heights, widths, fits = choose_sizes(areas, aspects, 5, 5)
    assert fits.tolist() == [True, True]
    assert (heights.tolist(), widths.tolist()) == ([1, 3], [3, 1])


def test_resized_crop_flips_half_of_the_images() -> None:
    draw = ResizedCropFlip(112, MEAN, STD).draw(torch.Size((TRIALS, 128, 128, 3)), generator())
    assert stats.binomtest(int(draw.flip.sum()), TRIALS).pvalue > ALPHA
    assert abs(stats.pearsonr(draw.flip.double(), draw.boxes.left.double()).statistic) < 0.06


# -- testing --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crop_flip_jitter", "resized_crop_flip"])
@pytest.mark.parametrize(("height", "width"), [(128, 128), (112, 112), (117, 131)])
def test_test_images_are_central_crops(name: str, height: int, width: int) -> None:
    images = photographs(2, height, width)
    result = make_augmentation(name, 112).test(images)
    expected = per_image(images, lambda _, image: tv.center_crop(image, [112, 112]))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", [32, 28, 75])
def test_none_only_resizes(side: int) -> None:
    images = photographs(3, side, side)
    augmentation = make_augmentation("none", 32)
    expected = per_image(
        images, lambda _, image: tv.resize(as_float(image), [32, 32], antialias=True)
    )
    torch.testing.assert_close(augmentation.test(images), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(augmentation.train(images, generator()), expected, rtol=0, atol=1e-5)


# -- all of them ----------------------------------------------------------------------------


@pytest.fixture(params=NAMES)
def augmentation(request: pytest.FixtureRequest) -> Augmentation:
    return make_augmentation(request.param, 32)


def test_output_is_what_the_network_takes(augmentation: Augmentation) -> None:
    images = photographs(5, 40, 40)
    before = images.clone()
    for result in (augmentation.train(images, generator()), augmentation.test(images)):
        assert result.shape == (5, 3, 32, 32)
        assert result.dtype == torch.float32
        assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, before)


def test_samples_are_independent_of_the_others_in_their_batch(augmentation: Augmentation) -> None:
    images, positions = photographs(6, 40, 40), torch.tensor([4, 1])
    draw = augmentation.draw(images.shape, generator(8))
    alone = augmentation.apply(images[positions], draw_of(draw, positions))
    assert torch.equal(alone, augmentation.apply(images, draw)[positions])


@pytest.mark.parametrize(("name", "views"), [("none", 1), ("crop_flip_jitter", 3)])
def test_an_image_has_several_views_only_where_something_is_random(name: str, views: int) -> None:
    assert AUGMENTATIONS[name](32, MEAN, STD, views=3).views == views
    assert AUGMENTATIONS[name](32, MEAN, STD).views == (None if views == 3 else 1)


def test_every_draw_comes_from_the_generator(augmentation: Augmentation) -> None:
    images = photographs(1, 40, 40).expand(6, -1, -1, -1)
    state = torch.get_rng_state()
    first = augmentation.train(images, generator(8))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(augmentation.train(images, generator(8)), first)
    others = augmentation.train(images, generator(9))
    distinct = {tuple(sample.flatten().tolist()) for sample in torch.cat([first, others])}
    # two equal boxes among twelve are a rare coincidence; equal draws would leave six or fewer
    assert len(distinct) >= 10 if augmentation.random else len(distinct) == 1


@pytest.mark.parametrize("name", ["crop_flip_jitter", "resized_crop_flip"])
def test_too_small_images_are_refused(name: str) -> None:
    augmentation = make_augmentation(name, 32)
    images = photographs(2, 28, 40)
    with pytest.raises(UserError, match=r"28×40 .* 32×32: set .* to at most 28"):
        augmentation.train(images, generator())
    with pytest.raises(UserError, match=r"augmentation\.input_size"):
        augmentation.test(images)


def test_an_unknown_name_is_one_line_that_lists_the_names(tmp_path: Path) -> None:
    content = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    content["augmentation"]["name"] = "mixup"
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(UserError, match=r"^[^\n]*'mixup'[^\n]*$") as told:
        config.load_params(file)
    assert all(name in str(told.value) for name in NAMES)
