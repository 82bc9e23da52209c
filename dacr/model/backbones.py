"""The feature extractor F with parameters θ: residual networks for the paper's benchmarks.

| name           | input   | stem                      | stages                   | feature |
|----------------|---------|---------------------------|--------------------------|---------|
| `resnet32`     | 32×32   | 3×3                       | 5 blocks of 16, 32, 64   | 64      |
| `resnet18_32`  | 32×32   | 3×3                       | 2 blocks of 64 … 512     | 512     |
| `resnet18_112` | 112×112 | 7×7 stride 2, max-pool    | 2 blocks of 64 … 512     | 512     |
| `resnet8`      | 32×32   | 3×3 stride 2              | 1 block of 16, 32, 64    | 64      |
| `resnet8_wide` | 32×32   | 3×3 stride 2              | 1 block of 24, 48, 96    | 96      |

`resnet32` is the modified 32-layer network of UCIR (iDigits), the ResNet-18s are DER's (iCIFAR-20,
iDomainNet), and `resnet8` is a thin one that a CPU trains in minutes; photographs need the wider
one. Any input size works.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dacr.errors import UserError


@dataclass(frozen=True)
class Architecture:
    """What distinguishes one residual network from another."""

    widths: tuple[int, ...]  # one stage each; all but the first halve the map
    blocks: int  # in each stage
    stem_kernel: int = 3
    stem_stride: int = 1
    max_pool: bool = False
    zero_init_residual: bool = False  # every block starts as its shortcut


ARCHITECTURES = {
    "resnet32": Architecture(widths=(16, 32, 64), blocks=5),
    "resnet18_32": Architecture(widths=(64, 128, 256, 512), blocks=2, zero_init_residual=True),
    "resnet18_112": Architecture(
        widths=(64, 128, 256, 512),
        blocks=2,
        stem_kernel=7,
        stem_stride=2,
        max_pool=True,
        zero_init_residual=True,
    ),
    "resnet8": Architecture(widths=(16, 32, 64), blocks=1, stem_stride=2),
    "resnet8_wide": Architecture(widths=(24, 48, 96), blocks=1, stem_stride=2),
}


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is 1×1-projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, last_relu: bool) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, 3, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(_convolution(inputs, outputs, 1, stride))
            self.shortcut.append(nn.BatchNorm2d(outputs))
        self.last_relu = last_relu

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)), inplace=True)))
        total: Tensor = residual + self.shortcut(x)
        return relu(total, inplace=True) if self.last_relu else total


class Backbone(nn.Module):
    """A residual network without classifier: image → feature of ``dim`` numbers.

    Without ``last_relu`` the ReLU after the very last addition is removed, so that features reach
    the whole sphere; the cosine and von Mises-Fisher heads need that.
    """

    def __init__(self, architecture: Architecture, last_relu: bool) -> None:
        super().__init__()
        width = architecture.widths[0]
        self.stem = nn.Sequential(
            _convolution(3, width, architecture.stem_kernel, architecture.stem_stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        if architecture.max_pool:
            self.stem.append(nn.MaxPool2d(kernel_size=3, stride=2, padding=1))
        shapes = [
            (outputs, 2 if stage > 0 and block == 0 else 1)
            for stage, outputs in enumerate(architecture.widths)
            for block in range(architecture.blocks)
        ]
        self.blocks = nn.Sequential()
        for position, (outputs, stride) in enumerate(shapes, start=1):
            is_last = position == len(shapes)
            self.blocks.append(BasicBlock(width, outputs, stride, last_relu or not is_last))
            width = outputs
        self.dim = width

    def feature_map(self, x: Tensor) -> Tensor:
        """The map that enters the average pool, [B, dim, h, w]."""
        features: Tensor = self.blocks(self.stem(x))
        return features

    @staticmethod
    def pool(feature_map: Tensor) -> Tensor:
        """Global average; a mean, as AdaptiveAvgPool2d's gradient is not deterministic on CUDA."""
        return feature_map.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.feature_map(x))


def _initialise(backbone: Backbone, zero_init_residual: bool, generator: torch.Generator) -> None:
    """He's fan-out initialisation; every draw comes from ``generator``."""
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(
                module.weight, mode="fan_out", nonlinearity="relu", generator=generator
            )
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    if zero_init_residual:
        for module in backbone.modules():
            if isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)


def build_backbone(name: str, last_relu: bool, generator: torch.Generator) -> Backbone:
    """The network called ``name``, on the CPU, with weights drawn from ``generator``."""
    if name not in ARCHITECTURES:
        raise UserError(f"unknown backbone {name!r}: choose one of {', '.join(ARCHITECTURES)}")
    architecture = ARCHITECTURES[name]
    # torch's layers draw from the global generator as they are made; on the meta device they cannot
    with torch.device("meta"):
        backbone = Backbone(architecture, last_relu)
    backbone.to_empty(device="cpu")
    _initialise(backbone, architecture.zero_init_residual, generator)
    return backbone
