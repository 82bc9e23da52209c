"""Which code does a stage run? One answer for DVC, resumed trainings and published results.

The imports of ``stages/<stage>.py`` are followed through ``dacr`` and ``stages`` by reading the
source; no module is loaded. Two things are looked up by name and not imported: the method and the
sources of an experiment. Their files are added.

A module counts by its source without comments, docstrings and blank lines. The text is cut by
position, so that the hash is the same under every Python: ``ast`` and ``tokenize`` only say where
comments and strings are.

The answer is checked whenever a stage ends: a module that was loaded and is not in the answer is
an error (``unexpected_modules``). An import that is hidden from the static reading cannot stay
unnoticed.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from dacr.errors import UserError

STAGES = (
    "fetch",
    "build",
    "schedule",
    "split",
    "start",
    "learn",
    "consolidate",
    "evaluate",
    "measure",
    "budget",
    "report",
)
PACKAGES = ("dacr", "stages")
PACKAGE = "dacr/__init__.py"
ROOT = Path(__file__).parents[2]
"""The folder of the packages that are running."""

METHOD_STAGES = ("start", "learn", "consolidate", "budget")
"""The stages that run the method of ``params.yaml``, or count what it does."""
SOURCE_STAGES = ("fetch", "build")
"""The stages that run sources of images."""

AFTER_TRAINING = frozenset({"consolidate", "exemplars", "memory_components", "remember"})
HOOKS_NOT_CALLED = dict.fromkeys(("start", "learn", "budget"), AFTER_TRAINING)
"""Functions that a stage never calls: what is imported inside them is not followed.

So an edit of the mixture reduction, which only ``consolidate`` runs, trains no session again.
"""

PLUMBING = frozenset(
    {
        "dacr",  # what `import dacr` offers to users of the library
        "dacr.config",  # reads parameters, whose values DVC compares itself
        "dacr.errors",  # messages
        "dacr.model.flops",  # a note beside the outs
        "dacr.runtime.code",  # this module
        "dacr.runtime.git",  # facts for notes
        "dacr.runtime.hashes",  # checksums in notes
        "dacr.runtime.live",  # what others see while a stage runs
        "dacr.runtime.made",  # a note of what a stage ran with, which no stage reads
        "dacr.runtime.progress",  # what is shown while a stage runs
        "dacr.runtime.provenance",  # notes beside the outs
        "dacr.runtime.stage",  # how a stage ends
    }
)
"""Modules that run in a stage and cannot change a number in its outs.

What they import counts as usual.
"""


def modules_of(
    stage: str, method: str = "", sources: Iterable[str] = (), root: Traversable = ROOT
) -> list[str]:
    """The files, relative to ``root``, of all modules that can change the outs of ``stage``."""
    followed = _follow(stage, method, tuple(sources), root)
    return sorted(file for module, file in followed.items() if module not in PLUMBING)


def identity(
    stage: str, method: str = "", sources: Iterable[str] = (), root: Traversable = ROOT
) -> str:
    """One hash of all code that can change the outs of ``stage``."""
    return _digest(_hashes(modules_of(stage, method, sources, root), root))


def describe(
    stage: str, method: str = "", sources: Iterable[str] = (), root: Traversable = ROOT
) -> dict[str, Any]:
    """What stands in ``runs/code``: the identity of ``stage``, and each module with its hash."""
    hashes = _hashes(modules_of(stage, method, sources, root), root)
    return {"identity": _digest(hashes), "modules": hashes}


DERIVED = ("measure", "budget", "report")
"""The stages that only derive from the results of others: they are made again in seconds."""


def experiment_identity(method: str, sources: Iterable[str], root: Traversable = ROOT) -> str:
    """One hash of all code that can change what an experiment trains, predicts and scores."""
    names = tuple(sources)
    stages = [stage for stage in STAGES if stage not in DERIVED]
    files = {file for stage in stages for file in modules_of(stage, method, names, root)}
    return _digest(_hashes(files, root))


def unexpected_modules(
    stage: str, method: str = "", sources: Iterable[str] = (), root: Path = ROOT
) -> list[str]:
    """The files of loaded modules of the project that are not in the answer for ``stage``."""
    known = _follow(stage, method, tuple(sources), root).values()
    expected = {(root / file).resolve() for file in known}
    return sorted(str(file) for file in _loaded_files(sys.modules.values()) if file not in expected)


def source_module(name: str, root: Traversable = ROOT) -> str | None:
    """The module of dacr/data/sources that defines the source ``name``."""
    folder = root / "dacr/data/sources"
    return family_of(name, [file.name.removesuffix(".py") for file in folder.iterdir()])


def family_of(name: str, modules: Iterable[str]) -> str | None:
    """The module that is called as a source, or as the longest beginning of its name: a family."""
    return max((m for m in modules if f"{name}_".startswith(f"{m}_")), key=len, default=None)


def source_options(
    name: str, family: str | None, options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The options of a source: under its own name or, for all of a family, under the family's."""
    return dict(options.get(name) or options.get(family or name) or {})


