"""Mutation testing itself: which mistakes are made, and which of them are found."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mutants.changes import mutants_of

ROOT = Path(__file__).parents[1]

MADE_UP = '''
"""A module of which the tests find some mistakes."""

LIMIT = 3


def clipped(x: int, low: int = 0) -> int:
    """Between ``low`` and ``LIMIT``."""
    if x < low:
        return low
    return min(x, LIMIT)


def rest(a: int, b: int) -> int:
    return a - b


def steps(n: int) -> int:
    taken = 0
    while n > 0:
        n -= 2
        taken += 1
    return taken


class Scale:
    factor = 2

    @property
    def doubled(self) -> int:
        return self.factor * 5


def never_called() -> bool:
    return True
'''

TESTS = """
from made_up import LIMIT, Scale, clipped, rest, steps


def test_values() -> None:
    assert [clipped(x) for x in (-1, 1, 5)] == [0, 1, 3]
    assert LIMIT == 3
    assert rest(0, 0) == 0
    assert [steps(n) for n in (-1, 0, 1, 2, 3)] == [0, 0, 1, 1, 2]
    assert Scale().doubled == 10
"""

SURVIVORS = {
    "clipped: if x {< → <=} low:",
    "rest: return a {- → +} b",
    "rest: return {a - b → b - a}",
    "never_called: return {True → None}",
    "never_called: return {True → False}",
}


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    (tmp_path / "made_up.py").write_text(MADE_UP, encoding="utf-8")
    (tmp_path / "test_made_up.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
    return tmp_path


def run(folder: Path) -> tuple[int, list[str]]:
    options = ["made_up.py", "--tests", "test_made_up.py", "--equivalent", "list.yaml"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutants", *options, "--grace", "0.5"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def survivors(lines: list[str]) -> set[str]:
    return {own.split(" ", 1)[1] for own in lines if own.startswith("made_up.py:")}


def list_of(*changes: str) -> str:
    """The list of equivalent mutants of ``clipped``."""
    entries = "".join(f'      - "{change}"\n' for change in changes)
    return f"made_up.py:\n  clipped:\n    - because: equal there\n      changes:\n{entries}"


def test_mistakes_that_no_test_sees_are_named(made_up: Path) -> None:
    code, lines = run(made_up)
    assert survivors(lines) == SURVIVORS
    assert code == 1
    counts = next(line for line in lines if line.startswith("all")).split()
    total, killed, timed_out, equivalent, survived = map(int, counts[1:6])
    assert (equivalent, survived) == (0, 5)
    assert timed_out >= 2  # n is never less: without its step, or with it the other way
    assert killed == total - timed_out - survived
    assert made_up.joinpath("made_up.py").read_text(encoding="utf-8") == MADE_UP


def test_with_better_tests_and_a_reason_for_the_rest_nothing_survives(made_up: Path) -> None:
    better = TESTS.replace("import LIMIT", "import never_called, LIMIT")
    better += "    assert rest(5, 3) == 2\n    assert never_called() is True\n"
    (made_up / "test_made_up.py").write_text(better, encoding="utf-8")
    (made_up / "list.yaml").write_text(list_of("if x {< → <=} low:"), encoding="utf-8")
    # The list does not know lines.
    (made_up / "made_up.py").write_text("\n\n" + MADE_UP, encoding="utf-8")
    code, lines = run(made_up)
    assert survivors(lines) == set()
    assert code == 0, lines


def test_an_entry_of_the_list_that_is_killed_or_gone_is_stale(made_up: Path) -> None:
    stale = ("if x {< → >=} low:", "if x {< → <=} high:")
    (made_up / "list.yaml").write_text(list_of("if x {< → <=} low:", *stale), encoding="utf-8")
    _, lines = run(made_up)
    assert survivors(lines) == SURVIVORS - {"clipped: if x {< → <=} low:"}
    assert [own for own in lines if own.startswith("stale")] == [
        f"stale in the list, made_up.py clipped: {change}" for change in stale
    ]


def test_tests_that_fail_on_the_true_code_are_refused(made_up: Path) -> None:
    (made_up / "test_made_up.py").write_text(TESTS.replace("== 10", "== 11"), encoding="utf-8")
    code, lines = run(made_up)
    assert code != 0
    assert any("fail on the true code: test_made_up.py::test_values" in line for line in lines)


@pytest.mark.parametrize(
    ("statement", "changes"),
    [
        ("return x - 1", ["{x - 1 → None}", "x {- → +} 1", "{x - 1 → 1 - x}", "x - {1 → 2}"]),
        ("return -x", ["{-x → None}", "{- → }x"]),
        ("return not x", ["{not x → None}", "{not  → }x"]),
        ("return x.sum(dim=-1)", ["{x.sum(dim=-1) → None}", "x.sum({dim=-1 → })"]),
        ("return x[1:n]", ["{x[1:n] → None}", "x[1:n{ →  + 1}]", "x[{1 → 2}:n]"]),
        ("return x and n", ["{x and n → None}", "x {and → or} n"]),
        ("return 0 < x <= n", ["0 {< → <=} x <= n", "0 {< → >=} x <= n", "{0 → 1} < x <= n"]),
        ("return min(x)", ["{min(x) → None}", "{min → max}(x)"]),
        ("return x if n else 0", ["x if { → not }n else 0", "x if n else {0 → 1}"]),
        ("return x.clamp(min=0)", ["{x.clamp(min=0) → None}", "x.clamp(min={0 → 1})"]),
    ],
)
def test_the_mistakes_of_an_expression(statement: str, changes: list[str]) -> None:
    """At least these, and each of them once."""
    tree = ast.parse(f"def f(x, n):\n    {statement}\n")
    found = [mutant.change for mutant in mutants_of(tree)]
    assert {f"return {change}" for change in changes} <= set(found)
    assert len(found) == len(set(found))


def test_what_computes_nothing_is_left_alone() -> None:
    tree = ast.parse(
        "def f(x: tuple[int, 2], n):\n"
        "    assert n > 0, 'n has to be positive'\n"
        "    zip(x, n, strict=True)\n"
        "    raise ValueError(f'{n + 1} is wrong')\n"
    )
    assert [mutant.change for mutant in mutants_of(tree)] == [
        "{zip(x, n, strict=True) → }",
        "{raise ValueError(f'{n + 1} is wrong') → }",
    ]


def test_statements_are_removed_where_the_rest_can_run() -> None:
    tree = ast.parse(
        "def f(x):\n"
        '    """Not this."""\n'
        "    first = 1.5\n"
        "    first = x\n"
        "    x.y = first\n"
        "    if x:\n"
        "        raise ValueError(7)\n"
        "    for own in x:\n"
        "        inner = own\n"
        "        continue\n"
        "    return x\n"
    )
    removed = [m.change for m in mutants_of(tree) if m.change.endswith(" → }")]
    assert removed == [
        "{first = x → }",
        "{x.y = first → }",
        "{raise ValueError(7) → }",
        "{continue → }",
    ]


def test_a_change_is_taken_out_again() -> None:
    tree = ast.parse(MADE_UP)
    before = ast.dump(tree)
    mutants = mutants_of(tree)
    assert ast.dump(tree) == before
    texts = []
    for mutant in mutants:
        mutant.swap()
        texts.append(ast.dump(tree))
        mutant.swap()
    assert ast.dump(tree) == before
    assert len(set(texts)) == len(texts)
    assert before not in texts
