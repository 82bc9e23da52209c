"""The wheel in an environment that holds nothing but the library's own dependencies.

`python -m build` makes it from the sdist. The environment is a new venv; installing torch and all
that into it would take minutes, so that the packages that the wheel requires, and those that these
require, are linked there from the environment of the tests. Nothing else is: no project, no DVC, no
Hydra, and no git on the path. A dependency that pyproject.toml forgets is therefore missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

TRAIN = """
import sys
import dacr
import torch
from torch.utils.data import DataLoader

scenario = dacr.scenario("idigits_mini", "nd")
session = scenario[0]
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, len(scenario.classes)))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    for images, labels in DataLoader(session.train(), batch_size=32, shuffle=True):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    hits = [model(images).argmax(1) == labels for images, labels in DataLoader(session.test(), 100)]
right = sum(int(hit.sum()) for hit in hits)
print(dacr.__file__, right / len(session.test()))
assert not {"dvc", "hydra", "git", "stages"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `python -m build` put the sdist and the wheel."""
    pytest.importorskip("build", reason="build is not installed: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    (wheel,) = built.glob("*.whl")
    place = folder / f"lib/python3.{sys.version_info.minor}/site-packages"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    python = str(folder / "bin/python")
    # Without PYTHONPATH, by which pip would find the clone and install nothing.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", python, *install, str(wheel)]
    subprocess.run(pip, cwd=folder, env=settings, check=True)
    (metadata,) = place.glob("dacr-*.dist-info")
    link(required(PathDistribution(metadata).requires or ()), place)
    return folder


def required(requirements: Iterable[str]) -> set[str]:
    """What these requirements need, and what that needs, without extras."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        if applies and wanted.name.lower() not in found:
            found.add(wanted.name.lower())
            waiting += [Requirement(text) for text in distribution(wanted.name).requires or ()]
    return found


def link(names: Iterable[str], place: Path) -> None:
    """The files of installed packages, as links in another environment."""
    for name in names:
        own = distribution(name)
        for top in {file.parts[0] for file in own.files or () if file.parts[0] != ".."}:
            if top != "__pycache__" and not (place / top).exists():
                (place / top).symlink_to(str(own.locate_file(top)))


def run(environment: Path, *command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A command with the environment's programs on the path, and no others."""
    return subprocess.run(
        [str(environment / "bin" / command[0]), *command[1:]],
        cwd=home,
        env={"PATH": str(environment / "bin"), "DACR_HOME": str(home), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_carries_what_scenarios_are_made_of(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        carried = {name for name in archive.namelist() if name.startswith("dacr/carried/")}
        for place, folder in (("data/schedules", "schedules"), ("conf/split", "conf/split")):
            for file in (ROOT / place).iterdir():
                name = f"dacr/carried/{folder}/{file.name}"
                assert archive.read(name) == file.read_bytes()
    assert "dacr/carried/conf/sources.yaml" in carried
    assert not [name for name in carried if "__pycache__" in name or "/paper" in name]


def test_the_sdist_can_make_the_wheel(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "conf/sources.yaml", "data/schedules/idigits_nd.csv"} <= names


def test_a_session_is_trained_in_a_fresh_environment(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "python", "-c", TRAIN, home=tmp_path)
    assert done.returncode == 0, done.stderr
    file, accuracy = done.stdout.split()
    assert Path(file).is_relative_to(environment)
    assert float(accuracy) > 0.5  # of ten classes


def test_the_command_works_in_a_fresh_environment(environment: Path, tmp_path: Path) -> None:
    listed = run(environment, "dacr", "scenario", "list", home=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert "18,469 MB" in listed.stdout
    shown = run(environment, "dacr", "scenario", "show", "icifar20", "ncd", home=tmp_path)
    assert "10 sessions, 100 class-domain pairs" in shown.stdout, shown.stderr


@pytest.mark.parametrize("command", ["predict workspace image.png", "verify"])
def test_the_pipeline_is_asked_for_in_one_line(
    environment: Path, tmp_path: Path, command: str
) -> None:
    done = run(environment, "dacr", *command.split(), home=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "pip install 'dacr[pipeline]'" in done.stderr
