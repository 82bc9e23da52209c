"""What the parts of a method share, and the teachers that they keep."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dacr.config import Params
from dacr.data.augmentation import Augmentation
from dacr.learning.session import Session
from dacr.learning.training import Batch, draw_view, extract
from dacr.rng import torch_generator

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Setting:
    """The parameters, the method's own options, and where and how images enter the network."""

    params: Params
    options: Any
    augmentation: Augmentation
    device: torch.device

    def generator(self, purpose: str, session: Session | int) -> torch.Generator:
        index = session if isinstance(session, int) else session.index
        return torch_generator(self.params.seed, purpose, index)

    def over_session(self, session: Session, function: Callable[[Tensor], Tensor]) -> Tensor:
        """``function`` of all images of D̃_t, without augmentation, in the order of D̃_t."""
        return extract(session.data, function, self.augmentation, self.device)

    def over_view(
        self, session: Session, view: int, function: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """``function`` of all images of D̃_t in one of their training views."""
        draw = draw_view(self.augmentation, session, self.params.seed, view)
        return extract(session.data, function, self.augmentation, self.device, draw)


class Teacher:
    """A frozen function of images: what an earlier network says about D̃_t.

    Where images have a fixed number of training views, it sees each of them once per session, and
    its answers are looked up. Not an ``nn.Module``: whoever keeps a teacher neither trains nor
    saves it.
    """

    def __init__(
        self, setting: Setting, session: Session, function: Callable[[Tensor], Tensor]
    ) -> None:
        self._setting, self._session, self._function = setting, session, function
        views = range(setting.augmentation.views or 0)
        # now, before training changes what the function may share
        self._on_views = [setting.over_view(session, view, function) for view in views]

    @cached_property
    def on_session(self) -> Tensor:
        """Its answers on all of D̃_t without augmentation, computed once per session."""
        if not self._setting.augmentation.random:
            return self._on_views[0]
        return self._setting.over_session(self._session, self._function)

    def __call__(self, batch: Batch) -> Tensor:
        """Its answers on a batch."""
        if self._on_views:
            return self._on_views[batch.view][batch.positions]
        with torch.no_grad():
            return self._function(batch.images)


def frozen_copy(module: M) -> M:
    """The module as it is now, in eval mode, never trained again."""
    return copy.deepcopy(module).requires_grad_(False).eval()
