"""Experiments on many machines: each a Ray task, in a clone of its own on the node that runs it.

A node needs git and the Python environment of the project, but no copy of the project: the
committed revision travels to it as a git bundle, and the experiment's commit travels back as one,
and by ``dvc exp push`` to a git remote where ``ray.push`` names one.
The functions that run there are sent by value and use nothing but the standard library.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from dacr.errors import UserError
from dacr.experiments.engine import Project
from dacr.experiments.records import Record
from dacr.experiments.tables import Needs
from dacr.experiments.worker import Order, Outcome
from dacr.runtime.git import git

PATIENCE = 30.0  # seconds that a killed experiment has to leave its clone
PAUSE = 0.1


class RayEngine:
    """All orders as tasks of a Ray cluster; a task whose worker or node is lost runs again."""

    def __init__(self, project: Project, address: str, needs: Needs) -> None:
        self.project, self.needs = project, needs
        self._push = address_of(needs.push, project.root) if needs.push else ""
        self._ray = connect(address)
        self._jobs = slots(self._ray.nodes(), needs)
        if not self._jobs:
            # Ray would wait without a word for a node that has them.
            raise UserError(
                f"no node of the Ray cluster has {needs.cpus:g} CPUs and {needs.gpus:g} GPUs, "
                "which `ray:` in conf/paper.yaml asks for an experiment"
            )

    @property
    def jobs(self) -> int:
        return self._jobs

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        ray, project = self._ray, self.project
        mark = leave_mark(project.cache)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        task = ray.remote(
            num_cpus=self.needs.cpus, num_gpus=self.needs.gpus, max_retries=self.needs.retries,
            retry_exceptions=[ChildProcessError],
        )(perform_on_node)  # fmt: skip
        bundle = ray.put(project_bundle(project.root))
        common = (bundle, project.revision, str(mark), self._push)
        waiting = {task.remote(asdict(order), *common): order for order in orders}
        try:
            while waiting:
                (ended,), _ = ray.wait(list(waiting), num_returns=1)
                yield self._outcome(ended, waiting.pop(ended))
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)
            mark.unlink(missing_ok=True)

    def _outcome(self, reference: Any, order: Order) -> Outcome:
        """What a task gave back, its log beside those of local experiments."""
        try:
            text, bundle, log = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            log = str(error).strip() or type(error).__name__
            outcome = Outcome(order.name, error=f"lost by Ray: {log.splitlines()[-1][:300]}")
        else:
            content = json.loads(text)
            record = Record.model_validate(content["record"]) if content["record"] else None
            outcome = Outcome(order.name, record, content["error"], bundle)
        path = self.project.scratch / "logs" / f"{order.name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log, encoding="utf-8")
        return outcome


def slots(nodes: Iterable[dict[str, Any]], needs: Needs) -> int:
    """How many experiments the living nodes have room for, each on one node."""
    asked = {"CPU": needs.cpus, "GPU": needs.gpus}
    living = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(
        min(int(has.get(kind, 0) / amount + 1e-6) for kind, amount in asked.items() if amount)
        for has in living
    )


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
        except (ConnectionError, ValueError, RuntimeError) as error:
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


def address_of(remote: str, root: Path) -> str:
    """Of a git remote, as a node needs it: the project's name for it means nothing there."""
    known = remote in git("remote", folder=root).split()
    if not known and "/" not in remote and ":" not in remote:
        raise UserError(
            f"`ray:` in conf/paper.yaml: push: {remote} is neither a git remote of the project "
            "nor an address; `git remote -v` lists them"
        )
    address = git("remote", "get-url", "--push", remote, folder=root) if known else remote
    folder = root / address
    return str(folder.resolve()) if folder.is_dir() else address


def leave_mark(cache: Path) -> Path:
    """A file in the cache that no other has: a node that sees it shares the cache.

    The path alone would not tell: a project may lie at the same one on machines that share nothing.
    """
    cache.mkdir(parents=True, exist_ok=True)
    mark = cache / f"dacr-{uuid.uuid4().hex}"
    mark.touch()
    return mark


