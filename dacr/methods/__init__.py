"""One file a method. A file ``mine.py`` with ``METHOD = Mine`` is the method ``mine``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch

from dacr.config import Params
from dacr.errors import UserError
from dacr.methods.base import Method

OURS = "_dacr"
"""The suffix of a host method that takes 'ours': ``der_dacr`` is DER w/ ours."""


def known_methods() -> list[str]:
    files = sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))
    return [name for name in files if name not in ("base", "ours")]


def method_class(name: str) -> type[Method]:
    """The class of the method called ``name``."""
    host_name = name.removesuffix(OURS)
    if host_name not in known_methods():
        raise UserError(f"unknown method {name!r}; known are {', '.join(known_methods())}")
    host: type[Method] = import_module(f"dacr.methods.{host_name}").METHOD
    if not name.endswith(OURS):
        return host
    with_ours: Callable[[type[Method]], type[Method]] = import_module("dacr.methods.ours").with_ours
    return with_ours(host)


def make_method(params: Params, device: torch.device) -> Method:
    return method_class(params.method)(params, device)
