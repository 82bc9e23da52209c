"""The tests of ``make check``: those of the mathematical core, and fast ones of what changed.

``python -m tests.quick`` prints their files. What changed is what git would commit; a test file is
of it if it changed itself or imports a changed module. Files that take long are left to
``make test``.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = tuple(
    f"tests/test_{name}.py"
    for name in (
        *("losses", "candidates", "expansion", "reduction", "memory", "prior", "geodesic"),
        *("heads", "splits", "augmentation", "metrics", "continual", "core_devices"),
    )
)
"""They are also what the mutants of the core are tried on."""
LONG = tuple(
    f"tests/test_{name}.py"
    for name in (
        *("paper_ray", "unkillable", "exact", "sharing", "verify", "pretend_gpu", "methods"),
        *("code", "pipeline", "scenarios", "paper_sweep", "wheel", "cpu_benchmarks", "living_data"),
        *("config", "predict", "work", "paper", "documented", "fault_rounds", "adding_a_method"),
        *("doctor", "scenario_peers"),
    )
)
"""Ten seconds and more of processor time: left to ``make test``."""
FIRST = LONG + tuple(
    f"tests/test_{name}.py"
    for name in (
        *("portable", "sources", "faults", "hostile_files", "torchvision_compat", "training"),
        *("mutants", "report", "download"),
    )
)
"""The order of the longest: one that came last would be waited for alone."""


def chosen(changed: Iterable[str], tests: Iterable[str], root: Path = ROOT) -> list[str]:
    """Of the files ``tests`` those to run once the files ``changed`` have changed."""
    edited = set(changed)
    of_it = {name for name in tests if name in edited or imported(root / name) & edited}
    return sorted({*CORE} | (of_it - {*LONG}))


def imported(file: Path) -> set[str]:
    """The files of the modules that a file imports, wherever in it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {name for node in ast.walk(tree) for name in _modules(node)}
    paths = {name.replace(".", "/") for name in names}
    return {f"{path}{end}" for path in paths for end in (".py", "/__init__.py")}


def _modules(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (own.name for own in names)
        case ast.ImportFrom(module=str(module), names=names):
            yield module
            yield from (f"{module}.{own.name}" for own in names)


def main() -> None:
    def git(*words: str) -> list[str]:
        command = ["git", *words]
        return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()

    changed = git("diff", "--name-only", "HEAD")
    changed += git("ls-files", "--others", "--exclude-standard")
    tests = (path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/test_*.py"))
    print(*chosen(changed, tests))


if __name__ == "__main__":
    main()
