"""The project in a repository of its own, with a benchmark of 48 images: real DVC in seconds.

The reference run is made by the stages' own functions inside the test's process and recorded by
``dvc commit``: starting Python and torch ten times would be most of the time of a test.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import numpy as np

from dacr.config import load_params
from dacr.runtime.compose import compose
from dacr.sessions.consolidate import consolidate
from dacr.sessions.learn import learn
from stages import budget, build, code, evaluate, fetch, measure, report, schedule, split, start
from tests.learning import pictures
from tests.shelf import ROOT, digest, shelved
from tests.warm import WARM, warm_path, warm_shell

BENCHMARK = """\
# @package _global_
benchmark: tiny
data:
  benchmark: tiny
  sources: [npz]
  source_options: {npz: {path: tiny.npz, test_fraction: 0.34}}
  read_options: {}
  classes: 4
  class_names: null
  domains: [x, y]
  image_size: 8
  paper: null
  per_pair: null
  validation: 0.0
facts:
  nc_sessions: 2
  ncd_new_classes: [2, 1, 1, 0]
  domain_order: listed
  lambda_base: 5.0
  geodesic_lambda: 2.0
  lambda_epochs: 1
  warmup_epochs: 0
  second_stage_epochs: 2
  second_stage_temperature: 5.0
  fine_tune_epochs: 2
augmentation: {name: none, input_size: 8, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}
model: {backbone: resnet8}
train:
  epochs: 1
  batch_size: 8
  lr: 0.05
  schedule: cosine
  milestones: []
  gamma: 0.1
  momentum: 0.9
  weight_decay: 0.0005
  precision: fp32
  threads: 1
memory: {size: 8}
mixture: {components: 2}
"""
ONE_SESSION = """\
# @package _global_
split: one
schedule:
  split: one
  rule: nc
  seed: 1993
  domain_order: listed
  domains_per_session: null
  new_classes: null
  table: null
  sessions: ${sessions:1}
  last: ${last_session:1}
"""


def environment(**more: str) -> dict[str, str]:
    """What a user's shell has: our Python first, no DVC around it, no luck with hashes."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DVC_") or name == "DVC_SITE_CACHE_DIR"
    }
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's Python leaves __pycache__ everywhere
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return own | {"PATH": path, "DVC_NO_ANALYTICS": "1", "PYTHONHASHSEED": "random"} | more


def warm_environment(**more: str) -> dict[str, str]:
    """The same, and what it starts need not load torch and DVC; not for what is to be killed."""
    own = environment()
    path = warm_path()
    warm = {"PATH": f"{path}:{own['PATH']}", "SHELL": warm_shell(), WARM: f"{path}/python"}
    return own | warm | more


def run(
    folder: Path,
    *command: str,
    ok: bool | None = True,
    env: Mapping[str, str] = {},
    seconds: float = 900,
) -> str:
    """What ``command`` said, both streams; ``ok`` is whether it must succeed (None: either)."""
    code, output = answer(folder, *command, env=env, seconds=seconds)
    assert ok is None or (code == 0) == ok, output
    return output


def answer(
    folder: Path, *command: str, env: Mapping[str, str] = {}, seconds: float = 900
) -> tuple[int, str]:
    """The exit code of ``command``, and what it said, both streams."""
    result = subprocess.run(
        command,
        cwd=folder,
        env=warm_environment(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    return result.returncode, result.stdout + result.stderr


def code_files() -> list[str]:
    """The project's own files, without what a run made."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    left_out = ("tests/", "reports/", "docs/", "benchmarks/", "dvc.lock", "params.yaml")
    names = listed.stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file() and not name.startswith(left_out)]


def copy_code(folder: Path) -> None:
    """The project's own files, as they are now."""
    for name in code_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def write_benchmark(folder: Path) -> None:
    """Four classes in two domains, six images per pair, as a user's own npz."""
    labels = np.tile(np.repeat(range(4), 6), 2)
    domains = np.repeat([0, 1], 24)
    images = pictures(labels.tolist(), domains.tolist())
    names = np.array(["x", "y"])[domains]
    np.savez(folder / "tiny.npz", x=images, y=np.array(list("abcd"))[labels], domain=names)
    (folder / "conf/benchmark/tiny.yaml").write_text(BENCHMARK)
    (folder / "conf/split/one.yaml").write_text(ONE_SESSION)


def make_run(folder: Path, *overrides: str, scenario: str = "nd", benchmark: str = "tiny") -> None:
    """Every stage, in this process."""
    with chdir(folder), patch.dict(os.environ, {"DVC_ROOT": str(folder)}):
        choice = [f"benchmark={benchmark}", f"split={scenario}", "method=der_dacr", *overrides]
        compose(choice, Path("params.yaml"))
        chosen = load_params()
        call(code.main)
        for source in chosen.data.sources:
            call(code.main, source)
            call(fetch.main, source)
        call(build.main)
        call(schedule.main)
        for key in chosen.schedule.sessions:
            call(split.main, key)
        call(start.main)
        for key in chosen.schedule.sessions:
            learn(chosen, key)
            consolidate(chosen, key)
        Path("reports").mkdir(exist_ok=True)
        call(evaluate.main)
        call(measure.main)
        call(budget.main)
        call(report.main)


def call(main: Callable[[], None], *arguments: str) -> None:
    """A stage's ``main`` as if its command line had these arguments."""
    with patch.object(sys, "argv", ["stage", *arguments]):
        main()


def make_repository(folder: Path) -> None:
    """The code and the benchmark under git and DVC, nothing run yet."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_code(folder)
    write_benchmark(folder)
    run(folder, "git", "init", "-q", "-b", "main")
    run(folder, "git", "config", "user.email", "test@example.org")
    run(folder, "git", "config", "user.name", "test")


def commit(folder: Path, message: str) -> None:
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-qm", message)


def make_project(folder: Path, *overrides: str) -> None:
    """A repository with a finished, recorded and committed run: a copy of one per machine."""

    def make(begun: Path) -> None:
        make_repository(begun)
        make_run(begun, *overrides)
        run(begun, "dvc", "commit", "-f", "-q")
        commit(begun, "reference")
        run(begun, "git", "repack", "-adq")  # one file instead of hundreds: copies are made of it
        compileall.compile_dir(begun / "dacr", quiet=1)  # a user's Python has done so
        compileall.compile_dir(begun / "stages", quiet=1)

    own = [f"tests/{name}.py" for name in ("tiny_project", "learning")]
    made = shelved(f"project-{digest([*code_files(), *own], *overrides)}", make)
    shutil.copytree(made, folder, symlinks=True, dirs_exist_ok=True)
