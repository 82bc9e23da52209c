"""The small mistakes: every change of one place in the syntax tree of a module.

Left alone are annotations, decorators, strings and messages, ``assert`` and ``zip(strict=True)``:
they say what is true and compute nothing.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
"""Operators whose operands are swapped."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("sin", "cos"),
    ("log", "exp"),
    ("softmax", "log_softmax"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
)
CALLED = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])} | {"sorted": "list"}
METHODS = {"mean": "sum", "sum": "mean"}
UNWRAPPED = {"abs", "abs_", "clamp", "clamp_", "clone", "copy", "detach", "round", "sqrt"}
"""Methods whose call is left out: ``x.clamp(min=0)`` becomes ``x``."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "bases", "ctx", "op", "ops"}
_SKIPPED_NODES = (ast.JoinedStr, ast.Assert, ast.Raise, ast.Import, ast.ImportFrom)
_CONTEXT = 48  # characters of a statement that are shown beside its change


@dataclass
class Mutant:
    """One change; ``owner`` is the outermost function that holds it, "" outside of functions."""

    owner: str
    statement: ast.stmt
    line: int
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST
    in_body: bool
    """Whether it is in the body of the owner, and not in a default of its arguments."""
    change: str = ""

    def lines(self) -> range:
        """Where the statement stands: of one with a block, its head."""
        block = getattr(self.statement, "body", None)
        end = block[0].lineno - 1 if block else self.statement.end_lineno or self.line
        return range(self.statement.lineno, max(end, self.statement.lineno) + 1)

    def swap(self) -> None:
        """Put the change into the tree; a second time, take it out again."""
        held = getattr(self.parent, self.field)
        if self.index is None:
            setattr(self.parent, self.field, self.new)
            self.new = held
        else:
            held[self.index], self.new = self.new, held[self.index]


def mutants_of(tree: ast.Module) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    found = list(_Walk().block(tree, "body", "", tree.body, set()))
    for mutant in found:
        before = _head(mutant.statement)
        mutant.swap()
        # A statement that is removed is no longer where the mutant points to.
        removed = isinstance(mutant.new, ast.stmt) and mutant.new is mutant.statement
        mutant.change = _marked(before, "" if removed else _head(mutant.statement))
        mutant.swap()
    return found


class _Walk:
    """Goes down the tree with what a change needs to know of the place."""

    def block(
        self, parent: ast.AST, field: str, owner: str, body: list[ast.stmt], bound: set[str]
    ) -> Iterator[Mutant]:
        for index, statement in enumerate(body):
            if isinstance(statement, _SKIPPED_NODES) and not isinstance(statement, ast.Raise):
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            is_function = isinstance(parent, FUNCTIONS)
            if owner and self._removable(statement, bound, is_function and index == len(body) - 1):
                # It stays in the scope, so that names mean what they meant.
                never = ast.If(ast.Constant(False), [copy.copy(statement)], [])
                ast.fix_missing_locations(ast.copy_location(never, statement))
                yield self._mutant(owner, statement, parent, field, index, never, True)
            yield from self.statement(statement, owner, bound)

    @staticmethod
    def _removable(statement: ast.stmt, bound: set[str], is_last: bool) -> bool:
        """Whether the code without it could still run: a name's first value is always needed."""
        match statement:
            case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
                return True
            case ast.Return():
                return not is_last
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name in bound
            case ast.Assign() | ast.AnnAssign(value=ast.expr()):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                return all(isinstance(own, (ast.Attribute, ast.Subscript)) for own in targets)
        return False

    def statement(self, statement: ast.stmt, owner: str, bound: set[str]) -> Iterator[Mutant]:
        if isinstance(statement, ast.If) and not owner:
            return  # TYPE_CHECKING
        if isinstance(statement, _SKIPPED_NODES):
            return
        if isinstance(statement, ast.ClassDef):
            for own in statement.body:
                yield from self._member(statement, own, owner)
            return
        if isinstance(statement, FUNCTIONS):
            yield from self._function(statement, owner, statement.name)
            return
        if isinstance(statement, ast.Return) and not _is_none(statement.value):
            assert statement.value is not None
            none = ast.copy_location(ast.Constant(None), statement.value)
            yield self._mutant(owner, statement, statement, "value", None, none, True)
        if isinstance(statement, ast.AugAssign) and type(statement.op) in BINARY:
            other = BINARY[type(statement.op)]()
            yield self._mutant(owner, statement, statement, "op", None, other, True)
        yield from self.inside(statement, statement, owner, bool(owner))
        bound |= _stored(statement)
        arms = (*getattr(statement, "handlers", []), *getattr(statement, "cases", []))
        for holder in (statement, *arms):
            for field in ("body", "orelse", "finalbody"):
                yield from self.block(holder, field, owner, getattr(holder, field, []), bound)

    def _member(self, parent: ast.ClassDef, own: ast.stmt, owner: str) -> Iterator[Mutant]:
        if isinstance(own, FUNCTIONS):
            yield from self._function(own, owner, f"{parent.name}.{own.name}")
        elif isinstance(own, (ast.Assign, ast.AnnAssign)):
            for mutant in self.inside(own, own, owner, False):
                mutant.owner = f"{parent.name}."
                yield mutant

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, name: str
    ) -> Iterator[Mutant]:
        outermost = owner or name
        yield from self.inside(node, node.args, outermost, bool(owner))
        names = {
            own.arg for own in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        }
        yield from self.block(node, "body", outermost, node.body, names)

    def inside(
        self, statement: ast.stmt, node: ast.AST, owner: str, in_body: bool
    ) -> Iterator[Mutant]:
        """The changes of expressions under ``node``; blocks are left to their statements."""
        for field, index, child in _children(node):
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case, *_SKIPPED_NODES)):
                continue
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            for new in replacements(child, node, field):
                ast.copy_location(new, child)
                ast.fix_missing_locations(new)
                yield self._mutant(owner, statement, node, field, index, new, in_body)
            yield from self.inside(statement, child, owner, in_body)

    @staticmethod
    def _mutant(
        owner: str,
        statement: ast.stmt,
        parent: ast.AST,
        field: str,
        index: int | None,
        new: ast.AST,
        in_body: bool,
    ) -> Mutant:
        line = getattr(new, "lineno", statement.lineno)
        return Mutant(owner, statement, line, parent, field, index, new, in_body)


