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


@cache
def parameter_count(backbone: str) -> int:
    """Of the weights of one network, without batch statistics."""
    network = build_backbone(backbone, False, torch.Generator())
    return sum(parameter.numel() for parameter in network.parameters())


@cache
def weight_bytes(backbone: str) -> int:
    """Of the weights and batch statistics of one network."""
    tensors = build_backbone(backbone, False, torch.Generator()).state_dict().values()
    return sum(tensor.nbytes for tensor in tensors)


@cache
def activation_bytes(backbone: str, size: int) -> float:
    """What autograd keeps for the backward pass of one image in float32."""
    network = build_backbone(backbone, False, torch.Generator()).to("meta").train()
    own = {tensor.untyped_storage()._cdata for tensor in network.state_dict().values()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(torch.empty(2, 3, size, size, device="meta"))
    return sum(t.nbytes for storage, t in kept.items() if storage not in own) / 2
