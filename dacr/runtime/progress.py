"""Live progress of what takes long: a moving line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class TrainingProgress:
    """Tells session, phase, epoch, losses, images a second and the time that remains."""

    def __init__(self, session: int, sessions: int) -> None:
        self._title = f"session {session}/{sessions}"
        self._total = 0
        self._done = 0
        self._worked = 0
        self._started = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rate]:.0f} images/s"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=0, rate=0.0)

    @property
    def done(self) -> int:
        """The images trained on, those before an interruption among them."""
        return self._done

    @property
    def rate(self) -> float:
        return self._worked / max(time.monotonic() - self._started, 1e-9)

    def plan(self, images: int) -> None:
        """A phase begins that will look at so many images."""
        self._total += images
        if self._bar:
            self._bar.update(self._task, total=self._total)

    def skip(self, images: int) -> None:
        """Count what an earlier, interrupted run already did."""
        self._done += images
        self._started = time.monotonic()

    def step(self, images: int) -> None:
        self._done += images
        self._worked += images
        if self._bar:
            self._bar.update(self._task, completed=self._done, rate=self.rate)

    def epoch(self, phase: str, epoch: int, epochs: int, losses: Mapping[str, float]) -> None:
        terms = "  ".join(f"{name} {value:.3f}" for name, value in losses.items())
        line = f"{self._title}  {phase} epoch {epoch}/{epochs}  {terms}"
        if self._bar:
            self._bar.update(self._task, description=line)
        else:
            remaining = (self._total - self._done) / max(self.rate, 1e-9)
            print(f"{line}  {self.rate:.0f} images/s  {remaining:.0f} s left", flush=True)

    def close(self) -> None:
        if self._bar:
            self._bar.stop()


@dataclass(frozen=True)
class Unit:
    """What an amount is told in."""

    name: str
    size: float = 1


MEGABYTES = Unit("MB", 1e6)
IMAGES = Unit("images")
SILENT = 5.0  # seconds between two plain lines


class AmountProgress:
    """How much of something has come, of how much if that is known, how fast and how long yet."""

    def __init__(self, name: str, total: int | None, unit: Unit, done: int = 0) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._first = self._done = done
        self._started = self._told = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[amount]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(name, total=total, completed=done, amount="")

    def _amount(self, now: float) -> str:
        size, of = (
            self._unit.size,
            f" of {self._total / self._unit.size:,.0f}" if self._total else "",
        )
        rate = (self._done - self._first) / size / max(now - self._started, 1e-9)
        return f"{self._done / size:,.0f}{of} {self._unit.name}, {rate:,.0f} a second"

    def step(self, amount: int) -> None:
        self._done += amount
        now = time.monotonic()
        if self._bar:
            self._bar.update(self._task, completed=self._done, amount=self._amount(now))
        elif now - self._told > SILENT:
            self._told = now
            print(f"{self._name}: {self._amount(now)}", flush=True)

    def close(self) -> None:
        if self._bar:
            self._bar.stop()
