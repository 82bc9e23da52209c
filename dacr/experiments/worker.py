"""One experiment in a clone of its own: ``dvc exp run`` there, and what came out of it.

Two ``dvc exp run`` at once work in two clones and not in one repository. A clone is kept between
experiments: it holds the benchmark, and the checkpoints of a session that was interrupted. All
clones share the DVC cache of the project, so that ``dvc exp apply`` finds there what they made.

Started as ``python -m dacr.experiments.worker`` in a process group of its own, with a job on its
standard input and its output in the job's log (``dacr.experiments.node.start_worker``).
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pydantic import Base64Bytes, TypeAdapter

from dacr.errors import UserError
from dacr.experiments.images import facts_of, is_restricted
from dacr.experiments.records import Record, write_text
from dacr.runtime.git import git
from dacr.runtime.locks import lock

BEGUN = "dacr-experiment"  # in a clone's .git: the experiment that has begun there
PATIENCE = 30.0  # seconds that a killed experiment has to leave its clone
SET_ASIDE = 8  # clones that wait for their interrupted experiments before they serve others
LEARNED = re.compile(r"Running stage 'learn@")
DIFFICULTIES = ("dacr: ", "ERROR: ")


@dataclass(frozen=True)
class Order:
    """An experiment to be run."""

    name: str
    arguments: list[str]
    command: str
    code: str
    """The identity of the committed code and configuration that it runs."""


@dataclass(frozen=True)
class Workplace:
    """Where an experiment runs: in a clone of ``source`` at ``revision``, below ``base``."""

    base: Path
    source: str
    """A repository, or a git bundle of one."""
    revision: str
    cache: Path
    """The DVC cache that all clones of a machine share."""
    shared: bool
    """Whether it is the project's. Where it is not, the project's DVC remote carries models."""
    downloads: Path
    """Where downloads in progress lie, shared by all clones."""
    log: Path
    outcome: Path
    push: str = ""
    """A git repository that the experiment is pushed to, too."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    order: Order
    place: Workplace


@dataclass(frozen=True)
class Outcome:
    """How an experiment ended: a record, or one line of error."""

    name: str
    record: Record | None = None
    error: str | None = None
    bundle: Base64Bytes = b""
    """The experiment's git commit, to be fetched by the project."""


JOB, OUTCOME = TypeAdapter(Job), TypeAdapter(Outcome)


# -- the clone --------------------------------------------------------------------------------


def interrupted(base: Path) -> dict[str, str]:
    """The experiment that has begun and not ended, by the name of its clone."""
    found = {}
    for mark in base.glob(f"clones/[0-9]*/.git/{BEGUN}"):
        with suppress(FileNotFoundError):  # it ends just now
            found[mark.parents[1].name] = mark.read_text(encoding="utf-8")
    return found


@contextmanager
def free_clone(base: Path, experiment: str) -> Iterator[tuple[Path, IO[str]]]:
    """A folder for a clone that no other process uses, and its lock.

    Best the one in which the experiment was interrupted. One of another such experiment only if
    many wait: its checkpoints are there, and its own sweep may ask for it a moment later.
    """
    folder = base / "clones"
    folder.mkdir(parents=True, exist_ok=True)
    known = sorted(file.stem for file in folder.glob("[0-9]*.lock"))
    begun = interrupted(base)
    mine = [stem for stem in known if begun.get(stem) == experiment]
    free = [stem for stem in known if stem not in begun]
    waiting = [stem for stem in known if stem in begun and stem not in mine]
    new = [f"{i:04d}" for i in range(len(known), len(known) + 1000)]
    rest = [*waiting, *new] if len(waiting) > SET_ASIDE else [*new, *waiting]
    for stem in [*mine, *free, *rest]:
        # A killed experiment may need a moment to leave its clone.
        patience = PATIENCE if begun.get(stem) == experiment else 0.0
        if held := lock(folder / f"{stem}.lock", patience):
            with held:
                yield folder / stem, held
            return
    raise UserError(f"a thousand clones in {folder} are in use")


def prepare(clone: Path, place: Workplace) -> None:
    """The clone at the revision, without traces of an experiment that was killed there."""
    if not (clone / ".git").is_dir():
        clone.mkdir(parents=True, exist_ok=True)
        git("init", "--quiet", folder=clone)
        name_committer(clone)
    (clone / ".git/index.lock").unlink(missing_ok=True)
    (clone / ".dvc/tmp/rwlock").unlink(missing_ok=True)
    for ref in experiment_refs(clone):
        git("update-ref", "-d", ref, folder=clone)
    git("fetch", "--quiet", "--no-tags", "--update-shallow", place.source, "HEAD", folder=clone)
    git("checkout", "--quiet", "--force", "--detach", place.revision, folder=clone)
    write_text(clone / ".dvc/config.local", f"[cache]\n    dir = {place.cache}\n")
    downloads = clone / ".dacr/downloads"
    if not downloads.is_symlink():
        place.downloads.mkdir(parents=True, exist_ok=True)
        downloads.parent.mkdir(exist_ok=True)
        downloads.symlink_to(place.downloads)


