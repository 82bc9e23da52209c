"""Experiments on many machines: each a Ray task, in a clone of its own on the node that runs it.

A node needs git and the Python environment of the project, but no copy of the project: the
committed revision travels to it as a git bundle, and the experiment's commit travels back as one.
The functions that run there are sent by value and use nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from dacr.errors import UserError
from dacr.paper.records import Record
from dacr.paper.repository import git
from dacr.paper.spec import Needs
from dacr.paper.worker import Order, Outcome


class RayEngine:
    """All orders as tasks of a Ray cluster; a task whose worker or node is lost runs again."""

    def __init__(self, root: Path, revision: str, cache: Path, address: str, needs: Needs) -> None:
        self.root, self.revision, self.cache, self.needs = root, revision, cache, needs
        self._ray = connect(address)

    @property
    def jobs(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1) / self.needs.cpus))

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        ray = self._ray
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        task = ray.remote(
            num_cpus=self.needs.cpus, num_gpus=self.needs.gpus, max_retries=self.needs.retries
        )(perform_on_node)
        bundle = ray.put(project_bundle(self.root))
        common = (bundle, self.revision, str(self.cache))
        waiting = {task.remote(asdict(order), *common): order for order in orders}
        try:
            while waiting:
                (ended,), _ = ray.wait(list(waiting), num_returns=1)
                yield outcome_of(ray, ended, waiting.pop(ended))
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)


def connect(address: str) -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise UserError("Ray is not installed; `pip install -c constraints.txt '.[ray]'`") from None
    if address != "auto" and "://" not in address and not answers(address):
        raise UserError(f"no Ray cluster at {address!r} (nobody answers); `ray start --head`")
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"no Ray cluster at {address!r} ({reason}); `ray start --head`"
            ) from None
    return ray


def answers(address: str) -> bool:
    """Whether something listens at host:port, since Ray itself would go on asking for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError):
        return False
    return True


def project_bundle(root: Path) -> bytes:
    """The committed revision with its history, as one file that git can fetch from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "project.bundle"
        git("bundle", "create", "--quiet", str(path), "HEAD", folder=root)
        return path.read_bytes()


def outcome_of(ray: Any, reference: Any, order: Order) -> Outcome:
    try:
        text, bundle = ray.get(reference)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        return Outcome(order.name, error=f"lost by Ray: {lines[-1] if lines else type(error)}")
    content = json.loads(text)
    record = Record.model_validate(content["record"]) if content["record"] else None
    return Outcome(order.name, record, content["error"], bundle)


# -- on a node: standard library only ---------------------------------------------------------


def perform_on_node(
    order: dict[str, Any], bundle: bytes, revision: str, cache: str
) -> tuple[str, bytes]:
    """The outcome of an experiment as ``dacr.paper.worker`` writes it: (JSON, its git bundle)."""
    base = Path(tempfile.gettempdir()) / f"dacr-ray-{getpass.getuser()}"
    code = unpacked(base, bundle, revision)
    with FreeClone(base, order["name"]) as (clone, lock):
        place = {
            "clone": str(clone),
            "source": str(code),
            "revision": revision,
            "cache": cache if os.access(cache, os.W_OK) else str(base / "cache"),
            "downloads": str(base / "downloads"),
            "log": str(base / "logs" / f"{order['name']}.log"),
            "environment": {},
        }
        paper = clone.with_name(f"{clone.name}-order.json")
        outcome = paper.with_suffix(".outcome")
        outcome.unlink(missing_ok=True)
        paper.write_text(json.dumps({"order": order, "place": place}), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "dacr.paper.worker", str(paper)],
            cwd=code, stdin=subprocess.DEVNULL, start_new_session=True,
            pass_fds=(lock.fileno(),),
        )  # fmt: skip
        code_of_exit = process.wait()
        if not outcome.exists():
            error = f"its process on {os.uname().nodename} ended with code {code_of_exit}"
            return json.dumps({"record": None, "error": error}), b""
        return outcome.read_text(encoding="utf-8"), outcome.with_suffix(".bundle").read_bytes()


def unpacked(base: Path, bundle: bytes, revision: str) -> Path:
    """The project at the revision, once a node."""
    code = base / "code" / revision
    code.mkdir(parents=True, exist_ok=True)
    with open(base / "code" / f"{revision}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = code / ".git" / "dacr-unpacked"
        if not done.exists():
            file = base / "code" / f"{revision}.bundle"
            file.write_bytes(bundle)
            for words in (
                ["init", "--quiet"],
                ["fetch", "--quiet", str(file), "HEAD"],
                ["checkout", "--quiet", "--force", "--detach", revision],
            ):
                subprocess.run(["git", *words], cwd=code, check=True, capture_output=True)
            done.touch()
    return code


class FreeClone:
    """A folder for a clone on this node that nobody uses, held by its lock.

    Best the one in which the experiment was interrupted before.
    """

    def __init__(self, base: Path, name: str) -> None:
        self.folder, self.name = base / "clones", name
        self._lock: IO[str] | None = None

    def __enter__(self) -> tuple[Path, IO[str]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        known = sorted(self.folder.glob("[0-9]*.lock"), key=lambda f: (not self._began(f), f.name))
        names = [file.stem for file in known]
        for stem in [*names, *(f"{i:04d}" for i in range(len(names), len(names) + 1000))]:
            lock = open(self.folder / f"{stem}.lock", "a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            self._lock = lock
            return self.folder / stem, lock
        raise OSError("a thousand clones are in use")

    def _began(self, lock: Path) -> bool:
        mark = self.folder / lock.stem / ".git" / "dacr-experiment"
        return mark.exists() and mark.read_text(encoding="utf-8") == self.name

    def __exit__(self, *error: object) -> None:
        if self._lock:
            self._lock.close()
