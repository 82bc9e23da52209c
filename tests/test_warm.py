"""A warm Python is like a real one to whoever starts it: all tests that start one rest on it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_project import environment, warm_environment

TOLD = """\
import atexit, json, os, sys, weakref

class Kept: pass
kept = Kept()
weakref.finalize(kept, print, "finalized")
atexit.register(print, "left")
told = [sys.argv[1:], os.getcwd(), os.environ["ODD"], sys.stdin.read(), __name__]
print(json.dumps(told))
print("aside", file=sys.stderr)
sys.exit(3)
"""


def folder_with(folder: Path, script: str) -> Path:
    (folder / "stages").mkdir(exist_ok=True)
    (folder / "stages/__init__.py").touch()
    (folder / "stages/told.py").write_text(script, encoding="utf-8")
    return folder


def told(folder: Path, own: dict[str, str], *words: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        ["python", "-m", "stages.told", *words], cwd=folder, env=own, input="in", text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def test_what_it_is_given_and_what_it_gives_back(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, TOLD)
    words = ("a b", "", "two\nlines", "ü=1", "--flag=x")
    odd = {"ODD": " =\n'ü"}
    code, said, aside = told(folder, warm_environment(**odd), *words)
    assert (code, aside) == (3, "aside\n")
    first, *rest = said.splitlines()
    assert json.loads(first) == [[*words], str(folder), odd["ODD"], "in", "__main__"]
    assert sorted(rest) == ["finalized", "left"], "it does at its end what it registered"
    assert (code, said, aside) == told(folder, environment(**odd), *words), "as a real one does"


def test_it_runs_the_code_that_is_there_now(tmp_path: Path) -> None:
    for number in range(3):
        folder = folder_with(tmp_path, f"print({number})\n" * (1 + number))
        assert told(folder, warm_environment())[1].split() == [str(number)] * (1 + number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_is_told_to_end_or_kills_itself_ends_by_that_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    at_once = f"os.kill(os.getpid(), {int(number)})" if number == signal.SIGKILL else ""
    script = f"import os, time\nprint('begun', flush=True)\n{at_once}\ntime.sleep(3600)\n"
    folder = folder_with(tmp_path, script)
    with subprocess.Popen(
        ["python", "-m", "stages.told"], cwd=folder, env=warm_environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        if number == signal.SIGTERM:
            process.terminate()
        assert process.wait() == -number


def test_many_at_a_time_each_get_their_own_answer(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "import sys\nprint(sys.argv[1])\nsys.exit(int(sys.argv[1]))\n")
    own = warm_environment()
    started = [
        subprocess.Popen(
            ["python", "-m", "stages.told", str(n)], cwd=folder, env=own, stdout=subprocess.PIPE
        )
        for n in range(20)
    ]
    ends = [(process.communicate()[0], process.returncode) for process in started]
    assert ends == [(f"{n}\n".encode(), n) for n in range(20)]


def test_everything_else_is_done_by_the_real_python() -> None:
    own = warm_environment()
    asked = ["python", "-c", "import sys; print(sys.executable, 'torch' in sys.modules)"]
    said = subprocess.run(asked, env=own, capture_output=True, text=True, check=True).stdout
    assert said.split() == [sys.executable, "False"]
