"""What a network costs, counted and not timed."""

from __future__ import annotations

from functools import cache

import torch

from dacr.model.backbones import build_backbone


@cache
def forward_flops(backbone: str, size: int) -> int:
    """FLOPs of one image through the network, counted by torch, without computing anything."""
    from torch.utils.flop_counter import FlopCounterMode

    network = build_backbone(backbone, False, torch.Generator()).to("meta").eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.empty(1, 3, size, size, device="meta"))
    return int(counter.get_total_flops())


def training_flops(backbone: str, size: int, images: int, extractors: int) -> int:
    """An estimate of what training on ``images`` took.

    A step on an image counts three forward passes of the extractor that is trained (forward, and
    twice as much backward) and one of each frozen one. Heads, losses, the E-step, the optimiser
    and the teachers of distilling methods are not counted.
    """
    return images * forward_flops(backbone, size) * (3 + max(extractors - 1, 0))
