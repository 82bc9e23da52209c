"""Benchmarks in a folder of the user's: fetched and built once, by any process, kept for all.

``<home>/<benchmark>-<key>/benchmark``   images.npy, index.parquet, benchmark.json
``<home>/<benchmark>-<key>/<split>-<key>``   schedule.csv and a table per session
``<home>/raw``   what was fetched; it may be deleted when a benchmark is built

The keys are hashes of what the content depends on: the section ``data``, the code that fetches and
builds, the mirror; the schedule. Another choice never takes the place of an older one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from dacr.data.benchmark import SUMMARY, open_summary, read_index
from dacr.data.download import MIRROR, mirror_folder
from dacr.data.sources.upstream import published_sources
from dacr.data.splits import write_schedule, write_session
from dacr.errors import UserError, naming
from dacr.runtime.code import identity
from dacr.scenarios.catalogue import Choice, use_carried_sources
from dacr.scenarios.composition import Composed
from dacr.scenarios.places import home_folder

BENCHMARK = "benchmark"


def scenario_folder(choice: Choice) -> Path:
    """The folder with the tables of ``choice``; its benchmark is beside it. Made where needed."""
    composed = choice.composed()
    choice.schedule(composed)  # a rule that cannot be satisfied is refused before any download
    place = home_folder() / f"{choice.benchmark}-{_benchmark_key(composed)}"
    with naming(place):
        place.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        if not (place / BENCHMARK / SUMMARY).is_file():
            _make_benchmark(composed, place)
        return _tables(choice, composed, place)


def built(composed: Composed) -> Path | None:
    """The benchmark's folder where it was built already."""
    place = home_folder() / f"{composed.data.benchmark}-{_benchmark_key(composed)}" / BENCHMARK
    return place if (place / SUMMARY).is_file() else None


def _benchmark_key(composed: Composed) -> str:
    """A hash of all that the packed images depend on."""
    data, mirror = composed.data, _mirror(composed)
    return _hash(
        data.model_dump_json(),
        composed.schedule.seed if data.per_pair or data.validation else None,
        mirror,
        identity("fetch", sources=data.sources),
        identity("build", sources=data.sources),
    )


def _mirror(composed: Composed) -> str | None:
    """The mirror, for sources that look there."""
    use_carried_sources()
    folder = mirror_folder()
    asked = any(name in published_sources() for name in composed.data.sources)
    return str(folder.resolve()) if folder and asked else None


def _hash(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:10]


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time makes a benchmark; the others wait and find it."""
    lock = FileLock(place / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _tell(f"another process is at work in {place}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _make_benchmark(composed: Composed, place: Path) -> None:
    """Fetch and build in a process of its own.

    The build decodes images in processes that import the main module again: a script of the user's
    that is not guarded by ``__main__`` would start over in each of them. A process of ours has no
    such script, and its settings (where downloads wait) reach nobody else.
    """
    _tell(f"{composed.data.benchmark} is fetched and built in {place}")
    settings = {
        "DVC_ROOT": str(home_folder()),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        MIRROR: _mirror(composed) or "",
    }
    with tempfile.TemporaryDirectory() as scratch:
        fault = Path(scratch, "fault")
        request = {
            "data": composed.data.model_dump(mode="json"),
            "seed": composed.schedule.seed,
            "home": str(home_folder()),
            "out": str(place / BENCHMARK),
            "fault": str(fault),
        }
        command = [sys.executable, "-P", "-m", "dacr.scenarios.making", json.dumps(request)]
        code = _relay(command, os.environ | settings)
        if code:
            told = fault.read_text(encoding="utf-8") if fault.exists() else f"exit code {code}"
            raise UserError(f"{composed.data.benchmark} could not be made: {told}")


def _relay(command: list[str], environment: dict[str, str]) -> int:
    """Run a command and repeat what it tells where this process's user sees it."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            for line in child.stdout or ():
                _tell(line.rstrip())
        except BaseException:  # ^C in a notebook reaches this process alone
            child.terminate()
            raise
    return child.returncode


def _tables(choice: Choice, composed: Composed, place: Path) -> Path:
    """The folder with the schedule and the sessions; written whole or not at all."""
    benchmark = place / BENCHMARK
    schedule = choice.schedule(composed, open_summary(benchmark / SUMMARY)["classes"])
    folder = place / f"{choice.split}-{_hash(schedule.to_csv(index=False))}"
    if folder.is_dir():
        return folder
    _, index = read_index(benchmark)
    with tempfile.TemporaryDirectory(dir=place) as draft:
        unfinished = Path(draft, "split")
        write_schedule(schedule, index, unfinished)
        for t in range(1, int(schedule["session"].max()) + 1):
            write_session(unfinished, f"{t:02d}", index)
        shutil.move(unfinished, folder)
    return folder


def _tell(line: str) -> None:
    print(f"dacr: {line}", file=sys.stderr, flush=True)
