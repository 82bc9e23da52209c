"""What runs on the machine of an experiment: a worker process, and on a Ray node its surroundings.

Ray sends these functions by value: a node needs no copy of the project, so they use nothing but the
standard library.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

WORKER = (sys.executable, "-m", "dacr.experiments.worker")
PAUSE = 0.05  # seconds between two looks at processes that should end
PATIENCE = 20.0  # seconds that they have


def start_worker(
    job: str, folder: Path, log: Path, fds: Sequence[int] = (), command: Sequence[str] = WORKER
) -> subprocess.Popen[bytes]:
    """A worker in a process group of its own, with its output in ``log``.

    It reads its job from its standard input and ends when that ends, as it does when this process
    is gone.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, pass_fds=fds,
        )  # fmt: skip
    assert process.stdin
    with suppress(BrokenPipeError):  # it has ended already, and left its reason in the log
        process.stdin.write(f"{job}\n".encode())
        process.stdin.flush()
    return process


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill these workers with everything that they started. Checkpoints are written whole."""
    until = time.monotonic() + PATIENCE
    while sum(_kill_group(process) for process in processes) and time.monotonic() < until:
        time.sleep(PAUSE)


def _kill_group(process: subprocess.Popen[bytes]) -> bool:
    """Whether there still was one to kill."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS, of a group whose processes have all ended
        pass
    process.poll()
    return True


def finished(process: subprocess.Popen[bytes]) -> int:
    """How a worker ended; it leaves no process behind, however it or we end."""
    try:
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS before Python 3.13
            process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):  # there, if nothing is left of it
            os.killpg(process.pid, signal.SIGKILL)  # not yet reaped, so the group is still its own
    return process.wait()


def no_result(name: str, log: str, code: int) -> dict[str, Any]:
    """The outcome of a worker that left none."""
    last = (log.strip().splitlines() or [f"code {code}"])[-1][:300]
    return {"name": name, "error": f"its process ended without a result: {last}"}


# -- on a node of a Ray cluster ---------------------------------------------------------------


def perform_on_node(
    order: dict[str, Any], bundle: bytes, revision: str, mark: str, push: str
) -> tuple[str, str]:
    """An experiment at a revision of the project: (its outcome in JSON, its log).

    The worker is a process of its own: it runs the code of that revision, and can be ended together
    with DVC and the stages.
    """
    base = own_folder()
    code = unpacked(base, bundle, revision)
    shared = os.access(mark, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="task-", dir=base) as folder:
        log, outcome = Path(folder) / "log", Path(folder) / "outcome"
        place = {
            "base": str(base),
            "source": str(code),
            "revision": revision,
            "cache": str(Path(mark).parent if shared else base / "cache"),
            "shared": shared,
            "downloads": str(base / "downloads"),
            "log": str(log),
            "outcome": str(outcome),
            "push": push,
        }
        ended = finished(start_worker(json.dumps({"order": order, "place": place}), code, log))
        said = log.read_text("utf-8", "replace")
        if outcome.exists():
            return outcome.read_text(encoding="utf-8"), said
    host = os.uname().nodename
    if ended < 0:  # as on a machine that has no memory left; Ray tries again
        name = signal.Signals(-ended).name
        raise ChildProcessError(f"the experiment on {host} was ended by {name}")
    return json.dumps(no_result(order["name"], said, ended)), said


def own_folder() -> Path:
    """Where a node keeps clones: no other user can put code there for us to run."""
    base = Path(tempfile.gettempdir()) / f"dacr-ray-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} belongs to another user; set TMPDIR where Ray is started")
    return base


def unpacked(base: Path, bundle: bytes, revision: str) -> Path:
    """The project at the revision, once per node."""
    code = base / "code" / revision
    code.parent.mkdir(exist_ok=True)
    with open(code.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = code / ".git" / "dacr-unpacked"
        if not done.exists():
            shutil.rmtree(code, ignore_errors=True)  # half unpacked by one that was killed
            code.mkdir()
            file = code.with_suffix(".bundle")
            file.write_bytes(bundle)
            for words in (
                ["init", "--quiet"],
                ["fetch", "--quiet", str(file), "HEAD"],
                ["checkout", "--quiet", "--force", "--detach", revision],
            ):
                subprocess.run(["git", *words], cwd=code, check=True, capture_output=True)
            file.unlink()
            done.touch()
    return code
