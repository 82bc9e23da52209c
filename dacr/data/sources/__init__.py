"""Where images come from: one file per source, found by its file name.

A module of this package that defines ``SOURCE: Source`` is a source, named as its file. One that
defines ``NAMES`` and ``make_source(name, options)`` is a family of sources that take options;
their names begin with the file's. With ``ANY_NUMBER = True`` a benchmark may have several of it
under names of its own (``folder``, ``folder_2026``). Adding a source is adding a file; nothing is
imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from dacr.data.sources.base import Part, Sample, Source
from dacr.errors import UserError
from dacr.runtime.code import family_of, source_options

__all__ = ["Part", "Sample", "Source", "get_source"]


def _names(module: ModuleType) -> tuple[str, ...]:
    """The sources that a module defines; none for a module that only helps others."""
    name = module.__name__.rpartition(".")[2]
    return getattr(module, "NAMES", (name,) if hasattr(module, "SOURCE") else ())


def _defines(module: ModuleType, name: str) -> bool:
    return name in _names(module) or getattr(module, "ANY_NUMBER", False)


def get_source(name: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> Source:
    """The source of that name, with its part of ``data.source_options``."""
    modules = sorted(module.name for module in iter_modules(__path__))
    family = family_of(name, modules)
    module = import_module(f"{__name__}.{family}") if family else None
    if family is None or module is None or not _defines(module, name):
        every = (import_module(f"{__name__}.{module}") for module in modules)
        known = ", ".join(known for module in every for known in _names(module))
        raise UserError(f"there is no source called '{name}'; the known ones are: {known}")
    chosen = source_options(name, family, options or {})
    if hasattr(module, "make_source"):
        source: Source = module.make_source(name, chosen)
        return source
    if chosen:
        raise UserError(f"data.source_options.{name}: this source takes no options; remove it")
    return module.SOURCE  # type: ignore[no-any-return]
