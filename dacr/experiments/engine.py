"""How experiments are run: an engine takes orders and gives outcomes, in the order they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dacr.experiments.worker import LAST, Order, Outcome, Workplace, read_outcome, write_order

PAUSE = 0.2  # seconds between two looks at the workers
PATIENCE = 10.0  # seconds that a stopped worker has to end


class Engine(Protocol):
    """Closing the generator early stops what is running."""

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]: ...

    @property
    def jobs(self) -> int:
        """How many experiments run at a time."""
        ...


@dataclass(frozen=True)
class Project:
    """What every workplace of a sweep has in common."""

    root: Path
    revision: str
    cache: Path
    scratch: Path

    def place(self, clone: Path, name: str, variables: dict[str, str]) -> Workplace:
        return Workplace(
            clone=str(clone),
            source=str(self.root),
            revision=self.revision,
            cache=str(self.cache),
            shared=True,
            downloads=str(self.root / ".dacr/downloads"),
            log=str(self.scratch / "logs" / f"{name}.log"),
            environment=variables,
        )


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    clone: Path
    order: Order
    paper: Path
    complaints: Path
    """What the worker itself prints: nothing, if all is well."""


class LocalEngine:
    """``jobs`` processes on this machine, each in a clone under ``.dacr/paper/clones``."""

    def __init__(self, project: Project, jobs: int, lock: int) -> None:
        """``lock`` is the descriptor of the sweep's lock: a worker that outlives us holds it."""
        self.project, self._jobs, self._lock = project, jobs, lock

    @property
    def jobs(self) -> int:
        return self._jobs

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        waiting = deque(orders)
        clones = [self.project.scratch / f"clones/{i + 1}" for i in range(self._jobs)]
        free = list(clones)
        running: list[_Running] = []
        try:
            while waiting or running:
                while waiting and free:
                    clone = free.pop(0)
                    order = following(waiting, clone, set(clones) - {clone})
                    running.append(self._start(order, clone, clones.index(clone)))
                ended = [one for one in running if one.process.poll() is not None]
                for one in ended:
                    running.remove(one)
                    free.append(one.clone)
                    yield _outcome(one)
                if not ended:
                    time.sleep(PAUSE)
        finally:
            stop([one.process for one in running])

    def _start(self, order: Order, clone: Path, number: int) -> _Running:
        paper = self.project.scratch / "orders" / f"{order.name}.json"
        place = self.project.place(clone, order.name, gpu(number))
        paper.with_suffix(".outcome").unlink(missing_ok=True)
        write_order(paper, order, place)
        Path(place.log).parent.mkdir(parents=True, exist_ok=True)
        said = Path(f"{place.log}.worker")
        with open(said, "wb") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-m", "dacr.experiments.worker", str(paper), str(os.getpid())],
                cwd=self.project.root, stdin=subprocess.DEVNULL, stdout=complaints,
                stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(self._lock,),
            )  # fmt: skip
        return _Running(process, clone, order, paper, said)


def following(waiting: deque[Order], clone: Path, others: set[Path]) -> Order:
    """The experiment that was interrupted in this clone, else the next that was in no other."""
    own, taken = _last(clone), {_last(other) for other in others}
    chosen = next((order for order in waiting if order.name == own), None)
    chosen = chosen or next((order for order in waiting if order.name not in taken), waiting[0])
    waiting.remove(chosen)
    return chosen


def _last(clone: Path) -> str | None:
    try:
        return (clone / ".git" / LAST).read_text(encoding="utf-8")
    except OSError:
        return None


def gpu(number: int) -> dict[str, str]:
    """Workers share the machine's GPUs evenly, unless the user has chosen."""
    count = len(list(Path("/dev").glob("nvidia[0-9]*")))
    chosen = {"CUDA_VISIBLE_DEVICES", "DACR_DEVICE"} & os.environ.keys()
    return {"CUDA_VISIBLE_DEVICES": str(number % count)} if count and not chosen else {}


def _outcome(ended: _Running) -> Outcome:
    path = ended.paper.with_suffix(".outcome")
    complaint = ended.complaints.read_text(encoding="utf-8", errors="replace").strip()
    if path.exists():
        outcome = read_outcome(path)
    else:
        last = complaint.splitlines()[-1] if complaint else f"code {ended.process.returncode}"
        outcome = Outcome(ended.order.name, error=f"its process ended without a result: {last}")
    for file in (ended.paper, path, path.with_suffix(".bundle")):
        file.unlink(missing_ok=True)
    if not complaint:
        ended.complaints.unlink()
    return outcome


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the processes with everything that they started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            _signal_group(process.pid, number)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and any(_alive(process) for process in processes):
            time.sleep(PAUSE / 4)


def _alive(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    return _signal_group(process.pid, 0)


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
