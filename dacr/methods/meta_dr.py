"""Meta-DR: domain randomisation and meta-learning (Volpi et al., CVPR 2021), with a memory.

The network is trained on randomly manipulated images. A meta-objective also asks that a gradient
step towards a made-up domain T̃ neither spoils the current one T (recall) nor fails to help on T̃
(adapt): with θ̂ = θ − α ∇L_T̃(θ), minimise L_T(θ) + β L_T(θ̂) + γ L_T̃(θ̂). No code was published; the
manipulations are those of the first author's earlier work.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from dacr.config import Params, Section
from dacr.learning.randomisation import Randomisation
from dacr.learning.session import Session
from dacr.learning.training import Batch, Losses
from dacr.methods.parts.method import Method, Parts
from dacr.rng import torch_generator

Parameters = dict[str, Tensor]


class MetaDROptions(Section):
    alpha: float = Field(default=0.1, gt=0)
    """The length of the step towards T̃."""
    beta: float = Field(default=1.0, ge=0)
    """The weight of the recall term."""
    gamma: float = Field(default=1.0, ge=0)
    """The weight of the adapt term."""
    chain: int = Field(default=3, ge=1)
    """How many manipulations an image undergoes."""
    second_order: bool = False
    """Differentiate through the step; otherwise ∂θ̂/∂θ counts as the identity."""


class MetaDR(Method):
    losses_per_step = 4  # L_T(θ), L_T̃(θ) for the step to θ̂, L_T(θ̂), L_T̃(θ̂)

    def __init__(self, parts: Parts, params: Params, device: torch.device) -> None:
        super().__init__(parts, params, device)
        augmentation = params.augmentation
        self.randomise = Randomisation(self.options.chain, augmentation.mean, augmentation.std)

    def start_epoch(self, session: Session, epoch: int) -> None:
        """An epoch's draws are its own, so that a resumed run meets the same ones."""
        super().start_epoch(session, epoch)
        self.draws = torch_generator(self.params.seed, "randomise", session.index, epoch)

    def losses(self, batch: Batch) -> Losses:
        current = replace(batch, images=self.randomise.each(batch.images, self.draws))
        other = replace(batch, images=self.randomise.domain(batch.images, self.draws))
        losses = super().losses(current)
        adapted = self.step_towards(other)
        losses["recall"] = self.options.beta * self.loss_at(adapted, current)
        losses["adapt"] = self.options.gamma * self.loss_at(adapted, other)
        return losses

    def step_towards(self, domain: Batch) -> Parameters:
        """θ̂ = θ − α ∇L(θ) on ``domain``."""
        theta: Parameters = {n: p for n, p in self.named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(
            self.loss_at(theta, domain),
            list(theta.values()),
            create_graph=self.options.second_order,
        )
        return {
            name: parameter - self.options.alpha * gradient
            for (name, parameter), gradient in zip(theta.items(), gradients, strict=True)
        }

    def loss_at(self, theta: Parameters, batch: Batch) -> Tensor:
        """L(θ) of a batch.

        Batch normalisation updates copies of its running statistics here: those of the network
        come from the term L_T(θ) alone, not from made-up domains or from parameters it never has.
        """
        scratch = {name: buffer.clone() for name, buffer in self.named_buffers()}
        loss: Tensor = functional_call(self, {**scratch, **theta}, (batch,))
        return loss

    def forward(self, batch: Batch) -> Tensor:
        """What ``functional_call`` evaluates: the loss that replay would have."""
        return torch.stack(list(super().losses(batch).values())).sum()


METHOD = Parts(method=MetaDR, own_options=MetaDROptions)
