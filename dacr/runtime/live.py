"""A training as others see it while it runs: DVCLive's files, and TensorBoard's if it is wanted.

``dvclive/metrics.json`` holds where the training is and its latest losses; ``dvclive/plots`` has a
curve per loss. Their layout is DVCLive's, so that ``dvc exp show``, ``dvc plots`` and the VS Code
extension read them. They are no outs of a stage and git ignores them: a run that is watched has
the same bytes as one that is not. ``dvclive/dvc.yaml``, which tells DVC of them, is there only as
long as a session trains: a file that one revision lacks would be an error in every table of DVC.

Only a stage that DVC runs writes them (``DVC_STAGE``). ``DACR_LIVE=0`` turns them off.
``DACR_TENSORBOARD=<folder>`` writes events for TensorBoard, too (extra ``tensorboard``).
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from dacr.errors import UserError

FOLDER = Path("dvclive")
DVC_FILE = """\
# Written while a session trains, and removed when it ends.
metrics: [metrics.json]
plots:
- plots/metrics: {x: step}
"""
COLUMNS = ("session", "phase", "epoch", "step")
Row = dict[str, Any]


class Live:
    """Writes one row per epoch; what is there of earlier sessions of the same run stays."""

    def __init__(self, session: int, sessions: int, folder: Path = FOLDER) -> None:
        self._session, self._sessions, self._folder = session, sessions, folder
        self._run = _run_name()
        self._rows: list[Row] = []
        self._begun = False
        self._events: Any = None

    def epoch(
        self,
        phase: str,
        epoch: int,
        epochs: int,
        losses: Mapping[str, float],
        images_per_second: float,
    ) -> None:
        """An epoch has ended. A disk that is full or read-only does not stop the training."""
        with suppress(OSError):
            self._begin()
            self._drop(phase, epoch)
            step = len(self._rows) + 1
            place = {"session": self._session, "phase": phase, "epoch": epoch, "step": step}
            self._rows.append(place | dict(losses))
            self._write(place | {"sessions": self._sessions, "epochs": epochs}, images_per_second)
            self._write_events(step, losses)

    def close(self) -> None:
        with suppress(OSError):
            (self._folder / "dvc.yaml").unlink(missing_ok=True)
        if self._events is not None:
            self._events.close()

    def _begin(self) -> None:
        """Take over the rows of this run's earlier sessions, and of an interrupted training."""
        if self._begun:
            return
        self._begun = True
        try:
            known = json.loads((self._folder / "rows.json").read_text(encoding="utf-8"))
            if known["run"] == self._run:
                self._rows = [row for row in known["rows"] if row["session"] <= self._session]
        except (OSError, ValueError, KeyError, TypeError):
            self._rows = []

    def _drop(self, phase: str, epoch: int) -> None:
        """What an earlier attempt wrote of this epoch and of all that follows it."""
        own = [(row["session"], row["phase"], row["epoch"]) for row in self._rows]
        here = (self._session, phase, epoch)
        before = (self._session, phase, epoch - 1)
        if here in own:
            del self._rows[own.index(here) :]
        elif epoch > 1 and before in own:
            del self._rows[own.index(before) + 1 :]

    def _write(self, place: Row, images_per_second: float) -> None:
        latest = {k: v for k, v in self._rows[-1].items() if k not in COLUMNS}
        told = place | {"loss": latest, "images_per_second": round(images_per_second, 1)}
        plots = self._folder / "plots" / "metrics" / "loss"
        plots.mkdir(parents=True, exist_ok=True)
        terms = list(dict.fromkeys(k for row in self._rows for k in row if k not in COLUMNS))
        for old in plots.glob("*.tsv"):
            if old.stem not in terms:
                old.unlink()
        for term in terms:
            rows = [[row["step"], row[term]] for row in self._rows if term in row]
            _replace(plots / f"{term}.tsv", _table(["step", term], rows))
        _replace(self._folder / "rows.json", json.dumps({"run": self._run, "rows": self._rows}))
        _replace(self._folder / "metrics.json", json.dumps(told, indent=1))
        _replace(self._folder / "dvc.yaml", DVC_FILE)

    def _write_events(self, step: int, losses: Mapping[str, float]) -> None:
        folder = os.environ.get("DACR_TENSORBOARD")
        if folder and self._events is None:
            self._events = _event_writer(folder)
        if self._events is not None:
            for name, value in losses.items():
                self._events.add_scalar(f"loss/{name}", value, step)
            self._events.add_scalar("session", self._session, step)
            self._events.flush()


def live(session: int, sessions: int) -> Live | None:
    """What watches a training; None where no stage of DVC runs it, or nobody wants it."""
    if os.environ.get("DACR_LIVE") == "0" or not os.environ.get("DVC_STAGE", "").startswith(
        "learn"
    ):
        return None
    if os.environ.get("DACR_TENSORBOARD"):
        check_tensorboard()
    return Live(session, sessions)


def check_tensorboard() -> None:
    """Said before the training, and not after its first epoch."""
    from importlib.util import find_spec

    if find_spec("tensorboard") is None:
        raise UserError(
            "DACR_TENSORBOARD is set and tensorboard is not installed; "
            "run `pip install -c constraints.txt -e '.[tensorboard]'`, or unset it"
        )


def _event_writer(folder: str) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder)


def _run_name() -> str:
    """Two runs with other parameters are two runs; rows of one are no part of the other."""
    try:
        return hashlib.sha256(Path("params.yaml").read_bytes()).hexdigest()[:12]
    except OSError:
        return ""


def _table(columns: list[str], rows: list[list[Any]]) -> str:
    text = StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerows([columns, *rows])
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    """Whoever reads meanwhile sees the old file or the new one, and no half of one."""
    draft = path.with_name(f".{path.name}.part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
