"""Every random draw of the project comes from here.

A generator is named by what it is for: (seed, purpose, session, epoch …). Two draws with different
names are independent, and the order in which they are used does not matter. That is what makes a
resumed run equal to an undisturbed one. No global random state is ever used.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed for the draw called ``name`` in the experiment with ``seed``."""
    text = "/".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(seed: int, *name: str | int) -> torch.Generator:
    """A CPU generator, also on CUDA: both devices then see the same draws."""
    import torch  # takes a second to load, and stages that only write tables need none of it

    return torch.Generator().manual_seed(derive_seed(seed, *name))


def numpy_generator(seed: int, *name: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *name)))
