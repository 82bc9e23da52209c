"""``train.portable``: the parameters decide over the instructions, not the machine or its user."""

import os
import shutil
import subprocess
import sys
from unittest.mock import patch

import pytest

from dacr.runtime.portable import PORTABLE, fix_instructions, has_avx2
from tests.tiny_pipeline import REPOSITORY, prepare, tiny_params
from tests.tiny_project import environment

OLDER = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "SSE4_2"}
"""What an older processor would make the libraries choose."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2 bmi1\n", True),
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx\n", False),
        ("processor\t: 0\nmodel name\t: avx2\n", False),
        ("Features\t: fp asimd\n", False),
    ],
)
def test_what_the_system_says_of_its_processor(tmp_path, text, expected):
    (tmp_path / "cpuinfo").write_text(text)
    assert has_avx2(tmp_path / "cpuinfo") == expected
    assert not has_avx2(tmp_path / "none")


def test_only_who_asks_is_held(monkeypatch):
    for name in PORTABLE:
        monkeypatch.setenv(name, "mine")
    fix_instructions(False)
    assert {os.environ[name] for name in PORTABLE} == {"mine"}


@pytest.mark.skipif(not has_avx2(), reason="needs a processor with AVX2")
def test_the_parameter_wins_over_the_environment(tmp_path):
    def learned(name: str, portable: bool, variables: dict[str, str]) -> dict[str, bytes]:
        folder = tmp_path / name
        shutil.copytree(tmp_path / f"before-{portable}", folder, symlinks=True)
        subprocess.run(
            [sys.executable, "-m", "stages.learn", "01"],
            cwd=folder,
            env=environment(DVC_ROOT=str(folder), PYTHONPATH=str(REPOSITORY), **variables),
            check=True,
            capture_output=True,
        )
        files = (folder / "runs/01/learned").rglob("*.safetensors")
        return {file.name: file.read_bytes() for file in files}

    for portable in (False, True):
        before = tmp_path / f"before-{portable}"
        before.mkdir()
        with patch.dict(os.environ):  # this process starts the stages, and lives on
            prepare(before, tiny_params("split=nd", f"train.portable={str(portable).lower()}"))
    held = learned("a", True, {})
    assert held == learned("b", True, OLDER)
    assert held != learned("c", False, OLDER), "the comparison can see it"
