"""Sessions trained again: the proof that no checksum can give.

Stages run in a temporary folder on the recorded inputs, links to those of the project: ``learn@t``
and ``consolidate@t`` start from the recorded state of session t−1, so that each session is proved
by itself. What they write is compared with the recorded outs byte by byte.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dacr.config import Params
from dacr.errors import UserError
from dacr.evaluation.formats import duration
from dacr.experiments.verification.findings import Report
from dacr.runtime.hashes import file_md5
from dacr.sessions.places import RUNS, run_folder

ALL = "all"
ONE = "session="
USAGE = f"a number of sessions, {ONE}<number of one>, or {ALL}"
SHARED = ("dacr", "stages", "conf", "data", "params.yaml")
"""What stages read besides the run."""

Runner = Callable[[Path, str, Sequence[str]], None]
"""Runs the stage of this name with these arguments in a folder."""


@dataclass(frozen=True)
class Choice:
    """The sessions to replay, in order, and the seed that chose them."""

    sessions: list[str]
    seed: int
    random: bool
    everything: bool

    def tell(self) -> str:
        names = ", ".join(str(int(key)) for key in self.sessions)
        chosen = f", chosen at random with --seed {self.seed}" if self.random else ""
        return f"session{'s' * (len(self.sessions) > 1)} {names}{chosen}"


def choose(wanted: str, sessions: Sequence[str], seed: int) -> Choice:
    """The sessions that ``--replay wanted`` means."""
    number = wanted.removeprefix(ONE)
    if wanted == ALL:
        return Choice(list(sessions), seed, random=False, everything=True)
    if not re.fullmatch(r"[0-9]{1,6}", number) or int(number) < 1:
        raise UserError(f"--replay {wanted}: give {USAGE}")
    if int(number) > len(sessions):
        raise UserError(f"--replay {wanted}: the run has {len(sessions)} sessions; give {USAGE}")
    if wanted.startswith(ONE):
        return Choice([sessions[int(number) - 1]], seed, random=False, everything=False)
    if wanted != str(int(number)):
        raise UserError(
            f"--replay {wanted}: {ONE}{int(number)} is that session, {int(number)} so many sessions"
        )
    chosen = random.Random(seed).sample(list(sessions), int(number))
    return Choice(sorted(chosen), seed, random=True, everything=False)


def estimate(choice: Choice, notes: Iterable[Mapping[str, Any]]) -> str:
    """How long the replay will take, by the notes of the stages about when they ran."""
    wanted = {(stage, int(key)) for key in choice.sessions for stage in ("learn", "consolidate")}
    known = {
        (note.get("stage"), note.get("session")): float(note["seconds"])
        for note in notes
        if isinstance(note.get("seconds"), int | float)
    }
    if not wanted <= known.keys():
        return "how long it takes is unknown: no note here says how long these sessions took"
    total = duration(sum(known[name] for name in wanted))
    return f"about {total}, as long as these sessions took when they were made"


def in_own_process(folder: Path, stage: str, arguments: Sequence[str]) -> None:
    """As DVC runs a stage: instructions are fixed before torch is loaded."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    # The scratch folder of the project may hold checkpoints, which would be taken for training.
    own |= {"DVC_ROOT": str(folder), "DACR_LIVE": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", f"stages.{stage}", *arguments]
    result = subprocess.run(command, cwd=folder, env=own, stdout=sys.stderr, check=False)
    if result.returncode:
        raise UserError(f"{' '.join(command[1:])} failed with exit code {result.returncode}")


def replay(
    report: Report, params: Params, choice: Choice, run: Runner = in_own_process
) -> Iterator[None]:
    """Replay and report session by session; yields after each, so that its line can be shown."""
    if "01" in choice.sessions:
        _compared(report, "the start", [("start", [])], None, "00", run)
        yield
    for key in choice.sessions:
        stages = [("learn", [key]), ("consolidate", [key])]
        link = params.schedule.sessions[key]
        _compared(report, f"session {link.index}", stages, link.prev, key, run)
        yield


def _compared(
    report: Report,
    subject: str,
    stages: Sequence[tuple[str, Sequence[str]]],
    before: str | None,
    key: str,
    run: Runner,
) -> None:
    """Run ``stages`` one after the other until one makes other bytes than the recorded ones."""
    with report.guard("replay"), TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder, before)
        again = folder / run_folder(key).root
        faults: list[str] = []
        for stage, arguments in stages:
            if not faults:
                run(folder, stage, arguments)
                faults = [
                    f"{subject}: {stage} made {problem}; docs/sharing.md says what causes it"
                    for problem in unlike(again, run_folder(key).root)
                ]
        count = sum(file.is_file() for file in again.glob("*/**/*"))
        report.add("replay", faults, f"{subject}: {count} files made again, the same bytes")


def _prepare(folder: Path, before: str | None) -> None:
    """The surroundings of a stage: what it reads, as links, and room for what it writes."""
    here = Path.cwd()
    for name in SHARED:
        if (here / name).exists():
            (folder / name).symlink_to(here / name)
    (folder / RUNS).mkdir()
    for name in ("code", *([before] if before else [])):
        (folder / RUNS / name).symlink_to(here / RUNS / name)


def unlike(again: Path, recorded: Path) -> list[str]:
    """Files of the outs that were made again and are not the recorded ones."""
    problems = []
    for out in sorted(path for path in again.iterdir() if path.is_dir()):
        left, right = _files(out), _files(recorded / out.name)
        for name in sorted({*left, *right}):
            file = recorded / out.name / name
            if name not in right:
                problems.append(f"{file}, which is not recorded")
            elif name not in left:
                problems.append(f"no {file}, which is recorded")
            elif file_md5(left[name]) != file_md5(right[name]):
                problems.append(f"another {file}")
    return problems


def _files(folder: Path) -> dict[str, Path]:
    found = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file for file in found}
