"""A process that has torch, dacr and DVC loaded and forks commands: none of them costs an import.

``python -m benchmarks.faults.nursery <socket>`` is the process. ``write_clients`` makes a folder
with ``python``, ``dvc`` and ``dacr`` that ask it: such a client hands over its arguments, folder,
environment, user and streams, waits, and ends as the command ended. A shell or DVC that finds them
first in PATH notices no difference.

The forked process leaves its number as a file in the folder FAULTS_PIDS, so that a round finds it:
it is no child of the client.
"""

from __future__ import annotations

import encodings
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import SupportsIndex

SYSTEM = "/usr/bin/python3"
CLIENT = """\
#!{client} -IS
import json, os, signal, socket, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
if words[0] == "python" and words[1:3] != ["-m", "dacr"] and not (
    words[1:2] == ["-m"] and words[2].startswith("stages.")
):
    os.execv("{python}", ["{python}", *words[1:]])
signal.signal(signal.SIGINT, signal.SIG_IGN)  # the fork hears it, and tells how it ended
asked = {{"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}}
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{address}")
    text = json.dumps(asked).encode()
    socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(text)
    answer = server.recv(64)
code = int(answer or b"97")
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
SHOWING = {"antigravity", "this", "idlelib", "turtle", "turtledemo", "tkinter", "lib2to3"}
"""Modules of Python that do something when they are imported, or nothing without a screen."""
PROGRAMS = ("python", "dvc", "dacr")


def write_clients(folder: Path, address: Path) -> None:
    folder.mkdir(parents=True)
    # Whatever any user can start; it needs nothing but the standard library.
    client = SYSTEM if Path(SYSTEM).exists() else sys.executable
    for name in PROGRAMS:
        text = CLIENT.format(client=client, python=sys.executable, address=address)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def load() -> None:
    """Everything that a command imports; nothing is called that would start a thread."""
    import torch
    import torch._dynamo
    import torch._inductor.config
    from dvc.cli.parser import get_main_parser

    import dacr.__main__
    from dacr.runtime.code import STAGES

    assert torch._dynamo
    torch.set_num_threads(1)
    get_main_parser()
    for name in ("code", *STAGES):
        import_module(f"stages.{name}")
    for name in dacr.__main__.COMMANDS:
        import_module(f"dacr.cli.{name}")
    # The user `nobody` may not be able to read the files of this Python.
    for name in sorted(sys.stdlib_module_names - SHOWING - set(sys.modules)):
        with suppress(ImportError):
            import_module(name)
    for file in Path(encodings.__file__ or "").parent.glob("*.py"):
        with suppress(ImportError):
            import_module(f"encodings.{file.stem}")
    for name in (
        "dacr.sessions.consolidate", "dacr.sessions.learn", "dacr.sessions.start",
        "dacr.sessions.predict", "dacr.methods.der_dacr", "dacr.methods.ucir_dacr",
        "dacr.methods.icarl", "dacr.methods.finetune", "dacr.evaluation.evaluate",
        "dacr.evaluation.measures", "dacr.experiments.budget", "dacr.report.run",
        "dacr.report.verified", "dacr.experiments.verification.replay",
        "dacr.data.sources.npz", "dacr.scenarios.exports.writing", "sklearn.manifold",
        "dvc.cli", "dvc.repo.reproduce", "dvc.repo.experiments.run", "dvc.stage.run",
        "dvc.repo.experiments.executor.local", "dvc.repo.experiments.queue.workspace",
        "dvc.repo.experiments.queue.tempdir", "dvc.utils.hydra", "hydra", "dvc_objects.fs.local",
    ):  # fmt: skip
        import_module(name)


def sleep_without_a_clock() -> None:
    """libfaketime refuses Python's sleep after a jump, which waits until a time; no kernel does."""

    def sleep(seconds: float | SupportsIndex, /) -> None:
        select.select([], [], [], float(seconds))

    time.sleep = sleep


def program(words: list[str]) -> Callable[[], object]:
    """What ``words`` would start, in this process."""
    import dvc.cli

    import dacr.__main__
    from dacr.runtime.stage import run_stage

    match words:
        case ["dvc", *rest]:
            return lambda: sys.exit(dvc.cli.main(rest))
        case ["dacr", *rest] | ["python", "-m", "dacr", *rest]:
            sys.argv = ["dacr", *rest]
            return dacr.__main__.main
        case ["python", "-m", module, *rest]:
            sys.argv = [module, *rest]
            main = import_module(module).main
            return lambda: run_stage(main)
    raise ValueError(f"no program for {words}")


def serve(address: Path) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        address.chmod(0o777)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                keep(connection)
            connection.close()


def keep(connection: socket.socket) -> None:
    """Fork the command, wait for it, tell the client how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        head, streams, _, _ = socket.recv_fds(connection, 8, 3)
        text = b""
        while len(text) < int.from_bytes(head, "big"):
            text += connection.recv(1 << 16)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, group = struct.unpack("3i", credentials)
        asked = json.loads(text)
        pids = Path(asked["environment"]["FAULTS_PIDS"])
        child = os.fork()
        if child == 0:
            connection.close()
            live(asked, streams, user, group)
        for stream in streams:  # a pipe ends when the command ends, not when its keeper does
            os.close(stream)
        _, status = os.waitpid(child, 0)
        (pids / str(child)).unlink(missing_ok=True)
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    except OSError:
        pass  # the client was killed
    finally:
        os._exit(0)


def live(asked: dict[str, object], streams: list[int], user: int, group: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        environment = asked["environment"]
        assert isinstance(environment, dict)
        os.environ.clear()
        os.environ.update(environment)
        (Path(os.environ["FAULTS_PIDS"]) / str(os.getpid())).touch()
        if os.getuid() != user:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
        os.chdir(str(asked["folder"]))
        words = asked["words"]
        assert isinstance(words, list)
        program([str(word) for word in words])()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            code = code or 120
        os._exit(code)


if __name__ == "__main__":
    load()
    if "FAKETIME_TIMESTAMP_FILE" in os.environ:
        sleep_without_a_clock()
    serve(Path(sys.argv[1]))
