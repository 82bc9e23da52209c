"""What was measured: one record per experiment, and the tables that are committed.

A record is written the moment an experiment ends (``.dacr/paper/done/<name>.json``, scratch of this
machine). The committed results of a table are ``reports/paper/<table>-<benchmark>.csv``, the
numbers, and ``.json``, the facts and curves behind them; they serve in a fresh clone, where neither
scratch nor experiments are.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from dacr.config import Section
from dacr.errors import UserError

SCRATCH = Path(".dacr/paper")
RESULTS = Path("reports/paper")
LARGE = ("embedding",)
FACTS = ("row", "label", "split", "method", "seed", "experiment", "revision", "code", "seconds")


class Record(Section):
    """One experiment: what ran, with which code, where, how long, and what came out."""

    name: str
    benchmark: str
    split: str
    method: str
    seed: int
    overrides: dict[str, str]
    command: str
    revision: str
    code: str
    started: str
    seconds: float
    whole: bool
    """Whether ``seconds`` is that of all sessions: none came from the cache or a checkpoint."""
    machine: dict[str, Any]
    data: dict[str, Any]
    setting: dict[str, Any]
    metrics: dict[str, float]
    details: dict[str, Any] = Field(default_factory=dict)

    @property
    def stem(self) -> str:
        return self.name.rpartition("-s")[0]


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: a kill or a full disk leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _read_record(path: Path) -> Record | None:
    """A record of the scratch; one that is damaged or of an older version is measured again."""
    try:
        return Record.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


class Store:
    """All records that this working copy knows."""

    def __init__(self, scratch: Path = SCRATCH, results: Path = RESULTS) -> None:
        self.scratch = scratch
        self._known: dict[str, list[Record]] = {}
        local = map(_read_record, sorted((scratch / "done").glob("*.json")))
        committed = (own for file in sorted(results.glob("*.json")) for own in read_results(file))
        for record in (*filter(None, local), *committed):
            self._known.setdefault(record.name, []).append(record)

    def records(self) -> Iterator[Record]:
        """One record per experiment, the latest."""
        for own in self._known.values():
            yield max(own, key=lambda record: record.started)

    def every(self) -> list[Record]:
        """Also those that a later one of their experiment replaced."""
        return [record for own in self._known.values() for record in own]

    def find(
        self,
        name: str,
        details: Sequence[str],
        code: str | None = None,
        counts: Callable[[Record], bool] = lambda _: True,
    ) -> Record | None:
        """The experiment's latest record that counts and has these details, of this code if any."""
        known = filter(counts, self._known.get(name, []))
        own = [r for r in known if set(details) <= r.details.keys()]
        return max(own, key=lambda r: (r.code == code, r.started), default=None)

    def of_stem(
        self,
        stem: str,
        details: Sequence[str],
        code: str,
        counts: Callable[[Record], bool] = lambda _: True,
    ) -> list[Record]:
        """The records of all seeds of an experiment that count, of this code if any, by seed."""
        names = [name for name in self._known if name.rpartition("-s")[0] == stem]
        found = [record for name in names if (record := self.find(name, details, code, counts))]
        return sorted(found, key=lambda record: record.seed)

    def add(self, record: Record) -> None:
        write_text(self.scratch / "done" / f"{record.name}.json", record.model_dump_json())
        (self.scratch / "failed" / record.name).unlink(missing_ok=True)
        self._known.setdefault(record.name, []).append(record)

    def fail(self, name: str, error: str) -> None:
        write_text(self.scratch / "failed" / name, error + "\n")

    def failure(self, name: str) -> str | None:
        """Why the experiment did not end the last time."""
        path = self.scratch / "failed" / name
        return path.read_text("utf-8", "replace").strip() if path.exists() else None


# -- committed results ------------------------------------------------------------------------


def results_path(table: str, benchmark: str, suffix: str, folder: Path = RESULTS) -> Path:
    return folder / f"{table}-{benchmark}.{suffix}"


def write_results(
    table: str,
    benchmark: str,
    measured: Iterable[tuple[str, str, Record]],
    details: Sequence[str],
    folder: Path = RESULTS,
) -> None:
    """The records of a table as (row's key, row's label, record), in the table's order."""
    entries = list(measured)
    names = sorted({metric for _, _, record in entries for metric in record.metrics})
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*FACTS, *names])
    for key, label, r in entries:
        facts = (key, label, r.split, r.method, r.seed, r.name, r.revision, r.code, r.seconds)
        lines.writerow([*facts, *(r.metrics.get(name, "") for name in names)])
    write_text(results_path(table, benchmark, "csv", folder), text.getvalue())
    # One experiment per line, so that a diff shows which of them changed.
    own = {r.name: json.dumps(_facts(r, details), sort_keys=True, ensure_ascii=False)
           for _, _, r in entries}  # fmt: skip
    body = ",\n".join(f"{json.dumps(name)}: {facts}" for name, facts in own.items())
    start = f'"table": {json.dumps(table)}, "benchmark": {json.dumps(benchmark)}'
    content = f'{{{start}, "experiments": {{\n{body}\n}}}}\n'
    write_text(results_path(table, benchmark, "json", folder), content)


def _facts(record: Record, details: Sequence[str]) -> dict[str, Any]:
    """All of a record but its numbers, which are in the CSV alone.

    Details that the table does not show serve another table; those of t-SNE are large.
    """
    content = record.model_dump(exclude={"metrics", "name"})
    kept = {k: v for k, v in record.details.items() if k in details or k not in LARGE}
    return content | {"details": kept}


def read_results(path: Path) -> list[Record]:
    """What ``write_results`` wrote; ``path`` is the JSON file, the CSV lies beside it."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))["experiments"]
        numbers = _numbers(path.with_suffix(".csv").read_text(encoding="utf-8"))
        return [
            Record.model_validate({**own, "name": name, "metrics": numbers[name]})
            for name, own in facts.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path.with_suffix('')}.csv and .json are damaged ({reason}); restore both from git"
        ) from None


def _numbers(text: str) -> dict[str, dict[str, float]]:
    """The metrics of each experiment, from a CSV that is whole: a cut one has cut numbers."""
    header, *lines = csv.reader(StringIO(text, newline=""))
    if not text.endswith("\n"):
        raise ValueError("the last line of the CSV is not whole")
    numbers = {}
    for line in lines:
        row = dict(zip(header, line, strict=True))
        own = {name: float(text) for name, text in row.items() if name not in FACTS and text}
        if not all(map(math.isfinite, own.values())):
            raise ValueError(f"{row['experiment']} has a number that is none")
        numbers[row["experiment"]] = own
    return numbers
