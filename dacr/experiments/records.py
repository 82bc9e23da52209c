"""What was measured: a record an experiment, and the tables that are committed.

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
from collections.abc import Iterable, Iterator, Sequence
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
    """Every session was trained in one go, none came from the cache: the time says how long."""
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


def to_json(content: Any) -> str:
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _read_record(path: Path) -> Record | None:
    """A record of the scratch; one that is damaged or of an older version is measured again."""
    try:
        return Record.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


class Store:
    """All records that this working copy knows."""

    def __init__(self, scratch: Path = SCRATCH, results: Path = RESULTS) -> None:
        self.scratch, self.results = scratch, results
        self._known: dict[str, list[Record]] = {}
        for record in self._local() + self._committed():
            self._known.setdefault(record.name, []).append(record)

    def _local(self) -> list[Record]:
        files = sorted((self.scratch / "done").glob("*.json"))
        return [record for file in files if (record := _read_record(file))]

    def _committed(self) -> list[Record]:
        tables = sorted(self.results.glob("*.json"))
        return [record for file in tables for record in read_results(file)]

    def records(self) -> Iterator[Record]:
        """One record an experiment, the latest."""
        for own in self._known.values():
            yield max(own, key=lambda record: record.started)

    def find(self, name: str, details: Sequence[str], code: str | None = None) -> Record | None:
        """The experiment's latest record with these details, of this code if there is one."""
        own = [r for r in self._known.get(name, []) if set(details) <= r.details.keys()]
        return max(own, key=lambda r: (r.code == code, r.started), default=None)

    def of_stem(self, stem: str, details: Sequence[str], code: str) -> list[Record]:
        """The records of all seeds of an experiment, of this code if there is one, by seed."""
        names = [name for name in self._known if name.rpartition("-s")[0] == stem]
        found = [record for name in names if (record := self.find(name, details, code))]
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
    path = results_path(table, benchmark, "csv", folder)
    rows: list[list[Any]] = [
        [
            key, label, r.split, r.method, r.seed, r.name, r.revision, r.code, r.seconds,
            *(r.metrics.get(name, "") for name in names),
        ]
        for key, label, r in entries
    ]  # fmt: skip
    lines = [_csv_line(row) for row in ([*FACTS, *names], *rows)]
    write_text(path, "".join(lines))
    facts = {r.name: _facts(r, details) for _, _, r in entries}
    write_text(path.with_suffix(".json"), _one_a_line(table, benchmark, facts))


def _one_a_line(table: str, benchmark: str, facts: dict[str, dict[str, Any]]) -> str:
    """JSON with an experiment a line, so that a diff shows which experiments changed."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(own, sort_keys=True, ensure_ascii=False)}"
        for name, own in facts.items()
    ]
    start = f'"table": {json.dumps(table)}, "benchmark": {json.dumps(benchmark)}'
    body = ",\n".join(lines)
    return f'{{{start}, "experiments": {{\n{body}\n}}}}\n'


def _csv_line(row: Sequence[Any]) -> str:
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(row)
    return buffer.getvalue()


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
        numbers = {row["experiment"]: _numbers(row) for row in _rows(path.with_suffix(".csv"))}
        return [
            Record.model_validate({**own, "name": name, "metrics": numbers[name]})
            for name, own in facts.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path.with_suffix('')}.csv and .json are damaged ({reason}); restore both from git"
        ) from None


def _rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV that is whole: one that was cut would give a part of a number."""
    text = path.read_text(encoding="utf-8")
    header, *lines = csv.reader(StringIO(text, newline=""))
    if not text.endswith("\n") or any(len(line) != len(header) for line in lines):
        raise ValueError("a line of the CSV is not whole")
    return [dict(zip(header, line, strict=True)) for line in lines]


def _numbers(row: dict[str, str]) -> dict[str, float]:
    numbers = {name: float(text) for name, text in row.items() if name not in FACTS and text}
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError(f"{row['experiment']} has a number that is none")
    return numbers