def name_committer(clone: Path) -> None:
    """An experiment is a commit; where git knows no author it is the sweep's."""
    try:
        git("config", "user.email", folder=clone)
    except UserError:
        git("config", "user.name", "dacr", folder=clone)
        git("config", "user.email", "dacr@localhost", folder=clone)


def experiment_refs(folder: Path = Path()) -> list[str]:
    return git("for-each-ref", "--format=%(refname)", "refs/exps", folder=folder).split()


# -- the run ----------------------------------------------------------------------------------


def perform(order: Order, place: Workplace) -> Outcome:
    """Run the experiment; whatever goes wrong becomes the outcome's one line."""
    try:
        with free_clone(place.base, order.name) as (clone, _):
            end_together()
            return perform_in(clone, order, place)
    except (UserError, OSError) as error:
        return Outcome(order.name, error=" ".join(str(error).split()))


def perform_in(clone: Path, order: Order, place: Workplace) -> Outcome:
    prepare(clone, place)
    mark = clone / ".git" / BEGUN
    resumed = mark.exists() and mark.read_text(encoding="utf-8") == order.name
    mark.write_text(order.name, encoding="utf-8")
    started, clock = datetime.now(UTC), time.monotonic()
    remote = bool(place.push or not place.shared) and has_remote(clone)
    travels = remote and not place.shared
    log, code = run_dvc(experiment(order, pull=travels), order.command, clone, place)
    seconds = round(time.monotonic() - clock, 1)
    if code:
        return Outcome(order.name, error=error_line(log, code))
    # Sessions that this run trained from the beginning: the time of a whole run counts all.
    trained = 0 if resumed else len(LEARNED.findall(log))
    record = collect(order, clone, place.revision, started, seconds, trained)
    if travels:
        push_with(["push", "--run-cache"], clone, place)
    if place.push:
        models = [] if remote else ["--no-cache"]
        push_with(["exp", "push", "--force", *models, place.push, order.name], clone, place)
    mark.unlink()
    return Outcome(order.name, record, bundle=commit_of(order.name, clone, place))


def has_remote(clone: Path) -> bool:
    """Whether the committed configuration names a default DVC remote."""
    from dvc.repo import Repo

    return "remote" in Repo(str(clone)).config["core"]


def experiment(order: Order, *, pull: bool) -> list[str]:
    """``dvc exp run``; with ``pull`` it takes from the remote what another machine has done."""
    options = [word for argument in order.arguments for word in ("-S", argument)]
    message = f"dacr paper: {' '.join(order.arguments)}"  # tells it from a user's own in git log
    pulling = ["--pull"] if pull else []
    return ["exp", "run", *pulling, "-n", order.name, "-m", message, *options]


def push_with(words: Sequence[str], clone: Path, place: Workplace) -> None:
    """A ``dvc`` command that pushes; without what others need the experiment is not done."""
    shown = re.sub(r"//[^/@]*@", "//", f"dvc {' '.join(words)}")  # no password in a log
    said, code = run_dvc(words, shown, clone, place)
    if code:
        raise UserError(f"done, but not pushed to the remote: {error_line(said, code)}")


def run_dvc(words: Sequence[str], command: str, clone: Path, place: Workplace) -> tuple[str, int]:
    """What DVC said, and its exit code. Our output, and so DVC's, is the log."""
    os.write(1, f"$ {command}\n".encode())
    start = place.log.stat().st_size
    own = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own.get('PATH', '')}"  # the same Python
    own |= {"PATH": path, "DVC_NO_ANALYTICS": "1"} | place.environment
    dvc = [sys.executable, "-m", "dvc", *words]
    code = subprocess.run(dvc, cwd=clone, env=own, check=False).returncode
    return place.log.read_bytes()[start:].decode("utf-8", "replace"), code


