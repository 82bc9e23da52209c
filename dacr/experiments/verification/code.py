"""Is the code here the one that the run ran?

``runs/code`` says which modules a stage runs (``dacr/runtime/code.py``). It is made again, since
an edited file there could leave out a module that was edited, too.
"""

from __future__ import annotations

import json
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dacr.config import Params
from dacr.errors import UserError
from dacr.experiments.verification.artifacts import Artifacts
from dacr.experiments.verification.findings import Report
from dacr.experiments.verification.git_head import committed, unlike_committed
from dacr.experiments.verification.pipeline import Lock, overlap
from dacr.runtime.code import (
    PACKAGE,
    PLUMBING,
    describe,
    essence_hash,
    source_module,
    source_options,
)

CODE_FOLDERS = ("dacr", "stages")
"""Not compared as a whole: ``runs/code`` says which modules a stage runs."""
OUTS = "runs/code/"
NO_PYTHON = (SyntaxError, tokenize.TokenError)
OWN = ("dacr/experiments/verification", "dacr/experiments/reading.py")
"""The code of this check."""


def check_code(report: Report, artifacts: Artifacts, lock: Lock, params: Params) -> None:
    """The code and tables that stages read and no stage makes."""
    made = [out for stage in lock.values() for out in stage.outs]
    deps = {path: md5 for stage in lock.values() for path, md5 in stage.deps.items()}
    inputs = {path: md5 for path, md5 in deps.items() if not any(overlap(path, o) for o in made)}
    described = [path for path in made if path.startswith(OUTS)]
    modules = modules_of(described)
    same = {path: artifacts.has(path, own) for path, own in inputs.items()}
    same = {path: own for path, own in same.items() if path not in CODE_FOLDERS}
    same |= {path: essence_of(path) == own for path, own in modules.items() if path != PACKAGE}
    faults = [
        f"{path} {'changed since the run' if Path(path).exists() else 'is missing'}; "
        "restore it or run `dvc repro`"
        for path in same
        if not same[path]
    ]
    faults = faults or misdescribed(described, params)
    report.add("code", faults + edited(), f"{len(same)} inputs are those of the run")


def modules_of(files: Iterable[str]) -> dict[str, str]:
    """The modules that the stages ran, each with its hash, from the files of the stage ``code``."""
    modules: dict[str, str] = {}
    for file in files:
        try:
            modules |= json.loads(Path(file).read_text(encoding="utf-8"))["modules"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a damaged out, which is reported as such
    return modules


def essence_of(file: str) -> str | None:
    """The hash of a module without comments; None where it is no Python any more."""
    try:
        return essence_hash(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, *NO_PYTHON):
        return None


def misdescribed(files: Iterable[str], params: Params) -> list[str]:
    """The files of ``runs/code`` that do not follow from the code that is here."""
    faults = []
    for file in files:
        name = Path(file).stem
        try:
            same = json.loads(Path(file).read_text(encoding="utf-8")) == _description(name, params)
        except (OSError, ValueError, UserError, *NO_PYTHON):
            same = False
        if not same:
            faults.append(f"{file} does not follow from the code; run `dvc repro`")
    return faults


def _description(name: str, params: Params) -> dict[str, Any]:
    """What the stage ``code`` writes to ``runs/code/<name>.json``."""
    here, data = Path().absolute(), params.data
    source = name.removeprefix("fetch-")
    if source == name:
        return describe(name, params.method, data.sources, root=here)
    options = source_options(source, source_module(source, root=here), data.source_options)
    return describe("fetch", sources=[source], root=here) | {"options": options}


def edited() -> list[str]:
    """Code that no stage counts but that decides what is said here, and is not as committed."""
    plumbing = [f"{module.replace('.', '/')}.py" for module in PLUMBING]
    return [
        f"{file} is not as committed, and this check relies on it; commit it or "
        f"`git restore {file}`"
        for file in unlike_committed(*plumbing, *OWN)
        if file.endswith(".py") and essence_of(file) != essence_hash(committed(file))
    ]
