"""A trained run by its name, with the parameters that it was made with.

The workspace's ``params.yaml`` may have changed since a run was trained, so the parameters come
from ``dvc.lock``, which keeps those of each stage beside the checksums of what the stage made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from dacr.config import Params, explain
from dacr.errors import UserError, naming
from dacr.experiments.publishing import is_published, open_published
from dacr.experiments.reading import (
    NEVER_RAN,
    PARAMS,
    WORKSPACE,
    Files,
    Workspace,
    as_made,
    differing,
    open_experiment,
    project_root,
    read_lock,
    read_params,
    some,
)
from dacr.runtime.hashes import file_md5, md5
from dacr.sessions.places import BENCHMARK, run_folder, session_path

if TYPE_CHECKING:
    from dacr.sessions.predict import TrainedRun

SUMMARY = str(BENCHMARK / "benchmark.json")
"""It holds the checksum of all pixels."""
MARK = "state/state.json"
"""What makes a folder that of a session."""


def open_run(name: str, scratch: Path, with_images: bool) -> TrainedRun:
    """The run called ``name``; what must be copied goes below ``scratch``.

    Without ``with_images`` only the names of the benchmark's classes are needed of it.
    """
    if is_published(name):
        return open_published(name, scratch)
    folder = _folder(name) if name not in ("", WORKSPACE) else None
    if folder:
        root, key = folder.parent.parent, folder.name
        files: Files = Workspace(root, name)
        if files.read(PARAMS) is None:
            raise UserError(f"{name} is not in runs/ of a project: {root / PARAMS} is missing")
    else:
        files = open_experiment(name)
        key = _own_params(files, None)[0].schedule.last
    params, note = _own_params(files, key)
    if isinstance(files, Workspace):
        state = (folder or files.root / run_folder(key).root) / "state"
        benchmark = files.bring(str(BENCHMARK), scratch)
        _refuse_other_bytes(files, key, state)
    else:
        state = files.bring(str(run_folder(key).state), scratch)
        benchmark = _benchmark_of(files, scratch, with_images)
    _refuse_other_benchmark(files, key, benchmark)
    # Only now: torch takes seconds to load, and a wrong name should not.
    from dacr.sessions.predict import TrainedRun

    return TrainedRun(name, state, benchmark, params, note)


def _folder(name: str) -> Path | None:
    """The session's folder that ``name`` is; None where it can only be an experiment."""
    folder = Path(name)
    with naming(name):
        if (folder / MARK).exists():
            return folder.resolve()
        if "/" not in name:
            return None
        if folder.exists():
            raise UserError(f"{name} is no trained run: it has no {MARK}")
        sessions = sorted(str(mark.parents[1]) for mark in folder.parent.glob(f"*/{MARK}"))
    if sessions:
        raise UserError(f"there is no {name}; the sessions here are {some(sessions, 30)}")
    return None


def _own_params(files: Files, key: str | None) -> tuple[Params, str | None]:
    """The parameters that session ``key`` was made with (None: its data and split alone)."""
    params, lock = read_params(files), read_lock(files)
    stages = [f"learn@{key}", f"consolidate@{key}"] if key else []
    made = as_made(params, lock, "build", "schedule", *stages)
    changed = [name for name, _, _ in differing(params, made)]
    # The names at the top follow the sections, which may be those of an older choice.
    names = {"benchmark": made["data"]["benchmark"], "split": made["schedule"]["split"]}
    try:
        own = Params.model_validate(made | names)
    except ValidationError as error:
        raise UserError(explain(error, f"{PARAMS} of {files.name}")) from None
    if lock and key and f"consolidate@{key}" not in lock:
        return own, f"dvc.lock does not know {files.name}; the parameters of {PARAMS} are used"
    if not changed:
        return own, None
    note = f"{files.name} was made with other parameters than {PARAMS} holds ({some(changed)}); "
    return own, note + "its own, from dvc.lock, are used"


def _refuse_other_bytes(files: Workspace, key: str, state: Path) -> None:
    """The parameters of a state that is not the one in ``dvc.lock`` are unknown: refuse it."""
    if not state.exists():
        raise UserError(f"{state} is missing; run `dvc repro` or `dvc pull`")
    outs = read_lock(files).get(f"consolidate@{key}", NEVER_RAN).outs
    known = outs.get(str(run_folder(key).state))
    if known and md5(state) != known:
        raise UserError(
            f"{state} is not the one that dvc.lock describes, so the parameters that it was made "
            "with are unknown; run `dvc checkout` or `dvc repro`"
        )


def _refuse_other_benchmark(files: Files, key: str, folder: Path) -> None:
    """Names and exemplars of another benchmark than the session's own would be wrong: refuse it."""
    lock, table = read_lock(files), str(session_path(key))
    trained_on = lock.get(f"consolidate@{key}", NEVER_RAN).deps.get(table)
    if trained_on is None:
        return
    split = lock.get(f"split@{key}", NEVER_RAN)
    here = file_md5(folder / Path(SUMMARY).name)
    if split.outs.get(table) != trained_on or split.deps.get(SUMMARY) != here:
        from dacr.sessions.predict import other_benchmark

        raise other_benchmark(folder, files.name)


def _benchmark_of(files: Files, scratch: Path, with_images: bool) -> Path:
    """The benchmark of a revision: the workspace's where it is the same, else a copy."""
    here = Workspace(project_root())
    if here.read(SUMMARY) == files.bring(SUMMARY, scratch).read_bytes():
        return here.root / BENCHMARK
    return files.bring(str(BENCHMARK), scratch) if with_images else scratch / BENCHMARK