def error_line(log: str, code: int) -> str:
    """What a person should read first: a stage's own line, else DVC's, else the last one."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", log).splitlines()]
    lines = [line for line in lines if line] or [f"dvc ended with exit code {code}"]
    for start in DIFFICULTIES:
        for line in lines:
            if line.startswith(start):
                return line.removeprefix(start)[:300]
    return lines[-1][:300]


# -- what came out ----------------------------------------------------------------------------


def collect(
    order: Order, clone: Path, revision: str, started: datetime, seconds: float, trained: int
) -> Record:
    """The record of the experiment that ended in the clone."""
    from dacr.config import load_params
    from dacr.data.session_table import read_schedule
    from dacr.evaluation import files
    from dacr.evaluation.budget import plain, read_budget
    from dacr.evaluation.measures import read_measures
    from dacr.evaluation.plots import read_tables
    from dacr.runtime.provenance import machine

    params = load_params(clone / "params.yaml")
    metrics = files.read_metrics(clone / "reports/metrics.json")
    measures, budget = read_measures(clone / "reports"), read_budget(clone / "reports")
    schedule = read_schedule(clone / "data/split/schedule.csv")
    benchmark = files.read_benchmark(clone / "data/benchmark")
    tables = read_tables(clone / "reports/plots")
    chosen = dict(argument.split("=", 1) for argument in order.arguments)
    groups = ("benchmark", "split", "method", "seed")
    return Record(
        name=order.name,
        benchmark=params.benchmark,
        split=params.split,
        method=chosen["method"],  # a choice of settings; params.yaml says whose code ran
        seed=params.seed,
        overrides={key: value for key, value in chosen.items() if key not in groups},
        command=order.command,
        revision=revision,
        code=order.code,
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        whole=trained == len(params.schedule.sessions),
        machine={k: v for k, v in machine().items() if k not in ("git_revision", "dirty")},
        data=facts_of(benchmark, is_restricted(params.data.per_pair, params.data.validation)),
        setting={
            "backbone": params.model.backbone,
            "epochs": params.train.epochs,
            "batch_size": params.train.batch_size,
            "lr": params.train.lr,
            "threads": params.train.threads,
            "memory": params.memory.size,
            "per_pair": params.data.per_pair,
            "validation": params.data.validation,
            "sessions": len(params.schedule.sessions),
        },
        metrics=plain(measures) | plain(budget) | plain(metrics),
        details={
            "accuracy_by_session": metrics["accuracy_by_session"],
            "accuracy_matrix": measures["accuracy_matrix"],
            "purity_by_session": metrics["purity_by_session"],
            "components_by_session": tables["components_by_session"].to_dict("list"),
            "accuracy_by_arrival": by_arrival(metrics, schedule, benchmark["classes"]),
            "embedding": points_of(tables["embedding"]),
        },
    )


def by_arrival(
    metrics: dict[str, Any], schedule: Any, classes: Sequence[str]
) -> dict[str, list[float]]:
    """Final accuracy of each class's domains, in the order in which the class met them.

    A pair without test images has none; one that comes back counts where it came first.
    """
    from dacr.data.shares import first_appearances

    accuracy = {(p["class"], p["domain"]): p["accuracy"] for p in metrics["accuracy_by_pair"]}
    ordered: Any = first_appearances(schedule).sort_values(["class", "session", "domain"])
    return {
        classes[c]: [accuracy[c, d] for d in own["domain"] if (c, d) in accuracy]
        for c, own in ordered.groupby("class")
    }


def points_of(table: Any) -> dict[str, list[Any]]:
    """The points of t-SNE, coarse enough for a page and a diff."""
    coarse = table.assign(x=table["x"].astype(float).round(1), y=table["y"].astype(float).round(1))
    columns: dict[str, list[Any]] = coarse.to_dict("list")
    return columns


def commit_of(name: str, clone: Path, place: Workplace) -> bytes:
    own = [ref for ref in experiment_refs(clone) if ref.endswith(f"/{name}")]
    if not own:
        raise UserError(f"dvc exp run ended without an experiment {name}; see {place.log}")
    bundle = (clone / ".git/dacr.bundle").resolve()
    git("bundle", "create", "--quiet", str(bundle), own[0], f"^{place.revision}", folder=clone)
    content = bundle.read_bytes()
    bundle.unlink()
    return content


# -- the process ------------------------------------------------------------------------------


def end_together() -> None:
    """Fork a process that kills our process group once we or the engine are gone, however we went.

    Nothing else would end DVC and its stage after a SIGKILL of this process alone, which is what
    Ray sends when a task is cancelled. Our standard input ends with the engine, the pipe with us.
    The process also holds the lock of the clone until then.
    """
    ours, held = os.pipe()
    if os.fork():
        os.close(ours)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return
    os.close(held)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    select.select([0, ours], [], [])
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    job = JOB.validate_json(sys.stdin.buffer.readline())
    outcome = perform(job.order, job.place)
    write_text(job.place.outcome, OUTCOME.dump_json(outcome).decode())


if __name__ == "__main__":
    main()