def project_bundle(root: Path) -> bytes:
    """The committed revision with its history, as one file that git can fetch from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "project.bundle"
        git("bundle", "create", "--quiet", str(path), "HEAD", folder=root)
        return path.read_bytes()


# -- on a node: standard library only ---------------------------------------------------------


def perform_on_node(
    order: dict[str, Any], bundle: bytes, revision: str, mark: str, push: str
) -> tuple[str, bytes, str]:
    """An experiment by ``dacr.experiments.worker``: (outcome in JSON, its git bundle, its log).

    A process of its own, so that it runs the project's revision and not what Ray's worker has
    imported, and so that it can be ended together with DVC and the stages.
    """
    base = own_folder()
    code = unpacked(base, bundle, revision)
    with FreeClone(base, order["name"]) as (clone, lock):
        paper, outcome, result, log, said = (
            clone.with_name(f"{clone.name}.{kind}")
            for kind in ("json", "outcome", "bundle", "log", "said")
        )
        for file in (outcome, result, log):
            file.unlink(missing_ok=True)
        shared = os.access(mark, os.W_OK)
        place = {
            "clone": str(clone),
            "source": str(code),
            "revision": revision,
            "cache": str(Path(mark).parent if shared else base / "cache"),
            "shared": shared,
            "downloads": str(base / "downloads"),
            "log": str(log),
            "push": push,
            "environment": {},
        }
        paper.write_text(json.dumps({"order": order, "place": place}), encoding="utf-8")
        ended = finished(
            [sys.executable, "-m", "dacr.experiments.worker", str(paper)], code, said, lock
        )
        story = "".join(file.read_text("utf-8", "replace") for file in (log, said) if file.exists())
        if outcome.exists():
            return outcome.read_text(encoding="utf-8"), result.read_bytes(), story
    if ended < 0:  # as by a machine that has no memory left; Ray tries again
        name = signal.Signals(-ended).name
        raise ChildProcessError(f"the experiment on {os.uname().nodename} was ended by {name}")
    last = (story.strip().splitlines() or [f"code {ended}"])[-1][:300]
    error = f"its process on {os.uname().nodename} ended without a result: {last}"
    return json.dumps({"record": None, "error": error}), b"", story


def finished(command: list[str], folder: Path, said: Path, lock: IO[str]) -> int:
    """How the command ended; it leaves no process behind, however it or we end."""
    with open(said, "wb") as complaints:
        process = subprocess.Popen(
            [*command, str(os.getpid())], cwd=folder, stdin=subprocess.DEVNULL, stdout=complaints,
            stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(lock.fileno(),),
        )  # fmt: skip
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # not yet reaped, so the group is still its own
    return process.wait()


def own_folder() -> Path:
    """Where a node keeps clones: nobody else can put code there for us to run."""
    base = Path(tempfile.gettempdir()) / f"dacr-ray-{os.getuid()}"
    base.mkdir(mode=0o700, exist_ok=True)
    if base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} belongs to another user; set TMPDIR where Ray is started")
    return base


def unpacked(base: Path, bundle: bytes, revision: str) -> Path:
    """The project at the revision, once a node."""
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


class FreeClone:
    """A folder for a clone on this node that nobody uses, held by its lock.

    Best the one in which the experiment was interrupted before, worst one that another experiment
    may come back to.
    """

    def __init__(self, base: Path, name: str) -> None:
        self.folder, self.name = base / "clones", name
        self._lock: IO[str] | None = None

    def __enter__(self) -> tuple[Path, IO[str]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        known = sorted(file.stem for file in self.folder.glob("[0-9]*.lock"))
        began = {stem: self._began(stem) for stem in known}
        own = [stem for stem in known if began[stem] == self.name]
        others = sorted(set(known) - set(own), key=lambda stem: (began[stem] is not None, stem))
        new = [f"{i:04d}" for i in range(len(known), len(known) + 1000)]
        for stem in [*own, *others, *new]:
            # What was killed in its own clone may need a moment to be gone.
            if self._take(stem, PATIENCE if stem in own else 0.0):
                assert self._lock
                return self.folder / stem, self._lock
        raise OSError("a thousand clones are in use")

    def _take(self, stem: str, patience: float) -> bool:
        lock = open(self.folder / f"{stem}.lock", "a")  # noqa: SIM115 (held until the end)
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    lock.close()
                    return False
                time.sleep(PAUSE)
            else:
                self._lock = lock
                return True

    def _began(self, stem: str) -> str | None:
        """The experiment that was interrupted there."""
        mark = self.folder / stem / ".git" / "dacr-experiment"
        return mark.read_text(encoding="utf-8") if mark.exists() else None

    def __exit__(self, *error: object) -> None:
        if self._lock:
            self._lock.close()
