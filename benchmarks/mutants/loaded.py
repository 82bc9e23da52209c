"""A module that is loaded, and how one mutant of it takes its place.

The objects stay, so that everybody who imported them has the mutant: a function gets other code, a
constant is set anew wherever it was imported to.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from benchmarks.mutants.changes import Mutant, mutants_of


class Loaded:
    """A module and all its mutants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module = import_module(".".join(path.with_suffix("").parts))
        self.file = str(self.module.__file__)
        self.tree = ast.parse(Path(self.file).read_text(encoding="utf-8"))
        self.mutants = mutants_of(self.tree)

    def become(self, mutant: Mutant) -> None:
        """Turn the loaded module into the mutant, for the rest of this process."""
        mutant.swap()
        code = compile(self.tree, self.file, "exec")
        functions = dict(_functions(self.module))
        if mutant.in_body:
            functions[mutant.owner].__code__ = _named(code, mutant.owner)
            return
        scratch = ModuleType(self.module.__name__)
        scratch.__file__ = self.file
        exec(code, scratch.__dict__)
        for name, function in _functions(scratch):
            functions[name].__defaults__ = function.__defaults__
            functions[name].__kwdefaults__ = function.__kwdefaults__
        targets: list[ast.expr] = getattr(mutant.statement, "targets", [])
        if isinstance(mutant.statement, ast.AnnAssign):
            targets = [mutant.statement.target]
        for name in (own.id for own in targets if isinstance(own, ast.Name)):
            if mutant.owner:
                kind = mutant.owner.removesuffix(".")
                setattr(getattr(self.module, kind), name, getattr(scratch, kind).__dict__[name])
            else:
                _replace_everywhere(name, getattr(self.module, name), getattr(scratch, name))


def _replace_everywhere(name: str, old: Any, new: Any) -> None:
    for module in list(sys.modules.values()):
        own = getattr(module, "__dict__", {})
        if name in own and own[name] is old:
            own[name] = new


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that a module defines, by qualified name, without decorators."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else [value]
        for member in members:
            function = _plain(member)
            if function and function.__module__ == module.__name__:
                yield function.__qualname__, function


def _plain(member: Any) -> FunctionType | None:
    if isinstance(member, property):
        member = member.fget
    member = inspect.unwrap(getattr(member, "__func__", member))
    return member if isinstance(member, FunctionType) else None


def _named(code: CodeType, name: str) -> CodeType:
    """The code of the function with this qualified name, in that of its module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                return constant
            if name.startswith(f"{constant.co_qualname}."):
                return _named(constant, name)
    raise LookupError(name)