def _stored(node: ast.AST) -> set[str]:
    """The names that a statement sets, without those of its block."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    inner = (own for own in ast.iter_child_nodes(node) if not isinstance(own, ast.stmt))
    return set().union(*map(_stored, inner))


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED_FIELDS:
            continue
        if isinstance(value, list):
            yield from ((field, k, own) for k, own in enumerate(value) if isinstance(own, ast.AST))
        elif isinstance(value, ast.AST):
            yield field, None, value


def replacements(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """What may stand by mistake in place of ``node``."""
    yield from _operations(node)
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
            axis = isinstance(parent, ast.keyword) and parent.arg in ("dim", "axis")
            if not axis:  # −1 is often the same axis as 1
                yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Call():
            yield from _calls(node)
        case ast.Slice(lower=lower, upper=upper, step=step):
            if lower is not None and not isinstance(lower, ast.Constant):
                yield ast.Slice(_one_more(lower), upper, step)
            if upper is not None and not isinstance(upper, ast.Constant):
                yield ast.Slice(lower, _one_more(upper), step)
    if _is_condition(parent, field) and not isinstance(node, (ast.Compare, ast.UnaryOp)):
        yield ast.UnaryOp(ast.Not(), node)  # type: ignore[arg-type]


def _operations(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(left=left, op=operator, right=right):
            if type(operator) in BINARY:
                yield ast.BinOp(left, BINARY[type(operator)](), right)
            if isinstance(operator, ORDERED):
                yield ast.BinOp(right, operator, left)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for k, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield ast.Compare(left, [*ops[:k], other(), *ops[k + 1 :]], comparators)
        case ast.BoolOp(op=connective, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(connective, ast.And) else ast.And(), values)


def _is_none(value: ast.expr | None) -> bool:
    return value is None or (isinstance(value, ast.Constant) and value.value is None)


def _is_condition(parent: ast.AST, field: str) -> bool:
    return field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs")


def _one_more(bound: ast.expr) -> ast.expr:
    return ast.BinOp(bound, ast.Add(), ast.Constant(1))


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    for k, keyword in enumerate(node.keywords):
        if keyword.arg not in (None, "strict"):
            yield ast.Call(node.func, node.args, node.keywords[:k] + node.keywords[k + 1 :])
    match node.func:
        case ast.Name(id=name) if name in CALLED:
            yield ast.Call(ast.Name(CALLED[name], ast.Load()), node.args, node.keywords)
        case ast.Attribute(value=value, attr=name):
            if other := CALLED.get(name) or METHODS.get(name):
                yield ast.Call(ast.Attribute(value, other, ast.Load()), node.args, node.keywords)
            if name in UNWRAPPED:
                yield value
            if name == "normalize":
                yield node.args[0]


# -- what a change is called ----------------------------------------------------------------------


def _head(statement: ast.stmt) -> str:
    """A statement in one line, without its block."""
    shown = copy.copy(statement)
    if getattr(shown, "body", None) or isinstance(shown, ast.Match):
        for field in ("body", "orelse", "finalbody", "handlers", "decorator_list", "cases"):
            if hasattr(shown, field):
                setattr(shown, field, [])
    return " ".join(ast.unparse(shown).split())


def _marked(before: str, after: str) -> str:
    """``before`` with the part that differs: "return a {< → <=} b"."""
    if not after:
        return f"{{{before} → }}"
    a, b = (re.findall(r"\w+|\s+|[<>=!*/]+|[^\w\s]", text) for text in (before, after))
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    was, becomes = ("".join(own[start : len(own) - end]) for own in (a, b))
    left, right = "".join(a[:start]), "".join(a[len(a) - end :])
    left = left if len(left) <= _CONTEXT else "…" + left[-_CONTEXT:]
    right = right if len(right) <= _CONTEXT else right[:_CONTEXT] + "…"
    return f"{left}{{{was} → {becomes}}}{right}"
