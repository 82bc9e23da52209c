"""A warm Python is like a real one to whoever starts it: all tests that start one rest on it."""

import array
import io
import json
import signal
import socket
import subprocess
import sys
from collections import OrderedDict
from datetime import date
from inspect import unwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from dvc.utils.serialize import _yaml
from omegaconf import DictConfig, OmegaConf

from tests.tiny_project import ROOT, environment, warm_environment
from tests.warm import YamlMemory, loader

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
    script = f"import os, time\nprint(os.getpid(), flush=True)\n{at_once}\ntime.sleep(3600)\n"
    folder = folder_with(tmp_path, script)
    with subprocess.Popen(
        ["python", "-m", "stages.told"], cwd=folder, env=warm_environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        if number == signal.SIGTERM:
            process.terminate()
        assert process.wait() == -number
    assert not psutil.pid_exists(fork), "the one who ends is the one who works"


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


def test_who_is_killed_while_it_asks_spoils_nothing(tmp_path: Path) -> None:
    folder, own = folder_with(tmp_path, "print('here')\n"), warm_environment()
    address = f"{own['PATH'].partition(':')[0]}/socket"
    for request in (b"", b"\0\0\0\x09", b"\0\0\0\x09" + b"12345"):
        with socket.socket(socket.AF_UNIX) as dying:
            dying.connect(address)
            if request:
                streams = array.array("i", [0, 1, 2])
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
                dying.sendmsg([request[:4]], rights)
                dying.sendall(request[4:])
        assert told(folder, own)[1] == "here\n"


def test_everything_else_is_done_by_the_real_python() -> None:
    own = warm_environment()
    asked = ["python", "-c", "import sys; print(sys.executable, 'torch' in sys.modules)"]
    said = subprocess.run(asked, env=own, capture_output=True, text=True, check=True).stdout
    assert said.split() == [sys.executable, "False"]


ODD = {
    "lr": 1e-05, "off": -0.0, "whole": 1.0, "text": "1.0", "key": "01", "yes": "no", "none": None,
    "day": date(2020, 1, 1), 1: "a number", "lines": "a\nb", "signs": "a: b # c", "empty": [[], {}],
    "long": "words " * 40, "all": [True, [1, [2]], {"a": {"b": [{"c": "ü"}]}}],
}  # fmt: skip
"""Parameters that a stage may have."""
COMMITTED = (ROOT / "dvc.lock").read_text(encoding="utf-8")
LOCKS = {
    "committed": COMMITTED,
    "none": "",
    "empty": "schema: '2.0'\nstages: {}\n",
    "by another writer": yaml.safe_dump(yaml.safe_load(COMMITTED)),
    "in another style": "schema: '2.0'\nstages:\n    b: {cmd: x, deps: [{path: y}]}\n",
    "with a comment": "schema: '2.0'\n# kept\nstages:\n  a:\n    cmd: x  # this, too\n",
}


def own_yaml() -> tuple[Any, Any]:
    """DVC's own functions, which the tests' own process has replaced."""
    memory = _yaml.parse_yaml.__self__
    return memory._parse, memory._dump


@pytest.mark.parametrize("text", LOCKS.values(), ids=LOCKS.keys())
def test_dvc_reads_and_writes_with_a_memory_what_it_does_without(text: str) -> None:
    """Read, changed and written three times over: the same bytes each time."""
    plain_parse, plain_dump = own_yaml()
    memory = YamlMemory(plain_parse, plain_dump)
    plain, fast = text, text
    for number in range(3):
        assert memory.parse(fast, "dvc.lock") == plain_parse(plain, "dvc.lock")
        data, own = (
            plain_parse(plain, "dvc.lock", typ="rt"),
            memory.parse_for_update(fast, "dvc.lock"),
        )
        for lock in (data, own):
            stages = lock.setdefault("stages", {})
            stages[f"new@{number}"] = OrderedDict(cmd="new", params={"params.yaml": ODD})
            stages.pop("new@0" if number == 1 else "build", None)
        before, after = io.StringIO(), io.StringIO()
        plain_dump(data, before)
        memory.dump(own, after)
        plain, fast = before.getvalue(), after.getvalue()
        assert fast == plain
    assert type(memory.parse_for_update(COMMITTED, "dvc.lock")) is dict, "not by the slow parser"
    memory.parse(fast, "dvc.lock").clear()
    assert memory.parse(fast, "dvc.lock"), "who changes what was read changes no memory"


@pytest.mark.parametrize(
    "text", ["a: 1\nb: ${a}\nc: ???\n", "", "# a comment", "- 1\n- {x: null}\n"]
)
def test_hydra_reads_with_a_memory_what_it_does_without(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    plain = unwrap(OmegaConf.load)
    load = loader(plain)
    for _ in range(2):
        with (tmp_path / "own.yaml").open() as file:
            own = load(file)
        assert own == plain(tmp_path / "own.yaml")
        assert (own._metadata, type(own)) == (plain(tmp_path / "own.yaml")._metadata, type(own))
        if isinstance(own, DictConfig):
            own.more = 1  # changes no memory


def test_hydra_names_the_file_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("a: [")
    with (tmp_path / "own.yaml").open() as file, pytest.raises(yaml.YAMLError, match=r"own\.yaml"):
        loader(unwrap(OmegaConf.load))(file)
