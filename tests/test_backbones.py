"""Backbones against torchvision, against a plain functional reference, and by counting."""

from collections.abc import Iterator

import tests.torchvision_compat  # noqa: F401

# isort: split
import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from dacr.errors import UserError
from dacr.model.backbones import ARCHITECTURES, Backbone, build_backbone
from tests.learning import TINY

SIZES = {"resnet32": 32, "resnet18_32": 32, "resnet18_112": 112, "resnet8": 32, "resnet8_wide": 32}
NAMES = sorted(ARCHITECTURES.keys() - {TINY})
RESNET18S = ["resnet18_32", "resnet18_112"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(size: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, size, size, generator=generator(1))


def build(name: str, last_relu: bool) -> Backbone:
    """A backbone as if it had been trained: no gamma, beta or running statistic is 0 or 1."""
    backbone = build_backbone(name, last_relu, generator())
    draw = generator(2)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.5, 1.5, generator=draw)
            for tensor in (module.bias, module.running_mean):
                assert tensor is not None
                tensor.data.normal_(generator=draw)
    return backbone.eval()


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts() -> None:
    """Published totals, less their classifiers."""
    projections = (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
    resnet32_without_projections = 464_154 - (64 * 10 + 10)
    resnet18 = 11_689_512 - (512 * 1000 + 1000)
    resnet8 = (3 * 9 * 16 + 32) + (2 * 16 * 9 * 16 + 64)  # stem, first block
    resnet8 += (16 + 32) * 9 * 32 + 128 + (32 + 64) * 9 * 64 + 256 + projections
    wide = (3 * 9 * 24 + 48) + (2 * 24 * 9 * 24 + 96)
    wide += (24 + 48) * 9 * 48 + 192 + (48 + 96) * 9 * 96 + 384
    wide += (24 * 48 + 2 * 48) + (48 * 96 + 2 * 96)
    expected = {
        "resnet32": resnet32_without_projections + projections,
        "resnet18_112": resnet18,
        "resnet18_32": resnet18 - 3 * 64 * (7 * 7 - 3 * 3),
        "resnet8": resnet8,
        "resnet8_wide": wide,
    }
    assert {n: parameters(build_backbone(n, True, generator())) for n in NAMES} == expected


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet32", (64, 8, 8)),
        ("resnet18_32", (512, 4, 4)),
        ("resnet18_112", (512, 4, 4)),
        ("resnet8", (64, 4, 4)),
        ("resnet8_wide", (96, 4, 4)),
    ],
)
def test_shapes(name: str, shape: tuple[int, int, int]) -> None:
    backbone = build(name, last_relu=False)
    x = images(SIZES[name])
    feature_map = backbone.feature_map(x)
    assert feature_map.shape == (2, *shape)
    assert backbone.dim == shape[0]
    torch.testing.assert_close(backbone(x), feature_map.flatten(2).sum(2) / (shape[1] * shape[2]))


@pytest.mark.parametrize("name", NAMES)
def test_other_input_sizes(name: str) -> None:
    backbone = build(name, last_relu=False)
    for shape in [(28, 28), (64, 64), (40, 56)]:
        feature = backbone(torch.randn(2, 3, *shape, generator=generator(3)))
        assert feature.shape == (2, backbone.dim)
        assert feature.isfinite().all()


def torchvision_twin(name: str, backbone: Backbone) -> nn.Module:
    """torchvision's ResNet-18 without classifier, with the weights of ``backbone``."""
    twin = torchvision.models.resnet18()
    twin.fc = nn.Identity()
    if name == "resnet18_32":
        twin.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        twin.maxpool = nn.Identity()
    renamed = {}
    for key, value in backbone.state_dict().items():
        part, index, rest = key.split(".", 2)
        if part == "stem":
            renamed[f"{'conv1' if index == '0' else 'bn1'}.{rest}"] = value.clone()
        else:
            block = f"layer{int(index) // 2 + 1}.{int(index) % 2}"
            renamed[f"{block}.{rest.replace('shortcut', 'downsample')}"] = value.clone()
    twin.load_state_dict(renamed)
    twin.eval()
    return twin


@pytest.mark.parametrize("name", RESNET18S)
def test_resnet18_is_torchvisions(name: str) -> None:
    backbone = build(name, last_relu=True)
    twin = torchvision_twin(name, backbone)
    x = images(SIZES[name])
    torch.testing.assert_close(backbone(x), twin(x))

    for network in (backbone, twin):
        network.double().train()(x.double()).square().mean().backward()
    gradients, twins = ([p.grad for p in network.parameters()] for network in (backbone, twin))
    torch.testing.assert_close(gradients, twins)
    torch.testing.assert_close(list(backbone.buffers()), list(twin.buffers()))


