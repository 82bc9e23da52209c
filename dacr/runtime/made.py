"""What a stage really ran with, as part of what it made: parameters, code and inputs.

``dvc commit -f`` writes into ``dvc.lock`` whatever lies in the workspace, so the lock alone cannot
prove that a model was trained with the parameters beside it. ``learn`` and ``consolidate`` leave
this note inside their outs. The next session has these outs among its inputs, so that a forged note
does not fit the notes of all later sessions. ``dacr verify`` holds the notes against the lock.

The note is the same on every machine: it names no time, host or path outside the project.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dacr.config import Params
from dacr.runtime.code import identity
from dacr.runtime.hashes import md5
from dacr.runtime.json_files import write_json

NOTE = "made.json"
PARAMETERS = {
    "learn": ("seed", "method", "options", "augmentation", "model", "train", "loss", "mixture"),
    "consolidate": (
        *("seed", "method", "options", "augmentation", "model", "mixture", "reduction"),
        *("memory.size", "memory.strategy", "memory.inside", "train.portable", "train.threads"),
    ),
}
"""The parameters of each stage, as in dvc.yaml."""
FOLDERS = {"learn": "learned", "consolidate": "state"}
"""The out of each stage that holds its note."""


def made(stage: str, key: str, params: Params) -> dict[str, Any]:
    """The note of ``stage`` on session ``key``, to be taken before it begins."""
    return {
        "stage": f"{stage}@{key}",
        "code": identity(stage, params.method),
        "parameters": parameters_of(stage, params),
        "inputs": {str(path): md5(path) for path in inputs_of(stage, key, params)},
    }


def parameters_of(stage: str, params: Params) -> dict[str, Any]:
    """The parameters that ``stage`` reads, by the names that DVC has for them."""
    values = params.model_dump(mode="json", by_alias=True)
    return {name: _value(values, name) for name in PARAMETERS[stage]}


def inputs_of(stage: str, key: str, params: Params) -> list[Path]:
    """What ``stage`` reads and another stage made, except the code."""
    before = Path("runs") / params.schedule.sessions[key].prev
    paths = [Path(f"data/split/session-{key}.csv"), before / "state"]
    if stage == "consolidate":
        paths += [before / "results", Path("runs") / key / "learned"]
    return paths


def note_path(stage: str, key: str) -> Path:
    return Path("runs") / key / FOLDERS[stage] / NOTE


def write_note(stage: str, key: str, note: dict[str, Any]) -> None:
    write_json(note_path(stage, key), note)


def _value(values: dict[str, Any], name: str) -> Any:
    for part in name.split("."):
        values = values[part]
    return values
