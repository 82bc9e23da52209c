"""The page docs/adding-a-method.md does what it says: its blocks are taken from it and run."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file
from torch import Tensor

from tests.tiny_pipeline import REPOSITORY

PAGE = (REPOSITORY / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
COMPOSE = """
import sys
from pathlib import Path
import torch
from dacr.config import load_params
from dacr.methods import make_method
from dacr.runtime.compose import compose

for command in sys.argv[1:]:
    compose(command.split("|"), Path("composed.yaml"))
    method = make_method(load_params(Path("composed.yaml")), torch.device("cpu"))
    params, options = method.params, method.options
    print("composed", params.method, params.split, params.memory.strategy, options.temperature)
"""
RUN = """
from tests.tiny_pipeline import run, tiny_params

for name, split in (("mine", "nc"), ("mine", "nd"), ("mine_dacr", "nd")):
    folder = Path("work") / name / split
    folder.mkdir(parents=True)
    run(folder, tiny_params(f"method={name}", f"split={split}"))
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def composed(script: str, arguments: list[str], folder: Path) -> list[str]:
    """Run a script in the copy; what it composed."""
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    return [rest for first, rest in lines if first == "composed"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the page's method in it."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("conf", "dacr", "stages", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    (code,) = blocks("python")
    (folder / "dacr/methods/mine.py").write_text(code, encoding="utf-8")
    return folder


def test_the_example_is_one_short_file() -> None:
    (code,) = blocks("python")
    assert len(code.splitlines()) < 60


def test_the_commands_compose_and_the_example_learns_two_sessions(project: Path) -> None:
    (commands,) = blocks("bash")
    overrides = []
    for line in commands.splitlines():
        program = shlex.split(line)
        assert program[:3] == ["dvc", "exp", "run"]
        assert set(program[3::2]) == {"-S"}
        overrides.append("|".join(program[4::2]))
    _, with_ours = blocks("yaml")
    (project / "conf/method/mine_dacr.yaml").write_text(with_ours, encoding="utf-8")
    assert composed(COMPOSE + RUN, overrides, project) == [
        "mine nd random 2.0",
        "mine ncd herding 2.0",
        "mine nd random 3.0",
    ]
    for run in ("mine/nc", "mine/nd", "mine_dacr/nd"):
        last = project / "work" / run / "runs/02"
        predictions = pd.read_parquet(last / "predictions.parquet")
        assert len(predictions[predictions["session"] == 2]) == 16
        mixtures = '"components"' in (last / "history.json").read_text(encoding="utf-8")
        assert mixtures == run.startswith("mine_dacr")

    def norms(state: str) -> Tensor:
        return load_file(project / "work/mine/nc/runs/02" / state)["head.weight"].norm(dim=1)

    before, after = norms("learned/state.safetensors"), norms("state.safetensors")
    assert before[:2].mean().item() != pytest.approx(before[2:].mean().item(), rel=1e-4)
    assert after[:2].mean().item() == pytest.approx(after[2:].mean().item(), rel=1e-5)


def test_a_configuration_of_its_own_sets_defaults(project: Path) -> None:
    own, _ = blocks("yaml")
    (project / "conf/method/mine.yaml").write_text(own, encoding="utf-8")
    arguments = ["method=mine|options.temperature=4.0"]
    assert composed(COMPOSE, arguments, project) == ["mine nd herding 4.0"]
