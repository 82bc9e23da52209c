"""Try every mutant of the core, or of some modules: ``python -m benchmarks.mutants losses heads``.

It prints a table and ends with 1 if a mutant survives that ``equivalent.yaml`` does not name, or if
an entry there is stale: killed, or of code that has changed.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

from benchmarks.mutants.judging import GRACE, Tests, verdicts, with_tests
from benchmarks.mutants.loaded import Loaded
from tests.quick import CORE as TESTS

CORE = (
    "dacr/learning/losses.py",
    "dacr/learning/assignment.py",
    "dacr/learning/expansion.py",
    "dacr/learning/reduction.py",
    "dacr/learning/memory.py",
    "dacr/learning/prior.py",
    "dacr/learning/geodesic.py",
    "dacr/model/heads.py",
    "dacr/data/splits.py",
    "dacr/data/shares.py",
    "dacr/data/augmentation.py",
    "dacr/evaluation/metrics.py",
    "dacr/evaluation/continual.py",
)
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")

Key = tuple[str, str, str]
"""Module, function and change."""


def read_equivalent(path: Path) -> dict[Key, str]:
    """The mutants that no test can kill, with the reason."""
    found: dict[Key, str] = {}
    listed = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    for module, functions in (listed or {}).items():
        for function, groups in functions.items():
            for group in groups:
                for change in group["changes"]:
                    found[module, function, change] = group["because"]
    return found


def try_all(
    loaded: list[Loaded], tests: Tests, jobs: int, equivalent: dict[Key, str]
) -> Iterator[str]:
    """The lines of the report."""
    every = [(own, mutant) for own in loaded for mutant in own.mutants]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    survived: set[Key] = set()
    for own, mutant, verdict in verdicts(tests, every, jobs):
        key = (own.path.as_posix(), mutant.owner, mutant.change)
        if verdict == "survived":
            survived.add(key)
        known = verdict == "survived" and key in equivalent
        counts[key[0]]["equivalent" if known else verdict] += 1
        if verdict == "survived" and not known:
            yield f"{key[0]}:{mutant.line} {mutant.owner or 'module'}: {mutant.change}"
    modules = {own.path.as_posix() for own in loaded}
    stale = [key for key in equivalent if key[0] in modules and key not in survived]
    for module, function, change in stale:
        yield f"stale in the list, {module} {function or 'module'}: {change}"
    yield from table(counts)
    if stale or any(count["survived"] for count in counts.values()):
        yield "FAILED"


def table(counts: dict[str, Counter[str]]) -> Iterator[str]:
    columns = ("killed", "timed out", "equivalent", "survived")
    yield f"{'':34}{'mutants':>9}" + "".join(f"{name:>12}" for name in columns) + f"{'found':>9}"
    total: Counter[str] = sum(counts.values(), Counter())
    for name, count in [*counts.items(), ("all", total)]:
        possible = count.total() - count["equivalent"]
        share = 100 * (count["killed"] + count["timed out"]) / max(possible, 1)
        cells = "".join(f"{count[column]:>12}" for column in columns)
        yield f"{name:34}{count.total():>9}{cells}{share:>8.1f}%"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", help="names of core modules, or files")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="files of tests")
    parser.add_argument("--equivalent", type=Path, default=EQUIVALENT, help="the list")
    parser.add_argument("--jobs", type=int, default=1, choices=(1, 2), help="processes")
    parser.add_argument("--grace", type=float, default=GRACE, help="seconds more for each test")
    arguments = parser.parse_args()
    known = {Path(own).stem: own for own in CORE}
    paths = [Path(known.get(own, own)) for own in arguments.modules or CORE]
    sys.path.insert(0, "")
    started = time.perf_counter()
    lines: list[str] = []

    def work(tests: Tests) -> None:
        print(f"{len(tests.items)} tests, {time.perf_counter() - started:.0f} s", flush=True)
        for line in try_all(loaded, tests, arguments.jobs, read_equivalent(arguments.equivalent)):
            lines.append(line)
            print(line, flush=True)
        print(f"{time.perf_counter() - started:.0f} s", flush=True)

    loaded = [Loaded(path) for path in paths]
    with_tests(arguments.tests, [own.file for own in loaded], arguments.grace, work)
    sys.exit("FAILED" in lines)


if __name__ == "__main__":
    main()