def essence(text: str) -> str:
    """Python source without comments, docstrings, blank lines and trailing white space.

    A docstring is any string that is a statement of its own. Lines that end inside another string
    stay as they are: their white space is content.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    inside = _cut_comments(lines)
    for string in _docstrings(text):
        first, last = string.lineno - 1, (string.end_lineno or string.lineno) - 1
        # ast counts columns in bytes of UTF-8.
        before = lines[first].encode()[: string.col_offset].decode()
        after = lines[last].encode()[string.end_col_offset :].decode()
        lines[first : last + 1] = [before + after, *[""] * (last - first)]
        inside -= set(range(first, last))
    kept: list[str] = []
    for number, line in enumerate(lines):
        if number in inside:
            kept.append(line)
        elif line.strip() or (kept and kept[-1].endswith("\\")):  # a blank line ends a continuation
            kept.append(line.rstrip())
    return "\n".join(kept)


@cache
def essence_hash(text: str) -> str:
    return hashlib.sha256(essence(text).encode()).hexdigest()


def _hashes(files: Iterable[str], root: Traversable) -> dict[str, str]:
    """The package itself counts as the empty module that it is for a stage."""
    hashes = {file: essence_hash(_text(root, file)) for file in sorted(files)}
    return {PACKAGE: essence_hash("")} | hashes


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


# -- cutting ----------------------------------------------------------------------------------


def _cut_comments(lines: list[str]) -> set[int]:
    """Cut the comments off ``lines``; return the numbers of lines that end inside a string.

    Only rows of tokens are used, which all Pythons agree on: since 3.12 an f-string is many tokens.
    """
    inside: set[int] = set()
    opened: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        kind, row = tokenize.tok_name[token.type], token.start[0] - 1
        if kind == "COMMENT":
            lines[row] = lines[row].rstrip().removesuffix(token.string.rstrip())
        elif kind == "STRING":
            inside |= set(range(row, token.end[0] - 1))
        elif kind.endswith("STRING_START"):  # of an f-string, or of a t-string
            opened.append(row)
        elif kind.endswith("STRING_END"):
            inside |= set(range(opened.pop(), token.end[0] - 1))
    return inside


def _docstrings(text: str) -> list[ast.expr]:
    """All strings that are statements of their own, the last one first."""
    found = [
        node.value
        for node in _statements(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True)


HOLDS_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
"""No expression holds a statement, and most nodes are expressions."""


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """What a node holds directly that is a statement or holds some."""
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, HOLDS_STATEMENTS))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that stand in a node, however deep."""
    for child in _within(node):
        yield child
        yield from _statements(child)


# -- following imports ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Import:
    """Modules that a statement may import, and the functions that it is written in."""

    modules: tuple[str, ...]
    functions: frozenset[str]


def _follow(stage: str, method: str, sources: tuple[str, ...], root: Traversable) -> dict[str, str]:
    """Every module that ``stage`` may load, with its file."""
    if stage not in STAGES:
        raise ValueError(f"there is no stage {stage!r}")
    not_called = HOOKS_NOT_CALLED.get(stage, frozenset())
    waiting = [f"stages.{stage}", *_looked_up(stage, method, sources, root)]
    found: dict[str, str] = {}
    asked: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in asked:
            continue
        asked.add(module)
        file = _file_of(module, root)
        if file is None:
            continue
        found[module] = file
        waiting += [parent for parent in [module.rpartition(".")[0]] if parent]
        package = module if file.endswith("/__init__.py") else module.rpartition(".")[0]
        for statement in _imports(_text(root, file), package):
            if not statement.functions & not_called:
                waiting += statement.modules
    return found


def _looked_up(
    stage: str, method: str, sources: tuple[str, ...], root: Traversable
) -> Iterator[str]:
    """The modules that a stage finds by a name in ``params.yaml``."""
    if stage in METHOD_STAGES:
        module = f"dacr.methods.{method}"
        if not method or _file_of(module, root) is None:
            raise UserError(f"unknown method {method!r}; there is no dacr/methods/{method}.py")
        yield module
    if stage in SOURCE_STAGES:
        for name in sources:
            file = source_module(name, root)
            if file is None:
                raise UserError(f"there is no source called '{name}' in dacr/data/sources")
            yield f"dacr.data.sources.{file}"


def _file_of(module: str, root: Traversable) -> str | None:
    """The file of a module of the project; None for other modules, and for what is no module."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    path = module.replace(".", "/")
    for file in (f"{path}.py", f"{path}/__init__.py"):
        if (root / file).is_file():
            return file
    return None


@cache
def _imports(text: str, package: str) -> tuple[_Import, ...]:
    return tuple(_imports_in(ast.parse(text), package, frozenset()))


def _imports_in(node: ast.AST, package: str, functions: frozenset[str]) -> Iterator[_Import]:
    match node:
        case ast.Import(names=names):
            yield _Import(tuple(alias.name for alias in names), functions)
        case ast.ImportFrom(module=module, names=names, level=level):
            above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            base = ".".join([*above, *([module] if module else [])])
            submodules = (f"{base}.{alias.name}" for alias in names)
            yield _Import((base, *submodules), functions)
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
            node = ast.Module(otherwise, [])
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            functions |= {name}
    for child in _within(node):
        yield from _imports_in(child, package, functions)


def _text(root: Traversable, file: str) -> str:
    try:
        return (root / file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 ({error.reason}); save it as UTF-8") from None


def _loaded_files(modules: Iterable[ModuleType]) -> set[Path]:
    own = [module for module in modules if module.__name__.partition(".")[0] in PACKAGES]
    return {Path(module.__file__).resolve() for module in own if module.__file__}
