"""A sweep: the experiments of a table that are missing, run by an engine, brought home and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dacr.errors import UserError
from dacr.experiments.engine import Engine
from dacr.experiments.plan import Task
from dacr.experiments.records import SCRATCH, Store
from dacr.experiments.worker import Order, Outcome, experiment_refs
from dacr.runtime.git import git
from dacr.runtime.locks import lock
from dacr.runtime.stage import termination_is_an_interrupt

FULL = ("No space left on device", "disk is full", "Disk quota exceeded", "quota is used up")


@contextmanager
def only_sweep(scratch: Path = SCRATCH) -> Iterator[int]:
    """The lock of the clones, as a descriptor that workers inherit and hold while they live."""
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "lock"
    held = lock(path)
    if held is None:
        holder = path.read_text(encoding="utf-8").strip() or "unknown"
        raise UserError(
            f"another sweep is running here (process {holder}), or its last experiments still "
            "are; wait for it, or work in another clone"
        )
    with held:
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        yield held.fileno()


def cache_folder() -> Path:
    """The DVC cache of the project, also where the user has moved it."""
    from dvc.repo import Repo

    return Path(Repo().cache.local_cache_dir).resolve()


@dataclass(frozen=True)
class Ended:
    """How far a sweep came."""

    done: list[str]
    failed: dict[str, str]


def order_of(task: Task) -> Order:
    own = task.experiment
    return Order(own.name, own.arguments, own.command, own.code)


def sweep(
    engine: Engine, orders: Sequence[Order], store: Store, tell: Callable[[Outcome, Ended], None]
) -> Ended:
    """Run the orders; one that fails does not stop the others, a full disk does."""
    ended = Ended([], {})
    with termination_is_an_interrupt(), closing(engine.run(orders)) as outcomes:
        for outcome in outcomes:
            kept = keep(outcome, store)
            if kept.record:
                ended.done.append(kept.name)
            else:
                ended.failed[kept.name] = kept.error or "it left no result"
            tell(kept, ended)
            if kept.error and any(words in kept.error for words in FULL):
                raise UserError(
                    f"the disk is full (in {outcome.name}); free some space and run the same "
                    "command again: what is done is kept"
                )
    return ended


def keep(outcome: Outcome, store: Store) -> Outcome:
    """Note how the experiment ended; without its commit in this repository it is not done."""
    kept = outcome
    if outcome.record is not None:
        try:
            adopt(outcome, store.scratch)
        except (UserError, OSError) as error:  # another git process holds a lock, say
            reason = f"done, but its commit could not be brought home: {error}"
            kept = replace(outcome, record=None, error=reason)
    if kept.record:
        store.add(kept.record)
    else:
        store.fail(kept.name, kept.error or "it left no result")
    return kept


def adopt(outcome: Outcome, scratch: Path) -> None:
    """Bring the experiment's commit into this repository, in place of an older one of its name."""
    bundle = scratch / "adopted.bundle"
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        bundle.write_bytes(outcome.bundle)
        git("fetch", "--quiet", "--no-tags", str(bundle.resolve()), "+refs/exps/*:refs/exps/*")
        brought = git("bundle", "list-heads", str(bundle.resolve())).split()
    finally:
        bundle.unlink(missing_ok=True)
    for ref in experiment_refs():
        if ref.endswith(f"/{outcome.name}") and ref not in brought:
            git("update-ref", "-d", ref)
