"""Pythons that have torch and DVC loaded: what tests start begins in milliseconds, not seconds.

``warm_path()`` is a folder for the front of ``PATH``. Its ``python -m stages.…``,
``python -m dacr`` and ``dvc`` ask a server, which has loaded packages of others and nothing of the
project, for a fork of itself. The fork has the arguments, the folder, the environment and the
streams of whoever asked, and loads the project's code from its folder as any Python does, so that
edited code is run. Everything else that ``python`` is asked for is done by the real one.

``warm_shell()`` is a shell with that ``PATH``: as ``SHELL`` it reaches the stages of a DVC that was
started with another one.

A signal to the one who asked reaches the fork, except for SIGKILL, and a fork is in a group of its
own: tests that kill a group use real processes (``environment`` and not ``warm_environment``), and
so do those of how Python starts. Who works may be killed by its own number.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import io
import os
import pickle
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, TextIO

LOADED = (
    *("numpy", "scipy.optimize", "PIL.ImageDraw", "PIL.ImageFont", "matplotlib.font_manager"),
    *("pandas", "pandas.core.reshape.reshape", "pandas.io.formats.csvs", "pyarrow.parquet"),
    *("pyarrow.dataset", "pyarrow.pandas_compat", "sklearn.datasets", "sklearn.manifold", "jinja2"),
    *("pydantic.main", "pydantic.types", "pydantic.plugin._loader", "omegaconf", "yaml", "hydra"),
    *("rich.console", "rich._emoji_codes", "ruamel.yaml", "filelock", "safetensors.torch", "torch"),
    *("torch._dynamo", "torch.utils.flop_counter", "networkx", "requests", "html.parser"),
    *("celery.app.base", "celery.app.task", "celery.backends.filesystem", "kombu.connection"),
    *("kombu.transport.filesystem", "kombu.transport.virtual", "pygit2", "dulwich.porcelain"),
    *("scmrepo.git.backend.dulwich", "scmrepo.git.backend.pygit2.filter", "dvc_task.app"),
    *("dvc.cli", "dvc.repo", "dvc.repo.experiments", "dvc.repo.experiments.queue.celery"),
    *("dvc.repo.artifacts", "dvc.repo.datasets", "dvc.repo.plots", "dvc.repo.stage", "dvc.render"),
    *("dvc.commands.repro", "dvc.commands.experiments", "dvc.utils.hydra", "dvc_render.vega"),
    *("dvc_render.html", "dvc_render.plotly", "dvc_render.image", "dvc_studio_client.env"),
    *("dvc_data.index.checkout", "dvc_data.index.fetch", "dvc_data.hashfile.db.local"),
    *("voluptuous.humanize", "fsspec.implementations.memory", "importlib.resources.readers"),
    *("dvc_s3", "s3fs", "aiobotocore.session", "botocore.parsers", "tabulate"),
)
"""What the stages and DVC import, of others."""

CLIENT = """#!{python} -ISE
import os, sys
if not ({asked}):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
import array, _signal, _socket  # what socket and signal load is half of a start
passed_on = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)
_signal.pthread_sigmask(_signal.SIG_BLOCK, passed_on)  # until there is a fork to tell
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
settings = [os.fsencode(name) + b"=" + os.fsencode(own) for name, own in os.environ.items()]
words = [os.fsencode(word) for word in ({command!r}, os.getcwd(), *sys.argv[1:])]
request = b"\\0".join([b"%d" % len(words), *words, *settings])
streams = array.array("i", [0, 1, 2])
rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
server.sendmsg([len(request).to_bytes(4, "big")], rights)
while request:
    request = request[server.send(request):]
def answer():
    line = b""
    while not line.endswith(b"\\n"):
        letter = server.recv(1)  # and none of the next answer, which may be there already
        if not letter:
            os._exit(1)
        line += letter
    return int(line)
fork = answer()
for number in passed_on:
    _signal.signal(number, lambda number, _: os.kill(fork, number))
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, passed_on)
status = answer()
if status < 0:
    if status != -_signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""

SHELL = """#!/bin/sh
case "$*" in
{real}) ;;
*) PATH="{folder}:$PATH" ;;
esac
exec /bin/sh "$@"
"""

WARM = "DACR_TESTS_PYTHON"
"""Whose environment has it starts warm Pythons itself where it asks for its own."""
SHARED = "DACR_TESTS_WARM"
"""The folder of a server that several processes ask; whoever made the folder is its owner."""


