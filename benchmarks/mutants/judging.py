"""The tests, collected once in a process that is forked for each mutant.

A child becomes the mutant and runs the tests that execute the changed line, the fastest first,
until one fails. A test that takes far longer than on the true code counts as failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Any

import hypothesis
import pytest
from _pytest.tmpdir import tmppath_result_key

from benchmarks.mutants.changes import Mutant
from benchmarks.mutants.loaded import Loaded

SLOW = 10.0
"""Seconds: a longer test is left out. It trains a whole model; the quick ones should fail."""
GRACE = 5.0
"""Seconds that every test has on a mutant, besides ten times what it took.

All are seconds of the processor, so that other work on the machine changes nothing."""
ASLEEP = 10
"""Times as many seconds of the clock end a test that does nothing at all."""
_TOO_LONG = (signal.SIGPROF, signal.SIGALRM)


@dataclass
class Covered:
    """Which tests execute which lines, and for how long."""

    seconds: list[float]
    failed: list[int]
    lines: list[list[tuple[str, int]]]

    def by_line(self) -> dict[tuple[str, int], set[int]]:
        tests: dict[tuple[str, int], set[int]] = defaultdict(set)
        for test, lines in enumerate(self.lines):
            for file, line in lines:
                tests[file, line].add(test)
        return tests


def with_tests(
    tests: Iterable[str], files: Iterable[str], grace: float, work: Callable[[Tests], None]
) -> None:
    """Collect ``tests``, see which lines of ``files`` they execute, and hand them to ``work``."""
    hypothesis.settings.register_profile(
        "mutants",
        database=None,
        derandomize=True,
        deadline=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # a failure is enough
    )
    hypothesis.settings.load_profile("mutants")

    class Plugin:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            if session.testsfailed:
                raise pytest.UsageError("the tests cannot be collected")
            work(Tests(session, [*files], grace))
            return True

    with tempfile.TemporaryDirectory() as folder:
        options = ["-s", "-q", "--no-header", "--tb=short", "--assert=plain"]
        options += ["-p", "no:cacheprovider", "-p", "no:xdist"]
        options += [f"--basetemp={folder}/tests", "-o", "tmp_path_retention_policy=none"]
        code = pytest.main([*options, *tests], plugins=[Plugin()])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"the tests could not be run ({code!r})")


class Tests:
    """Those that were collected, with what they execute."""

    def __init__(self, session: pytest.Session, files: list[str], grace: float) -> None:
        self.items, self.grace = session.items, grace
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self.covered = self._record(files)
        if self.covered.failed:
            names = ", ".join(self.items[k].nodeid for k in self.covered.failed)
            raise pytest.UsageError(f"these tests fail on the true code: {names}")
        self.by_line = self.covered.by_line()

    def _record(self, files: list[str]) -> Covered:
        """Run every test once, in a child, so that no cache here remembers the true code."""
        read, write = os.pipe()
        if not (pid := os.fork()):
            os.close(read)
            _say_nothing()
            before = {*sys.modules}
            with os.fdopen(write, "w") as file:
                traced = self._trace({*files})
                json.dump((*traced, [name for name in sys.modules if name not in before]), file)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            text = file.read()
        os.waitpid(pid, 0)
        if not text:
            raise pytest.UsageError("the tests ended the process that ran them")
        seconds, failed, lines, imported = json.loads(text)
        for name in imported:  # here once, and not in every child
            with contextlib.suppress(Exception):
                import_module(name)
        return Covered(seconds, failed, [[(str(a), int(b)) for a, b in own] for own in lines])

    def _trace(self, files: set[str]) -> tuple[list[float], list[int], list[Any]]:
        seen: set[tuple[str, int]] = set()

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename not in files:
                return None
            name = frame.f_code.co_filename
            seen.add((name, frame.f_lineno))

            def line(frame: FrameType, event: str, argument: Any) -> Any:
                seen.add((name, frame.f_lineno))
                return line

            return line

        seconds: list[float] = []
        failed: list[int] = []
        lines: list[Any] = []
        for k, following in enumerate([*self.items[1:], None]):
            seen.clear()
            started = time.process_time()
            threading.settrace(call)
            sys.settrace(call)
            good = _passes(self.items[k], following)
            sys.settrace(None)
            seconds.append(time.process_time() - started)
            if not good:
                failed.append(k)
            lines.append(sorted(seen))
        return seconds, failed, lines

    def of(self, loaded: Loaded, mutant: Mutant) -> list[int]:
        """The tests to run on a mutant, the fastest first."""
        lines: Iterable[int] = mutant.lines()
        if not mutant.in_body:  # executed on import: whatever uses the module may show it
            lines = (line for file, line in self.by_line if file == loaded.file)
        chosen = set().union(*(self.by_line.get((loaded.file, line), ()) for line in lines))
        seconds = self.covered.seconds
        return sorted((k for k in chosen if seconds[k] <= SLOW), key=seconds.__getitem__)

    def start(self, loaded: Loaded, mutant: Mutant) -> int:
        """A child that ends with 0 if every test passes on the mutant."""
        tests = self.of(loaded, mutant)
        if pid := os.fork():
            return pid
        code = 1
        try:
            _say_nothing()
            loaded.become(mutant)
            code = int(not all(self._in_time(k) for k in tests))
        finally:
            os._exit(code)

    def _in_time(self, k: int) -> bool:
        limit = self.grace + 10 * self.covered.seconds[k]
        for number in _TOO_LONG:
            signal.signal(number, signal.SIG_DFL)  # it ends the process
        signal.setitimer(signal.ITIMER_PROF, limit)
        signal.setitimer(signal.ITIMER_REAL, ASLEEP * limit)
        return _passes(self.items[k], None)


def verdicts(
    tests: Tests, mutants: Iterable[tuple[Loaded, Mutant]], jobs: int
) -> Iterator[tuple[Loaded, Mutant, str]]:
    """What becomes of each mutant: "killed", "timed out" or "survived"."""
    waiting = iter(mutants)
    running: dict[int, tuple[Loaded, Mutant]] = {}
    more = True
    while running or more:
        while more and len(running) < jobs:
            following = next(waiting, None)
            if more := following is not None:
                assert following is not None
                running[tests.start(*following)] = following
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                words = {0: "survived"} | {-number: "timed out" for number in _TOO_LONG}
                yield *running.pop(pid), words.get(code, "killed")
        time.sleep(0.002)


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test; without reports, which read much source to show a failure."""
    hooks = item.ihook
    item.stash[tmppath_result_key] = {"call": True}  # its folder need not be kept
    try:
        hooks.pytest_runtest_setup(item=item)
        hooks.pytest_runtest_call(item=item)
    except pytest.skip.Exception:
        pass
    except BaseException:
        return False
    try:
        hooks.pytest_runtest_teardown(item=item, nextitem=following)
    except BaseException:
        return False
    return True


def _say_nothing() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nothing, output)
