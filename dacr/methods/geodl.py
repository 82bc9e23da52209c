"""GeoDL: learning by distilling along geodesics (Simon et al., CVPR 2021).

UCIR's cosine classifier and its adaptive weight, with the less-forget constraint replaced by a
distillation along the geodesic between the subspaces of old and new features.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from dacr.learning.geodesic import Variant, geodesic_distillation
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.parts.method import Parts
from dacr.methods.parts.setting import Teacher, frozen_copy
from dacr.methods.ucir import CosineWithMargin, LessForget, LessForgetOptions
from dacr.model.super_feature import Features


class GeodesicOptions(LessForgetOptions):
    lambda_base: float = Field(default=10.0, ge=0)
    """Weight of the geodesic loss; grows with the number of old classes."""
    variant: Variant = "distance"
    """The squared distance of the authors' training loop, or their other loss, a cosine."""


class Geodesic(LessForget):
    """Features move along the geodesic from the subspace that they spanned in session t−1."""

    Options = GeodesicOptions

    def remember(self, session: Session) -> None:
        """One pass of the old network gives its features and the quadrants of its maps."""
        network = frozen_copy(self.features)

        def both(images: Tensor) -> Tensor:
            seen = network.represent(images)
            return torch.cat([seen.feature, quadrants(seen.feature_map)], 1)

        self.old = Teacher(self.setting, session, both)

    def forward(self, batch: Batch) -> Features:
        seen = super().forward(batch)
        if seen.old is None:
            return seen
        feature, self.old_quadrants = seen.old.tensor_split([self.features.dim], dim=1)
        return seen._replace(old=feature)

    def losses(self, features: Features, batch: Batch) -> Losses:
        if features.old is None:
            return {}
        loss = geodesic_distillation(
            quadrants(features.feature_map).float(),
            self.old_quadrants.float(),
            self.setting.options.variant,
        )
        return {"geodesic": self.adaptive_lambda * loss}


def quadrants(feature_map: Tensor) -> Tensor:
    """The map pooled to 2×2 and flattened, [B, 4·C].

    As products with pooling matrices: the gradient of adaptive pooling is not deterministic on
    CUDA.
    """
    rows, columns = (_halves(size, feature_map) for size in feature_map.shape[2:])
    return (rows @ feature_map @ columns.T).flatten(1)


def _halves(size: int, like: Tensor) -> Tensor:
    """[2, size]: averages of the first and of the second half (overlapping if size is odd)."""
    half = (size + 1) // 2
    matrix = like.new_zeros(2, size)
    matrix[0, :half] = matrix[1, size - half :] = 1 / half
    return matrix


METHOD = Parts(Geodesic, CosineWithMargin)
