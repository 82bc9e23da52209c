"""Where a run lies: what passes between the stages of a session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BENCHMARK = Path("data/benchmark")
SPLIT = Path("data/split")
RUNS = Path("runs")


def session_path(key: str) -> Path:
    """The images of session ``key``: its own to train on, everything seen so far to test."""
    return SPLIT / f"session-{key}.csv"


@dataclass(frozen=True)
class RunFolder:
    """``runs/<tt>``: all that session t leaves."""

    root: Path

    @property
    def state(self) -> Path:
        """What session t+1 starts from: the model, the classes seen, the memory."""
        return self.root / "state"

    @property
    def results(self) -> Path:
        """Predictions, embedding and history of all sessions up to this one."""
        return self.root / "results"

    @property
    def learned(self) -> Path:
        """The model between the stages learn and consolidate."""
        return self.root / "learned"


def run_folder(key: str) -> RunFolder:
    return RunFolder(RUNS / key)
