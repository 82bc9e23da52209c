"""Was each session made with the parameters, code and inputs that ``dvc.lock`` names?

``dvc commit -f`` lets the lock say anything of any model. The stages themselves leave a note in
their outs (``dacr/runtime/made.py``), and the next session has that out among its inputs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dacr.config import Params
from dacr.experiments.reading import Stage, differing, some
from dacr.experiments.verification.code import OUTS
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.pipeline import Lock
from dacr.runtime.made import PARAMETERS, note_path, parameters_of


def check_made(report: Report, lock: Lock, params: Params) -> None:
    """The note of every ``learn`` and ``consolidate``; ``params`` are those of the lock."""
    with report.guard("made"):
        names = [(stage, key) for key in params.schedule.sessions for stage in PARAMETERS]
        faults = [fault for own in names for fault in unlike_note(*own, lock, params)]
        told = f"{len(names)} notes inside the outs say what dvc.lock says"
        report.add("made", faults, told)


def unlike_note(stage: str, key: str, lock: Lock, params: Params) -> list[str]:
    """Where the note of a stage and the lock do not say the same."""
    name, path = f"{stage}@{key}", note_path(stage, key)
    again = f"run `dvc repro -f {name}`, then `dvc repro`"
    if not path.is_file():
        return [f"{path} is missing, so that nothing proves what {name} was made with; {again}"]
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        note = None
    wanted = expected_note(stage, key, lock[name], params)
    if note == wanted:
        return []
    return [
        f"{name} was made {problem}, says {path}; restore params.yaml and dvc.lock from git, or "
        f"{again}"
        for problem in _problems(note, wanted)
    ]


def expected_note(stage: str, key: str, entry: Stage, params: Params) -> dict[str, Any]:
    """The note that fits the lock."""
    code = json.loads(Path(f"{OUTS}{stage}.json").read_text(encoding="utf-8"))
    return {
        "stage": f"{stage}@{key}",
        "code": code["identity"],
        "parameters": parameters_of(stage, params),
        "inputs": {path: md5 for path, md5 in entry.deps.items() if not path.startswith(OUTS)},
    }


def _problems(note: Any, wanted: dict[str, Any]) -> list[str]:
    """In what a note differs, as parts of sentences."""
    if not isinstance(note, dict) or note.keys() != wanted.keys():
        return ["in an unknown way"]
    problems = []
    if note["stage"] != wanted["stage"]:
        problems.append(f"by another stage ({note['stage']})")
    if note["code"] != wanted["code"]:
        problems.append("by other code")
    for name, text in (("parameters", "with other parameters:"), ("inputs", "from another")):
        own = note[name] if isinstance(note[name], dict) else {}
        if unlike := [each for each, _, _ in differing(own, wanted[name])]:
            problems.append(f"{text} {some(unlike)}")
    return problems or ["in an unknown way"]
