"""Fine-tuning: the model of the last session, trained on D_t alone. The lower bound.

It keeps no exemplar, so nothing counters forgetting: a method with a memory must do better.
"""

import torch

from dacr.config import Params
from dacr.errors import UserError
from dacr.methods.parts.method import Method, Parts


class NoMemory(Method):
    """M_t is empty in every session."""

    def __init__(self, parts: Parts, params: Params, device: torch.device) -> None:
        super().__init__(parts, params, device)
        if params.memory.size:
            raise UserError(
                f"{params.method} keeps no exemplar, so memory.size must be 0 (it is "
                f"{params.memory.size}); method=replay is the same with a memory"
            )


METHOD = Parts(method=NoMemory)
