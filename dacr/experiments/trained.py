"""A trained run by its name, with the parameters that it was made with.

The workspace's ``params.yaml`` may have moved on since a run was trained, so the parameters come
from ``dvc.lock``, which keeps those of each stage beside the checksums of what the stage made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dacr.config import Params, explain
from dacr.errors import UserError
from dacr.experiments.hashes import folder_md5, md5
from dacr.experiments.reading import (
    NEVER_RAN,
    PARAMS,
    WORKSPACE,
    Files,
    Stage,
    Workspace,
    as_made,
    differing,
    open_experiment,
    project_root,
    read_lock,
    read_params,
    some,
)

BENCHMARK, SUMMARY = "data/benchmark", "benchmark.json"
STATE = ("state.json", "state.safetensors", "memory.csv", "extractors")


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
    if name not in ("", WORKSPACE) and (folder := _folder(name)):
        return _open_folder(name, folder)
    files = open_experiment(name)
    made_with, _ = _own_params(files, None)
    key = made_with.schedule.last
    params, note = _own_params(files, key)
    if isinstance(files, Workspace):
        folder, benchmark = files.root / "runs" / key, files.bring(BENCHMARK, scratch)
        _refuse_other_bytes(files, folder)
    else:
        for part in STATE:
            files.bring(f"runs/{key}/{part}", scratch)
        folder, benchmark = scratch / "runs" / key, _benchmark_of(files, scratch, with_images)
    _refuse_other_benchmark(files, key, benchmark)
    return TrainedRun(name, folder, benchmark, params, note)


def _folder(name: str) -> Path | None:
    """The session's folder that ``name`` is; None where it can only be an experiment."""
    folder = Path(name)
    try:
        if (folder / "state.json").exists():
            return folder.resolve()
        if "/" not in name:
            return None
        if folder.exists():
            raise UserError(f"{name} is no trained run: it has no state.json")
        sessions = sorted(str(state.parent) for state in folder.parent.glob("*/state.json"))
    except OSError as error:
        raise UserError(f"{name}: {(error.strerror or str(error)).lower()}") from None
    if sessions:
        raise UserError(f"there is no {name}; the sessions here are {some(sessions, 30)}")
    return None


def _open_folder(name: str, folder: Path) -> TrainedRun:
    root = folder.parent.parent
    files = Workspace(root, name)
    if files.read(PARAMS) is None:
        raise UserError(f"{name} does not lie in runs/ of a project: {root / PARAMS} is missing")
    params, note = _own_params(files, folder.name)
    _refuse_other_bytes(files, folder)
    benchmark = files.bring(BENCHMARK, root)
    _refuse_other_benchmark(files, folder.name, benchmark)
    return TrainedRun(name, folder, benchmark, params, note)


def _own_params(files: Files, key: str | None) -> tuple[Params, str | None]:
    """The parameters that session ``key`` was made with (None: its data and split alone)."""
    params, lock = read_params(files), read_lock(files)
    stages = [f"learn@{key}", f"consolidate@{key}"] if key else []
    made = as_made(params, lock, "build", "split", *stages)
    changed = [name for name, _, _ in differing(params, made)]
    try:
        own = Params.model_validate(_fitting(made))
    except ValidationError as error:
        raise UserError(explain(error, f"{PARAMS} of {files.name}")) from None
    if lock and key and f"consolidate@{key}" not in lock:
        return own, f"dvc.lock does not know {files.name}; the parameters of {PARAMS} are used"
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
    expected = read_lock(files).get(f"consolidate@{folder.name}", NEVER_RAN).outs
    for part in STATE:
        path = folder / part
        if not path.exists():
            raise UserError(f"{path} is missing; run `dvc repro` or `dvc pull`")
        known = expected.get(f"runs/{folder.name}/{part}")
        if known and md5(path) != known:
            raise UserError(
                f"{path} is not the one that dvc.lock describes, so the parameters "
                "that it was made with are unknown; run `dvc checkout` or `dvc repro`"
            )


def _refuse_other_benchmark(files: Files, key: str, folder: Path) -> None:
    """Names and exemplars of another benchmark than the session's own would be lies."""
    lock = read_lock(files)
    trained_on = lock.get(f"consolidate@{key}", NEVER_RAN).deps.get(BENCHMARK)
    if trained_on and not _is_benchmark(folder, trained_on, lock.get("build", NEVER_RAN)):
        raise UserError(other_benchmark(folder, files.name))


def other_benchmark(folder: Path, run: str) -> str:
    return (
        f"{folder} is not the benchmark that {run} was trained on; run `dvc checkout` or "
        "`dvc repro`"
    )


def _is_benchmark(folder: Path, checksum: str, build: Stage) -> bool:
    """Whether ``checksum`` is of this benchmark, if possible without reading all its images."""
    built = {
        path.removeprefix(f"{BENCHMARK}/"): own
        for path, own in build.outs.items()
        if path.startswith(f"{BENCHMARK}/")
    }
    # benchmark.json holds the checksum of all pixels.
    same = built.get(SUMMARY) == md5(folder / SUMMARY) and folder_md5(built) == checksum
    return same or md5(folder) == checksum


def _benchmark_of(files: Files, scratch: Path, with_images: bool) -> Path:
    """The benchmark of a revision: the workspace's where it is the same, else a copy."""
    summary = f"{BENCHMARK}/{SUMMARY}"
    here = Workspace(project_root())
    # It holds the checksum of all pixels.
    if here.read(summary) == files.bring(summary, scratch).read_bytes():
        return here.root / BENCHMARK
    return files.bring(BENCHMARK, scratch) if with_images else scratch / BENCHMARK