def share_server(soon: bool) -> None:
    """Let the processes that this one starts ask one server, which the first to ask starts.

    If they will ask ``soon``, it is started while they load what they need themselves.
    """
    os.environ[SHARED] = str(_own_folder())
    if soon:
        threading.Thread(target=warm_path, daemon=True).start()


def _own_folder() -> Path:
    """A folder for a server that ends with this process, however that ends."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    os.mkfifo(folder / "owner")
    os.open(folder / "owner", os.O_RDWR)  # open for as long as this process lives
    return folder


@cache
def warm_path() -> str:
    """The folder of the commands, whose server is there."""
    from filelock import FileLock  # the server itself needs none

    folder = Path(os.environ[SHARED]) if SHARED in os.environ else _own_folder()
    with FileLock(folder / "lock"):
        if not (folder / "python").exists():
            _start_server(folder)
            _write_commands(folder)
    return str(folder)


def _start_server(folder: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, __file__, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"


def _write_commands(folder: Path) -> None:
    ours = ("dacr", "dvc", "stages", "tests")
    started = f'sys.argv[1:2] == ["-m"] and sys.argv[2].split(".")[0] in {ours}'
    address = str(folder / "socket")
    commands = {
        "sh": SHELL.format(folder=folder, real="''"),
        "sh-learn": SHELL.format(folder=folder, real="*stages.learn*"),
    }
    for command, asked in (("dvc", "True"), ("python", started)):
        commands[command] = CLIENT.format(
            python=sys.executable, asked=asked, address=address, command=command
        )
    for name, text in commands.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)


def warm_shell(kill_learn: bool = False) -> str:
    """For ``SHELL``, by which DVC runs stages; ``learn`` is a real one if it is to be killed."""
    return f"{warm_path()}/{'sh-learn' if kill_learn else 'sh'}"


# -- the server -------------------------------------------------------------------------------


def serve(folder: Path) -> None:
    """Fork for whoever asks, until the folder's owner has ended."""
    ended = os.open(folder / "owner", os.O_RDONLY)
    for name in LOADED:
        with suppress(ImportError):  # what an environment does not have is not needed there
            __import__(name)
    remember_yaml()
    leave_nothing_to_do_at_exit()
    gc.collect()
    gc.freeze()  # a fork that collected garbage would copy every page of what is loaded
    gather_pages()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.listen(64)
    forks: dict[int, socket.socket] = {}
    children, woken = os.pipe()
    for end in (children, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening.fileno(), children, ended], [], [])
        if ended in ready:
            os._exit(0)
        if children in ready:
            os.read(children, 4096)
            tell_ends(forks)
        if listening.fileno() in ready:
            client, _ = listening.accept()
            with suppress(OSError, LookupError, ValueError):  # who asked was killed meanwhile
                attend(client, forks, [listening.fileno(), children, woken, ended])


def remember_yaml() -> None:
    """DVC neither parses the same text twice nor writes again what is as it was; Hydra as well.

    DVC reads dvc.lock and dvc.yaml dozens of times and writes all of dvc.lock for every stage, with
    a parser and a writer in Python: half of the time of a tiny pipeline. Hydra reads the same few
    files for every composition. Objects and bytes are the same as without this.
    """
    with suppress(ImportError):
        from dvc.utils.serialize import _yaml

        memory = YamlMemory(_yaml.parse_yaml, _yaml._dump)
        _yaml.parse_yaml, _yaml.parse_yaml_for_update = memory.parse, memory.parse_for_update
        _yaml._dump = memory.dump
    with suppress(ImportError):
        from omegaconf import OmegaConf

        OmegaConf.load = staticmethod(loader(OmegaConf.load))  # type: ignore[assignment, method-assign]