def reference(state: dict[str, Tensor], x: Tensor, stem_stride: int, blocks: int) -> Tensor:
    """The three-stage networks as plain function calls, in eval mode and without the last ReLU."""

    def conv_bn(x: Tensor, conv: str, bn: str, stride: int) -> Tensor:
        weight = state[f"{conv}.weight"]
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, var, gamma, beta = (
            state[f"{bn}.{field}"][:, None, None]
            for field in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * gamma + beta

    x = conv_bn(x, "stem.0", "stem.1", stem_stride)
    for i in range(3 * blocks):
        x = x.clamp(min=0)
        block = f"blocks.{i}"
        stride = 2 if i in (blocks, 2 * blocks) else 1
        inner = conv_bn(x, f"{block}.conv1", f"{block}.bn1", stride).clamp(min=0)
        residual = conv_bn(inner, f"{block}.conv2", f"{block}.bn2", 1)
        if stride == 2:
            x = conv_bn(x, f"{block}.shortcut.0", f"{block}.shortcut.1", stride)
        x = x + residual
    return x


@pytest.mark.parametrize(
    ("name", "stem_stride", "blocks"),
    [("resnet32", 1, 5), ("resnet8", 2, 1), ("resnet8_wide", 2, 1)],
)
def test_three_stage_networks_equal_the_reference(name: str, stem_stride: int, blocks: int) -> None:
    backbone = build(name, last_relu=False).double()
    x = images(32).double()
    expected = reference(backbone.state_dict(), x, stem_stride, blocks)
    torch.testing.assert_close(backbone.feature_map(x), expected)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_very_last_relu_is_removed(name: str) -> None:
    with_relu, without = build(name, last_relu=True), build(name, last_relu=False)
    x = images(SIZES[name])
    bare = without.feature_map(x)
    assert (bare < 0).any()
    assert (without(x) < 0).any()
    torch.testing.assert_close(with_relu.feature_map(x), bare.clamp(min=0))


@pytest.mark.parametrize("name", NAMES)
def test_weights_come_from_the_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = build_backbone(name, False, generator(5)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        second = build_backbone(name, False, generator(5)).state_dict()
    other = build_backbone(name, False, generator(6)).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    convolutions = [key for key in first if first[key].dim() == 4]
    assert not any(torch.equal(first[key], other[key]) for key in convolutions)
    assert len({first[key].flatten()[0].item() for key in convolutions}) == len(convolutions)


def batch_norms(backbone: Backbone) -> Iterator[tuple[str, nn.BatchNorm2d]]:
    for name, module in backbone.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            yield name, module


@pytest.mark.parametrize("name", NAMES)
def test_initialisation(name: str) -> None:
    backbone = build_backbone(name, False, generator())
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            outputs, _, height, width = module.weight.shape
            he = (2 / (outputs * height * width)) ** 0.5
            tolerance = 5 * he / (2 * module.weight.numel()) ** 0.5
            assert module.weight.std().item() == pytest.approx(he, abs=tolerance)
    for key, norm in batch_norms(backbone):
        starts_as_shortcut = name in RESNET18S and key.endswith("bn2")
        assert (norm.weight == (0 if starts_as_shortcut else 1)).all()
        assert (norm.bias == 0).all()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert (norm.running_mean == 0).all()
        assert (norm.running_var == 1).all()
        assert norm.num_batches_tracked == 0


@pytest.mark.parametrize("name", NAMES)
def test_channels_last_gives_the_same_features(name: str) -> None:
    backbone = build(name, last_relu=False)
    x = images(SIZES[name])
    expected = backbone(x)
    backbone = backbone.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    assert backbone.feature_map(x).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(backbone(x), expected, rtol=1e-4, atol=1e-4)


def backward_operations(output: Tensor) -> set[str]:
    names, pending = set(), [output.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None:
            names.add(node.name().removesuffix("0").removesuffix("1").removesuffix("Backward"))
            pending += [following for following, _ in node.next_functions]
    return names


def test_gradient_uses_only_operations_that_are_deterministic_on_cuda() -> None:
    backbone = build_backbone("resnet8", True, generator())
    assert backward_operations(backbone(images(32))) == {
        "Add",
        "Convolution",
        "Mean",
        "NativeBatchNorm",
        "Relu",
        "torch::autograd::AccumulateGrad",
    }


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(UserError, match=r"unknown backbone 'resnet20'.*resnet32.*resnet8"):
        build_backbone("resnet20", True, generator())
