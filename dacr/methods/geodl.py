"""GeoDL: learning by distilling along geodesics (Simon et al., CVPR 2021).

UCIR's cosine classifier and its adaptive weight, with the less-forget constraint replaced by a
distillation along the geodesic between the subspaces of old and new features.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from dacr.learning.geodesic import Variant, geodesic_distillation
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.base import frozen_copy
from dacr.methods.ucir import Ucir, UcirOptions
from dacr.model.super_feature import Representation


class GeoDLOptions(UcirOptions):
    margin_weight: float = Field(default=0.0, ge=0)
    variant: Variant = "cosine"


class GeoDL(Ucir):
    Options = GeoDLOptions

    def begin_representation(self, session: Session) -> None:
        super().begin_representation(session)
        if session.n_old:
            teacher = frozen_copy(self.features.newest)
            self.old_quadrants = self.once_a_session(
                session, lambda images: quadrants(teacher.feature_map(images))
            )

    def representation_losses(self, representation: Representation, batch: Batch) -> Losses:
        if self.old_features is None:
            return {}
        loss = geodesic_distillation(
            quadrants(representation.feature_map).float(),
            self.old_quadrants(batch).float(),
            self.options.variant,
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


METHOD = GeoDL
