"""Experiments on many machines: each a Ray task, in a clone of its own on the node that runs it.

A node needs git and the Python environment of the project, but no copy of the project: the
committed revision travels to it as a git bundle, and the experiment's commit travels back as one,
and by ``dvc exp push`` to a git remote where ``ray.push`` names one.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import uuid
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dacr.errors import UserError
from dacr.experiments import node
from dacr.experiments.engine import Project
from dacr.experiments.tables import Needs
from dacr.experiments.worker import OUTCOME, Order, Outcome
from dacr.runtime.git import git


class RayEngine:
    """All orders as tasks of a Ray cluster; a task whose worker or node is lost runs again."""

    def __init__(self, project: Project, address: str, needs: Needs) -> None:
        self.project, self.needs = project, needs
        self._push = address_of(needs.push, project.root) if needs.push else ""
        self._ray = connect(address)
        self.jobs = slots(self._ray.nodes(), needs)
        if not self.jobs:
            # Ray would wait silently for a node that has them.
            raise UserError(
                f"no node of the Ray cluster has {needs.cpus:g} CPUs and {needs.gpus:g} GPUs, "
                "which an experiment asks for (`ray:` in conf/paper.yaml, --jobs-per-gpu)"
            )

    def run(self, orders: Sequence[Order]) -> Generator[Outcome, None, None]:
        ray, project = self._ray, self.project
        mark = leave_mark(project.cache)
        ray.cloudpickle.register_pickle_by_value(node)
        task = ray.remote(
            num_cpus=self.needs.cpus, num_gpus=self.needs.gpus, max_retries=self.needs.retries,
            retry_exceptions=[ChildProcessError],
        )(node.perform_on_node)  # fmt: skip
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
        """What a task gave back; its log goes beside those of local experiments."""
        try:
            text, said = self._ray.get(reference)
            outcome = OUTCOME.validate_json(text)
        except self._ray.exceptions.RayError as error:
            said = str(error).strip() or type(error).__name__
            outcome = Outcome(order.name, error=f"lost by Ray: {said.splitlines()[-1][:300]}")
        log = self.project.log(order.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(said, encoding="utf-8")
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
        raise no_cluster(address, "nobody answers")
    # Every outcome is asked for, but for those of tasks that ^C ends: how these ended Ray would
    # print behind our last line.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise no_cluster(address, " ".join(str(error).split())[:200]) from None
    return ray


def no_cluster(address: str, reason: str) -> UserError:
    return UserError(f"no Ray cluster at {address!r} ({reason}); `ray start --head`")


def answers(address: str) -> bool:
    """Whether something listens at host:port; Ray itself would go on asking for minutes."""
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

    The path alone is not enough: machines that share nothing may have a project at the same path.
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
