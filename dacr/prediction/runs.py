"""A trained run by its name, with the parameters that it was made with.

The workspace's ``params.yaml`` may have moved on since a run was trained, so the parameters come
from ``dvc.lock``, which keeps those of each stage beside the checksums of what the stage made.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dacr.config import Params, explain
from dacr.errors import UserError
from dacr.experiments import (
    PARAMS,
    WORKSPACE,
    Files,
    Workspace,
    open_experiment,
    out_of_date,
    project_root,
    read_lock,
    read_params,
    recorded_params,
    some,
)

BENCHMARK = "data/benchmark"
STATE = ("state.json", "state.safetensors", "memory.csv")


@dataclass(frozen=True)
class TrainedRun:
    """Where the model, its memory and its benchmark lie, and what it was trained with."""

    name: str
    folder: Path
    benchmark: Path
    params: Params
    note: str | None
    """What the user should know of where the parameters come from."""


def open_run(name: str, scratch: Path, with_images: bool) -> TrainedRun:
    """The run called ``name``; what must be copied goes below ``scratch``.

    Without ``with_images`` only the names of the benchmark's classes are needed of it.
    """
    folder = Path(name)
    if name != WORKSPACE and folder.is_dir() and (folder / "state.json").exists():
        return _open_folder(name, folder.resolve())
    if name != WORKSPACE and "/" in name and folder.exists():
        raise UserError(f"{name} is no trained run: it has no state.json")
    files = open_experiment(name)
    made_with, _ = _own_params(files, None)
    key = made_with.schedule.last
    params, note = _own_params(files, key)
    if isinstance(files, Workspace):
        _refuse_other_bytes(files, files.root / "runs" / key)
        return TrainedRun(
            name, files.root / "runs" / key, files.bring(BENCHMARK, scratch), params, note
        )
    for part in (*STATE, "extractors"):
        files.bring(f"runs/{key}/{part}", scratch)
    benchmark = _benchmark_of(files, scratch, with_images)
    return TrainedRun(name, scratch / "runs" / key, benchmark, params, note)


def _open_folder(name: str, folder: Path) -> TrainedRun:
    root = folder.parent.parent
    files = Workspace(root, name)
    if files.read(PARAMS) is None:
        raise UserError(f"{name} does not lie in runs/ of a project: {root / PARAMS} is missing")
    params, note = _own_params(files, folder.name)
    _refuse_other_bytes(files, folder)
    return TrainedRun(name, folder, files.bring(BENCHMARK, root), params, note)


def _own_params(files: Files, key: str | None) -> tuple[Params, str | None]:
    """The parameters that session ``key`` was made with (None: its data and split alone)."""
    params, lock = read_params(files), read_lock(files)
    stages = [f"learn@{key}", f"consolidate@{key}"] if key else []
    recorded = recorded_params(lock, "build", "split", *stages)
    changed = out_of_date(params, recorded)
    try:
        own = Params.model_validate(_fitting(params | recorded))
    except ValidationError as error:
        raise UserError(explain(error, f"{PARAMS} of {files.name}")) from None
    if not changed:
        return own, None
    note = f"{files.name} was made with other parameters than {PARAMS} holds ({some(changed)}); "
    return own, note + "its own, from dvc.lock, are used"


def _fitting(params: dict[str, Any]) -> dict[str, Any]:
    """The names at the top follow the sections, some of which may be those of an older choice."""
    host = params["method"].removesuffix("_dacr")
    return params | {
        "benchmark": params["data"]["benchmark"],
        "split": params["schedule"]["split"],
        "code": [host, *params["code"][1:]],
    }


def _refuse_other_bytes(files: Workspace, folder: Path) -> None:
    """A folder that is not what ``dvc.lock`` says was made with parameters that nobody knows."""
    stage = read_lock(files).get(f"consolidate@{folder.name}", {})
    expected = {out["path"]: out.get("md5") for out in stage.get("outs", [])}
    for part in STATE:
        path = f"runs/{folder.name}/{part}"
        content = files.read(path)
        if content is None:
            raise UserError(f"{files.root / path} is missing; run `dvc repro` or `dvc pull`")
        actual = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if expected.get(path, actual) != actual:
            raise UserError(
                f"{files.root / path} is not the one that dvc.lock describes, so the parameters "
                "that it was made with are unknown; run `dvc checkout` or `dvc repro`"
            )


def _benchmark_of(files: Files, scratch: Path, with_images: bool) -> Path:
    """The benchmark of a revision: the workspace's where it is the same, else a copy."""
    summary = f"{BENCHMARK}/benchmark.json"
    here = Workspace(project_root())
    # benchmark.json holds the checksum of all pixels.
    if here.read(summary) == files.bring(summary, scratch).read_bytes():
        return here.root / BENCHMARK
    return files.bring(BENCHMARK, scratch) if with_images else scratch / BENCHMARK