def loader(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``OmegaConf.load``, with a memory of texts."""
    loaded: dict[str, bytes] = {}

    @wraps(load)
    def remembered(file: Any) -> Any:
        if not hasattr(file, "read"):
            return load(file)
        text = file.read()
        if text not in loaded:
            file.seek(0)
            loaded[text] = pickle.dumps(load(file))
        return pickle.loads(loaded[text])

    return remembered


STYLE = re.compile(r"[#&*|>!]|\{(?!\})|\[(?!\])")
"""In a YAML text without it there is no comment, and all is written as DVC writes."""


class YamlMemory:
    """DVC's functions that read and write YAML, with a memory."""

    def __init__(self, parse: Callable[..., Any], dump: Callable[[Any, TextIO], object]) -> None:
        self._parse, self._dump = parse, dump
        self._parsed: dict[str, bytes] = {}
        self._stages: dict[str, str] = {}

    def parse(self, text: str, path: str, typ: str = "safe") -> Any:
        if typ != "safe":
            return self._parse(text, path, typ)
        if text not in self._parsed:
            self._parsed[text] = pickle.dumps(self._parse(text, path, typ))
        return pickle.loads(self._parsed[text])

    def parse_for_update(self, text: str, path: str) -> Any:
        # What is written is the same from a plain dict, if there is no comment or style to keep.
        plain = text.startswith("schema: ") and not STYLE.search(text)
        return self.parse(text, path, "safe" if plain else "rt")

    def dump(self, data: Any, stream: TextIO) -> None:
        """Of a lock, only the stages that it has not written before."""
        plain = type(data) is dict  # and none with comments
        if not plain or list(data) != ["schema", "stages"] or not data["stages"]:
            self._dump(data, stream)
            return
        stages = [self._stage(*own) for own in data["stages"].items()]
        text = "".join([self._text({"schema": data["schema"]}), "stages:\n", *stages])
        stream.write(text)
        self._parsed[text] = pickle.dumps(data)

    def _stage(self, name: str, stage: Any) -> str:
        key = repr((name, stage))
        if key not in self._stages:
            self._stages[key] = self._text({"stages": {name: stage}}).partition("\n")[2]
        return self._stages[key]

    def _text(self, data: Any) -> str:
        text = io.StringIO()
        self._dump(data, text)
        return text.getvalue()


def leave_nothing_to_do_at_exit() -> None:
    """A fork ends with what it has registered itself, and not with what torch does at its end."""
    atexit._clear()
    for own in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        own.atexit = False
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]


COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1
LARGE = 2 << 20


def gather_pages() -> None:
    """Let memory lie in pages of 2 MB, where the system can: a fork copies a table of all pages."""
    with suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, *_, inode = line.split()[:5]
            if "w" in rights and inode == "0":  # of no file
                start, end = (int(number, 16) for number in place.split("-"))
                first, last = -(-start // LARGE) * LARGE, end // LARGE * LARGE
                if first < last:
                    advise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), COLLAPSE)


def attend(client: socket.socket, forks: dict[int, socket.socket], own: list[int]) -> None:
    """Start what one client asks for, in a fork that keeps nothing of the server open."""
    streams = array.array("i")
    size, rights, _, _ = client.recvmsg(4, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(rights[0][2])
    wanted = int.from_bytes(size, "big")
    text = b""
    while len(text) < wanted:
        more = client.recv(wanted - len(text))
        if not more:
            raise ConnectionResetError
        text += more
    count, *parts = map(os.fsdecode, text.split(b"\0"))
    (command, folder, *arguments), settings = parts[: int(count)], parts[int(count) :]
    environment = dict(setting.split("=", 1) for setting in settings)
    fork = os.fork()
    if fork == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (client.fileno(), *(other.fileno() for other in forks.values()), *own):
            os.close(number)
        become(command, arguments, folder, environment, list(streams))
    for stream in streams:
        os.close(stream)
    forks[fork] = client
    client.sendall(f"{fork}\n".encode())


def tell_ends(forks: dict[int, socket.socket]) -> None:
    """Tell whoever waits for a fork that has ended how it did."""
    with suppress(ChildProcessError):  # none is left
        while True:
            fork, status = os.waitpid(-1, os.WNOHANG)
            if fork == 0:
                return
            with suppress(OSError), forks.pop(fork) as client:
                client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def become(
    command: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    streams: list[int],
) -> None:
    """Be the process that was asked for, to its end."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, encoding="utf-8")
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if own := environment.get(WARM):
        sys.executable = own
    status = 1
    try:
        if command == "dvc":
            arguments = ["-m", "dvc", *arguments]
        if arguments[1] == "dvc":
            from dvc.cli import main

            sys.argv = ["dvc", *arguments[2:]]
            status = main(arguments[2:]) or 0
        else:
            places = [place for place in environment.get("PYTHONPATH", "").split(":") if place]
            sys.path[:0] = [folder, *places]
            sys.argv = arguments[1:]
            sys.modules["__main__"] = types.ModuleType("__main__")
            runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
            status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file is no place for modules
    serve(Path(sys.argv[1]))
