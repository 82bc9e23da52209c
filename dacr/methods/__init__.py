"""One file per method: ``mine.py`` with ``METHOD = Parts(…)`` is the method ``mine``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import torch

from dacr.config import Params
from dacr.errors import UserError
from dacr.methods.parts.method import Method, Parts


def known_methods() -> list[str]:
    return sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))


def parts_of(name: str) -> Parts:
    """What the method called ``name`` is made of."""
    if name not in known_methods():
        raise UserError(f"unknown method {name!r}; known are {', '.join(known_methods())}")
    parts: Parts = import_module(f"dacr.methods.{name}").METHOD
    return parts


def make_method(params: Params, device: torch.device) -> Method:
    return parts_of(params.method).make(params, device)
