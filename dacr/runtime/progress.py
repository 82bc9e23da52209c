"""Progress of long work: a moving line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from dacr.runtime.live import live

TASK = TaskID(0)  # a moving line has one
SILENT = 5.0  # seconds between two plain lines


@dataclass(frozen=True)
class Unit:
    name: str
    size: float = 1


MEGABYTES = Unit("MB", 1e6)
IMAGES = Unit("images")


class _Counted:
    """Counts what is done of a total; ``_told`` is the text beside the bar of a moving line."""

    def __init__(self, name: str, total: int | None, done: int = 0) -> None:
        self._name, self._total = name, total
        self._before = self.done = done
        self._started = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[told]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._bar.add_task(name, total=total, completed=done, told="")

    @property
    def rate(self) -> float:
        """Per second, without what an earlier, interrupted run did."""
        return (self.done - self._before) / max(time.monotonic() - self._started, 1e-9)

    def _told(self) -> str:
        raise NotImplementedError

    def step(self, amount: int) -> None:
        self.done += amount
        if self._bar:
            self._bar.update(TASK, completed=self.done, total=self._total, told=self._told())

    def close(self) -> None:
        if self._bar:
            self._bar.stop()


class TrainingProgress(_Counted):
    """Session, phase, epoch, losses, images per second and the time that remains."""

    def __init__(self, session: int, sessions: int) -> None:
        super().__init__(f"session {session}/{sessions}", 0)
        self._live = live(session, sessions)

    def _told(self) -> str:
        return f"{self.rate:.0f} images/s"

    def plan(self, images: int) -> None:
        """A phase begins that will look at so many images."""
        self._total = (self._total or 0) + images

    def skip(self, images: int) -> None:
        """Count what an earlier, interrupted run already did."""
        self._before += images
        self.done += images
        self._started = time.monotonic()

    def epoch(self, phase: str, epoch: int, epochs: int, losses: Mapping[str, float]) -> None:
        terms = "  ".join(f"{name} {value:.3f}" for name, value in losses.items())
        line = f"{self._name}  {phase} epoch {epoch}/{epochs}  {terms}"
        if self._live:
            self._live.epoch(phase, epoch, epochs, losses, self.rate)
        if self._bar:
            self._bar.update(TASK, description=line)
        else:
            left = ((self._total or 0) - self.done) / max(self.rate, 1e-9)
            print(f"{line}  {self._told()}  {left:.0f} s left", flush=True)

    def close(self) -> None:
        super().close()
        if self._live:
            self._live.close()


class AmountProgress(_Counted):
    """How much has come, of how much if that is known, how fast, and the time that remains."""

    def __init__(self, name: str, total: int | None, unit: Unit, done: int = 0) -> None:
        super().__init__(name, total, done)
        self._unit, self._last_line = unit, self._started

    def _told(self) -> str:
        size, total = self._unit.size, self._total
        of = f" of {total / size:,.0f}" if total else ""
        return f"{self.done / size:,.0f}{of} {self._unit.name}, {self.rate / size:,.0f} per second"

    def step(self, amount: int) -> None:
        super().step(amount)
        now = time.monotonic()
        if not self._bar and now - self._last_line > SILENT:
            self._last_line = now
            print(f"{self._name}: {self._told()}", flush=True)
