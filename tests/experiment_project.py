"""A small project under git and DVC, whose experiments are saved without any training."""

from __future__ import annotations

import subprocess
from contextlib import chdir
from pathlib import Path
from typing import Any

import yaml

from dacr.__main__ import parse
from tests.tiny_project import warm_environment

REPOSITORY = Path(__file__).parents[1]


def run(folder: Path, *command: str, ok: bool = True, given: bytes = b"") -> tuple[str, str]:
    """A command in ``folder``: what it said on its two outputs."""
    own = warm_environment(PYTHONPATH=str(REPOSITORY), COLUMNS="120")
    result = subprocess.run(
        command, cwd=folder, env=own, capture_output=True, check=False, input=given
    )
    stdout, stderr = result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")
    assert (result.returncode == 0) == ok, stdout + stderr
    return stdout, stderr


def dacr(folder: Path, *arguments: str, ok: bool = True, given: bytes = b"") -> tuple[str, str]:
    return run(folder, "python", "-m", "dacr", *arguments, ok=ok, given=given)


def call(folder: Path, *arguments: str) -> None:
    """A command in this process, which has everything imported already."""
    parsed = parse(arguments)
    with chdir(folder):
        parsed.run(parsed)


def refusal(folder: Path, *arguments: str) -> str:
    """The one line of a command that must refuse."""
    stdout, stderr = dacr(folder, *arguments, ok=False)
    assert stdout == ""
    (line,) = stderr.splitlines()
    assert line.startswith("dacr: ")
    return line


def put_under_dvc(folder: Path, stages: dict[str, Any]) -> None:
    """Make ``folder`` a repository of git and DVC; the stages' outs exist, so nothing runs."""
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    run(folder, "git", "init", "-q", "-b", "main")
    run(folder, "git", "config", "user.email", "test@example.org")
    run(folder, "git", "config", "user.name", "test")
    run(folder, "dvc", "init", "-q")
    save(folder)
    run(folder, "git", "add", "-A")
    run(folder, "git", "commit", "-qm", "start")


def save(folder: Path, experiment: str | None = None) -> None:
    """What lies in the workspace becomes the stages' outs, and an experiment if it is named."""
    run(folder, "dvc", "commit", "-q", "-f")
    if experiment:
        run(folder, "dvc", "exp", "save", "-q", "-f", "-n", experiment)
