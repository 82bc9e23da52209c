"""t-SNE of features in the plane (the paper's visualisation), with the same bits every time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dacr.rng import derive_seed

NEIGHBOURS_NEEDED = 4


def embed(features: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Coordinates [N, 2] of unit features [N, d]; all zero if there are too few to embed."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if len(features) < NEIGHBOURS_NEEDED:
        return np.zeros((len(features), 2))
    tsne = TSNE(
        perplexity=min(30.0, (len(features) - 1) / 3),
        init="random",
        random_state=derive_seed(seed, "t-SNE") % 2**32,
        max_iter=500,
        n_jobs=1,
    )
    # The sum over neighbours depends on how it is spread over threads.
    with threadpool_limits(1):
        return np.asarray(tsne.fit_transform(features), dtype=np.float64).round(4)
