"""The page docs/adding-a-method.md does what it says: its blocks are taken from it and run."""

import ast
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

from dacr.methods.parts.classifier import Classifier
from dacr.methods.parts.method import Method
from dacr.methods.parts.representation import Representation
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
    params, options = method.params, method.options.model_dump()
    print("composed", params.method, params.split, params.memory.strategy, options)
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


MINE, WITH_OURS = blocks("python")


def composed(script: str, arguments: list[str], folder: Path) -> list[str]:
    """Run a script in the copy; what it composed."""
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    return [rest for first, rest in lines if first == "composed"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the page's two files in it, and nothing else."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("conf", "dacr", "stages", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    (folder / "dacr/methods/mine.py").write_text(MINE, encoding="utf-8")
    (folder / "dacr/methods/mine_dacr.py").write_text(WITH_OURS, encoding="utf-8")
    return folder


def test_the_examples_are_short_files() -> None:
    assert len(MINE.splitlines()) < 60
    assert len([line for line in WITH_OURS.splitlines() if line]) <= 5


def test_the_commands_compose_and_the_examples_learn_two_sessions(project: Path) -> None:
    (commands,) = blocks("bash")
    overrides = []
    for line in commands.splitlines():
        program = shlex.split(line)
        assert program[:3] == ["dvc", "exp", "run"]
        assert set(program[3::2]) == {"-S"}
        overrides.append("|".join(program[4::2]))
    assert composed(COMPOSE + RUN, overrides, project) == [
        "mine nd random {'prior': 'uniform', 'temperature': 2.0}",
        "mine ncd herding {'prior': 'uniform', 'temperature': 2.0}",
        "mine nd random {'prior': 'uniform', 'temperature': 3.0}",
        "mine_dacr nd bilevel {}",
    ]
    for run in ("mine/nc", "mine/nd", "mine_dacr/nd"):
        results = project / "work" / run / "runs/02/results"
        predictions = pd.read_parquet(results / "predictions.parquet")
        assert len(predictions[predictions["session"] == 2]) == 16
        history = (results / "history.json").read_text(encoding="utf-8")
        assert ('"components"' in history) == run.startswith("mine_dacr")
        assert '"distillation"' in history

    def norms(place: str) -> Tensor:
        folder = project / "work/mine/nc/runs/02" / place
        return load_file(folder / "state.safetensors")["head.weight"].norm(dim=1)

    before, after = norms("learned"), norms("state")
    assert before[:2].mean().item() != pytest.approx(before[2:].mean().item(), rel=1e-4)
    assert after[:2].mean().item() == pytest.approx(after[2:].mean().item(), rel=1e-5)


def test_a_configuration_of_its_own_sets_defaults(project: Path) -> None:
    (own,) = blocks("yaml")
    (project / "conf/method/mine.yaml").write_text(own, encoding="utf-8")
    arguments = ["method=mine|options.temperature=4.0"]
    assert composed(COMPOSE, arguments, project) == [
        "mine nd herding {'prior': 'uniform', 'temperature': 4.0}"
    ]


def hooks_of(part: type) -> set[str]:
    """What a part defines, by its source."""
    file = sys.modules[part.__module__].__file__
    assert file is not None
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    (own,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == part.__name__)
    functions = {n.name for n in own.body if isinstance(n, ast.FunctionDef)}
    targets = [n.target for n in own.body if isinstance(n, ast.AnnAssign)]
    names = functions | {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def named_in_the_table() -> dict[str, set[str]]:
    """The hooks that the page's table names, by part."""
    named: dict[str, set[str]] = {}
    part = ""
    for first, _, override in re.findall(r"^\|(.*?)\|(.*?)\|(.*)\|$", PAGE, re.MULTILINE):
        part = first.strip(" `") or part
        named.setdefault(part, set()).update(re.findall(r"`(?:self\.)?(\w+)", override))
    return named


def test_the_table_names_every_hook() -> None:
    named = named_in_the_table()
    called_by_sessions: dict[type, set[str]] = {
        Representation: {"restore"},
        Classifier: {"answer", "lasting", "restore", "head"},
    }
    for part, internal in called_by_sessions.items():
        assert hooks_of(part) - named[part.__name__] - named["both"] == internal
    assert {"losses", "phases", "start_epoch"} <= hooks_of(Method) & named["Method"]
