"""A copy of the project with a benchmark, a split and tables that take seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from tests.tiny_project import answer

ROOT = Path(__file__).parents[1]
ONE_SESSION = """\
# @package _global_
split: one
schedule:
  split: one
  rule: table
  seed: 1993
  domain_order: listed
  domains_per_session: null
  new_classes: null
  table: data/schedules/one.csv
  sessions: ${sessions:1}
  last: ${last_session:1}
"""
SWEEP = """\
title: A sweep
splits: [one]
metrics: [final_accuracy]
details: [accuracy_by_session]
rows:
  good: {label: good, overrides: {method: replay}}
  bad: {label: bad, overrides: {method: replay, memory.size: -1}}
"""
LONG = """\
title: A long one
splits: [one]
metrics: [final_accuracy]
rows:
  long: {label: long, overrides: {method: icarl, train.epochs: 100000}}
"""


def tiny_benchmark() -> str:
    """One domain of the embedded benchmark, two images of each class, one epoch."""
    content = yaml.safe_load((ROOT / "conf/benchmark/idigits_mini.yaml").read_text())
    content["benchmark"] = content["data"]["benchmark"] = "tiny"
    content["data"] |= {"per_pair": 2, "domains": ["handwritten"]}
    content["data"]["sources"] = ["handwritten"]
    content["train"]["epochs"] = 1
    content["memory"]["size"] = 20
    return f"# @package _global_\n{yaml.safe_dump(content)}"


WIDE = {"COLUMNS": "200"}


def run(folder: Path, *command: str, code: int = 0) -> str:
    ended, output = answer(folder, *command, env=WIDE)
    assert ended == code, output
    return output


def tiny_project(folder: Path) -> Path:
    """The project's own files in a fresh repository."""
    listed = run(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard")
    for name in listed.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "reports/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "dvc.lock").unlink(missing_ok=True)
    (folder / "conf/benchmark/tiny.yaml").write_text(tiny_benchmark())
    (folder / "conf/split/one.yaml").write_text(ONE_SESSION)
    (folder / "conf/paper/sweep.yaml").write_text(SWEEP)
    (folder / "conf/paper/long.yaml").write_text(LONG)
    rows = [f"1,{c},0" for c in range(3)]
    (folder / "data/schedules/one.csv").write_text("\n".join(["session,class,domain", *rows, ""]))
    for command in (
        ("init", "--quiet"), ("config", "user.email", "test@example.org"),
        ("config", "user.name", "test"), ("add", "--all"), ("commit", "--quiet", "-m", "start"),
    ):  # fmt: skip
        run(folder, "git", *command)
    return folder
