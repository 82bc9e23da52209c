"""How experiments are run: an engine takes orders and gives outcomes, in the order they end."""

from __future__ import annotations

import os
import subprocess
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dacr.experiments.node import no_result, start_worker, stop
from dacr.experiments.worker import JOB, OUTCOME, Job, Order, Outcome, Workplace, interrupted

PAUSE = 0.2  # seconds between two looks at the workers


class Engine(Protocol):
    jobs: int
    """How many experiments run at a time."""

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        """Closing the generator early stops what is running."""
        ...


@dataclass(frozen=True)
class Project:
    """What all experiments of a sweep have in common."""

    root: Path
    revision: str
    cache: Path
    scratch: Path

    def log(self, experiment: str) -> Path:
        return self.scratch / "logs" / f"{experiment}.log"


class LocalEngine:
    """``jobs`` processes on this machine, in clones under ``.dacr/paper/clones``."""

    def __init__(self, project: Project, jobs: int, lock: int) -> None:
        """``lock`` is the descriptor of the sweep's lock: a worker that outlives us holds it."""
        self.project, self.jobs, self._lock = project, jobs, lock

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        begun = interrupted(self.project.scratch)
        # Those first that were interrupted: another would take the clone with their checkpoints.
        waiting = deque(sorted(orders, key=lambda order: order.name not in begun.values()))
        running: dict[int, tuple[subprocess.Popen[bytes], Job]] = {}
        try:
            while waiting or running:
                for slot in range(self.jobs):
                    if waiting and slot not in running:
                        running[slot] = self._start(waiting.popleft(), slot)
                ended = [slot for slot, (own, _) in running.items() if own.poll() is not None]
                for slot in ended:
                    yield _outcome(*running.pop(slot))
                if not ended:
                    time.sleep(PAUSE)
        finally:
            stop([process for process, _ in running.values()])

    def _start(self, order: Order, slot: int) -> tuple[subprocess.Popen[bytes], Job]:
        project = self.project
        place = Workplace(
            base=project.scratch,
            source=str(project.root),
            revision=project.revision,
            cache=project.cache,
            shared=True,
            downloads=project.root / ".dacr/downloads",
            log=project.log(order.name),
            outcome=project.scratch / f"{order.name}.outcome",
            environment=gpu(slot),
        )
        place.outcome.unlink(missing_ok=True)
        job = Job(order, place)
        words = JOB.dump_json(job).decode()
        return start_worker(words, project.root, place.log, (self._lock,)), job


def _outcome(process: subprocess.Popen[bytes], job: Job) -> Outcome:
    file, log = job.place.outcome, job.place.log
    if not file.exists():
        said = log.read_text("utf-8", "replace")
        return Outcome(**no_result(job.order.name, said, process.returncode))
    outcome = OUTCOME.validate_json(file.read_bytes())
    file.unlink()
    return outcome


def gpu(number: int) -> dict[str, str]:
    """Workers share the GPUs evenly: all of the machine, or those that the user has chosen."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    own = gpus_here() if visible is None else [name for name in visible.split(",") if name]
    if not own or "DACR_DEVICE" in os.environ:
        return {}
    return {"CUDA_VISIBLE_DEVICES": own[number % len(own)]}


def gpus_here() -> list[str]:
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
