"""The feature v = F(x): one extractor, or DER's super-feature of one extractor per session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dacr.model.backbones import Backbone


class Features(NamedTuple):
    """What the network says about a batch before any classifier."""

    feature: Tensor
    """v, [B, dim]."""
    feature_map: Tensor
    """The newest extractor's map before its average pool, [B, C, h, w]."""
    old: Tensor | None = None
    """The feature of the model of session t−1, where a teacher was kept."""


class SuperFeature(nn.Module):
    """u(x) = [F_1(x), …, F_n(x)]; all but the last extractor are frozen, batch statistics too."""

    bf16 = False
    """Run the extractors in bfloat16; what leaves them, and everything after, is float32."""
    compiled = False
    """Run the extractors through ``torch.compile``."""

    def __init__(self, extractors: Iterable[Backbone]) -> None:
        super().__init__()
        self.extractors = nn.ModuleList(extractors)
        self._freeze_old()

    @property
    def newest(self) -> Backbone:
        extractor = self.extractors[-1]
        assert isinstance(extractor, Backbone)
        return extractor

    @property
    def dim(self) -> int:
        return self.newest.dim * len(self.extractors)

    def add(self, extractor: Backbone) -> None:
        """Freeze what is there and put ``extractor`` behind it."""
        self.extractors.append(extractor)
        self._freeze_old()

    def _freeze_old(self) -> None:
        for old in self.extractors[:-1]:
            old.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for old in self.extractors[:-1]:
            old.eval()
        return self

    def frozen(self, images: Tensor) -> Tensor:
        """[F_1(x), …, F_{n−1}(x)], an empty block if there is one extractor only."""
        with torch.no_grad():
            parts = [self._pooled(old, images) for old in self.extractors[:-1]]
        return torch.cat(parts, 1) if parts else images.new_zeros(len(images), 0)

    def newest_feature(self, images: Tensor) -> Tensor:
        """F_n(x), the block of the extractor that is trained."""
        return self._pooled(self.newest, images)

    def represent(self, images: Tensor, frozen: Tensor | None = None) -> Features:
        """u(x) and the newest map; ``frozen`` hands over the frozen part where it is known."""
        feature_map = self._map(self.newest, images)
        newest = self.newest.pool(feature_map)
        if len(self.extractors) == 1:
            return Features(newest, feature_map)
        before = self.frozen(images) if frozen is None else frozen
        return Features(torch.cat([before, newest], 1), feature_map)

    def forward(self, images: Tensor) -> Tensor:
        return self.represent(images).feature

    def _pooled(self, extractor: nn.Module, images: Tensor) -> Tensor:
        assert isinstance(extractor, Backbone)
        return extractor.pool(self._map(extractor, images))

    def _map(self, extractor: Backbone, images: Tensor) -> Tensor:
        run = compiled_map(extractor) if self.compiled else extractor.feature_map
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bf16):
            feature_map = run(images)
        return feature_map.float()


_COMPILED: WeakKeyDictionary[Backbone, Callable[[Tensor], Tensor]] = WeakKeyDictionary()


def compiled_map(extractor: Backbone) -> Callable[[Tensor], Tensor]:
    """``extractor.feature_map`` by ``torch.compile``, kept beside the module: copies have none."""
    if extractor not in _COMPILED:
        _COMPILED[extractor] = torch.compile(extractor.feature_map)
    return _COMPILED[extractor]
