"""One experiment in a clone of its own: ``dvc exp run`` there, and what came out of it.

Two ``dvc exp run`` at once work in two clones and not in one repository. A clone is kept between
experiments: it holds the benchmark, and the checkpoints of a session that was interrupted. All
clones share the DVC cache of the project, so that ``dvc exp apply`` finds there what they made.

Started as ``python -m dacr.experiments.worker <order.json> <its parent's pid>``, in a process
group of its own, so that an engine can stop it together with everything that it started.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from dacr.errors import UserError
from dacr.experiments.records import Record, to_json, write_text
from dacr.runtime.git import git

LAST = "dacr-experiment"  # in a clone's .git: what it worked on last
LEARNED = re.compile(r"Running stage 'learn@")
DIFFICULTIES = ("dacr: ", "ERROR: ")


@dataclass(frozen=True)
class Order:
    """An experiment to be run, in words that cross process and machine."""

    name: str
    arguments: list[str]
    command: str
    code: str
    """The identity of the committed code and configuration that it runs."""


@dataclass(frozen=True)
class Workplace:
    """Where an experiment runs: a clone of ``source`` at ``revision``."""

    clone: str
    source: str
    """A repository, or a git bundle of one."""
    revision: str
    cache: str
    """The DVC cache that all clones of a machine share."""
    shared: bool
    """Whether it is the project's. Where it is not, the project's DVC remote carries models."""
    downloads: str
    """Where downloads in progress lie, shared by all clones."""
    log: str
    push: str = ""
    """A git repository to which the experiment is sent as well, besides coming home."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How an experiment ended: a record, or one line of error."""

    name: str
    record: Record | None = None
    error: str | None = None
    bundle: bytes = b""
    """The experiment's git commit, to be fetched by the project."""


def prepare(place: Workplace) -> None:
    """The clone at the revision, without traces of an experiment that was killed there."""
    clone = Path(place.clone)
    if not (clone / ".git").is_dir():
        clone.mkdir(parents=True, exist_ok=True)
        git("init", "--quiet", folder=clone)
        name_committer(clone)
    (clone / ".git/index.lock").unlink(missing_ok=True)
    (clone / ".dvc/tmp/rwlock").unlink(missing_ok=True)
    for ref in git("for-each-ref", "--format=%(refname)", "refs/exps", folder=clone).split():
        git("update-ref", "-d", ref, folder=clone)
    git("fetch", "--quiet", "--no-tags", "--update-shallow", place.source, "HEAD", folder=clone)
    git("checkout", "--quiet", "--force", "--detach", place.revision, folder=clone)
    write_text(clone / ".dvc/config.local", f"[cache]\n    dir = {place.cache}\n")
    downloads = clone / ".dacr/downloads"
    if not downloads.is_symlink():
        Path(place.downloads).mkdir(parents=True, exist_ok=True)
        downloads.parent.mkdir(exist_ok=True)
        downloads.symlink_to(place.downloads)


def name_committer(clone: Path) -> None:
    """An experiment is a commit; where git knows nobody it is the sweep's."""
    try:
        git("config", "user.email", folder=clone)
    except UserError:
        git("config", "user.name", "dacr", folder=clone)
        git("config", "user.email", "dacr@localhost", folder=clone)


def environment(place: Workplace) -> dict[str, str]:
    """That of this process, with the same Python first and nothing of a DVC stage around it."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own.get('PATH', '')}"
    return own | {"PATH": path, "DVC_NO_ANALYTICS": "1"} | place.environment


def perform(order: Order, place: Workplace) -> Outcome:
    """Run the experiment; whatever goes wrong becomes the outcome's one line."""
    try:
        prepare(place)
        Path(place.log).unlink(missing_ok=True)
        last = Path(place.clone) / ".git" / LAST
        resumed = last.exists() and last.read_text(encoding="utf-8") == order.name
        last.write_text(order.name, encoding="utf-8")
        started, clock = datetime.now(UTC), time.monotonic()
        remote = bool(place.push or not place.shared) and has_remote(place)
        travels = remote and not place.shared
        log, code = run_dvc(experiment(order, pull=travels), order.command, place)
        seconds = time.monotonic() - clock
        if code:
            return Outcome(order.name, error=error_line(log, code))
        record = collect(order, place, started.isoformat(timespec="seconds"), seconds, log)
        if travels:
            send(["push", "--run-cache"], place)
        if place.push:
            models = [] if remote else ["--no-cache"]
            send(["exp", "push", "--force", *models, place.push, order.name], place)
        if resumed:  # from a checkpoint perhaps: the time is not that of a whole experiment
            record = record.model_copy(update={"whole": False})
        last.unlink()
        return Outcome(order.name, record, bundle=commit_of(order.name, place))
    except (UserError, OSError) as error:
        return Outcome(order.name, error=" ".join(str(error).split()))


def has_remote(place: Workplace) -> bool:
    """Whether the committed configuration names a default DVC remote."""
    command = [sys.executable, "-m", "dvc", "config", "core.remote"]
    found = subprocess.run(
        command, cwd=place.clone, env=environment(place), capture_output=True, check=False
    )
    return found.returncode == 0


def experiment(order: Order, *, pull: bool) -> list[str]:
    """``dvc exp run``; with ``pull`` it takes from the remote what another machine has done."""
    options = [word for argument in order.arguments for word in ("-S", argument)]
    message = f"dacr paper: {' '.join(order.arguments)}"  # tells it from a user's own in git log
    pulling = ["--pull"] if pull else []
    return ["exp", "run", *pulling, "-n", order.name, "-m", message, *options]


def send(words: Sequence[str], place: Workplace) -> None:
    """A ``dvc`` command that pushes; without what others need the experiment is not done."""
    shown = re.sub(r"//[^/@]*@", "//", f"dvc {' '.join(words)}")  # no password in a log
    said, code = run_dvc(words, shown, place)
    if code:
        raise UserError(f"done, but not pushed to the remote: {error_line(said, code)}")


def run_dvc(words: Sequence[str], command: str, place: Workplace) -> tuple[str, int]:
    """What DVC said, which is also added to the log after the ``command``, and its exit code."""
    Path(place.log).parent.mkdir(parents=True, exist_ok=True)
    with open(place.log, "a+", encoding="utf-8", errors="replace") as log:
        log.write(f"$ {command}\n")
        log.flush()
        start = log.tell()
        code = subprocess.run(
            [sys.executable, "-m", "dvc", *words],
            cwd=place.clone, env=environment(place), stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
        log.seek(start)
        return log.read(), code


def error_line(log: str, code: int) -> str:
    """What a person should read first: a stage's own line, else DVC's, else the last one."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", log).splitlines()]
    lines = [line for line in lines if line]
    for start in DIFFICULTIES:
        for line in lines:
            if line.startswith(start):
                return line.removeprefix(start)[:300]
    return lines[-1][:300] if lines else f"dvc ended with exit code {code}"


# -- what came out ----------------------------------------------------------------------------


def collect(order: Order, place: Workplace, started: str, seconds: float, log: str) -> Record:
    from dacr.config import load_params
    from dacr.evaluation import files
    from dacr.evaluation.plots import read_tables
    from dacr.runtime.provenance import machine

    clone = Path(place.clone)
    params = load_params(clone / "params.yaml")
    metrics = files.read_metrics(clone / "reports/metrics.json")
    schedule = files.read_schedule(clone / "data/split/schedule.csv")
    benchmark = files.read_benchmark(clone / "data/benchmark")
    tables = read_tables(clone / "reports/plots")
    chosen = dict(argument.split("=", 1) for argument in order.arguments)
    groups = ("benchmark", "split", "method", "seed")
    return Record(
        name=order.name,
        benchmark=params.benchmark,
        split=params.split,
        method=params.method,
        seed=params.seed,
        overrides={key: value for key, value in chosen.items() if key not in groups},
        command=order.command,
        revision=place.revision,
        code=order.code,
        started=started,
        seconds=round(seconds, 1),
        whole=len(LEARNED.findall(log)) == len(params.schedule.sessions),
        machine={k: v for k, v in machine().items() if k not in ("git_revision", "dirty")},
        data={
            "classes": benchmark["classes"],
            "domains": benchmark["domains"],
            "counts": {part: benchmark["counts"][part] for part in ("train", "test")},
            "image_size": benchmark["image_size"],
            "origins": {name: o["kind"] for name, o in benchmark["origins"].items()},
        },
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
        metrics={k: float(v) for k, v in metrics.items() if isinstance(v, int | float)},
        details={
            "accuracy_by_session": metrics["accuracy_by_session"],
            "purity_by_session": metrics["purity_by_session"],
            "components_by_session": tables["components_by_session"].to_dict("list"),
            "accuracy_by_arrival": by_arrival(metrics, schedule, benchmark["classes"]),
            "embedding": embedding(tables["embedding"]),
        },
    )


def by_arrival(
    metrics: dict[str, Any], schedule: Any, classes: Sequence[str]
) -> dict[str, list[float]]:
    """Final accuracy of each class's domains, in the order in which the class met them.

    A pair without test images has none.
    """
    accuracy = {(p["class"], p["domain"]): p["accuracy"] for p in metrics["accuracy_by_pair"]}
    ordered = schedule.sort_values(["class", "session", "domain"])
    return {
        classes[c]: [accuracy[c, d] for d in own["domain"] if (c, d) in accuracy]
        for c, own in ordered.groupby("class")
    }


def embedding(table: Any) -> dict[str, list[Any]]:
    """The points of t-SNE, coarse enough for a page and a diff."""
    coarse = table.assign(x=table["x"].astype(float).round(1), y=table["y"].astype(float).round(1))
    columns: dict[str, list[Any]] = coarse.to_dict("list")
    return columns


def commit_of(name: str, place: Workplace) -> bytes:
    clone = Path(place.clone)
    refs = git("for-each-ref", "--format=%(refname)", "refs/exps", folder=clone).split()
    own = [ref for ref in refs if ref.endswith(f"/{name}")]
    if not own:
        raise UserError(f"dvc exp run ended without an experiment {name}; see {place.log}")
    bundle = clone / ".git" / "dacr.bundle"
    git(
        "bundle",
        "create",
        "--quiet",
        str(bundle.resolve()),
        own[0],
        f"^{place.revision}",
        folder=clone,
    )
    content = bundle.read_bytes()
    bundle.unlink()
    return content


# -- across a process -------------------------------------------------------------------------


def write_order(path: Path, order: Order, place: Workplace) -> None:
    write_text(path, to_json({"order": asdict(order), "place": asdict(place)}))


def write_outcome(path: Path, outcome: Outcome) -> None:
    path.with_suffix(".bundle").write_bytes(outcome.bundle)
    record = outcome.record.model_dump() if outcome.record else None
    content = {"name": outcome.name, "record": record, "error": outcome.error}
    write_text(path, to_json(content))


def read_outcome(path: Path) -> Outcome:
    content = json.loads(path.read_text(encoding="utf-8"))
    record = Record.model_validate(content["record"]) if content["record"] else None
    bundle = path.with_suffix(".bundle").read_bytes()
    return Outcome(content["name"], record, content["error"], bundle)


def end_all(number: int, frame: FrameType | None) -> None:
    """Told to end: at once, with DVC and the stage that it runs. Checkpoints are written whole."""
    os.killpg(0, signal.SIGKILL)


def end_with_parent(parent: int) -> None:
    """On Linux a worker is told to end when the engine that started it is gone, however it went."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
        if os.getppid() != parent:  # it went before it could be told
            sys.exit(f"process {parent} that started this one is gone")


def guard_group() -> None:
    """A process that ends our group once we are gone, however we went.

    Nothing else would end DVC and its stage after a SIGKILL of this process alone, which is what
    Ray sends when a task is cancelled. The pipe's other end is closed by our death.
    """
    reading, held = os.pipe()
    if os.fork():
        os.close(reading)
        return
    os.close(held)
    os.read(reading, 1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    guard_group()
    signal.signal(signal.SIGTERM, end_all)
    end_with_parent(int(sys.argv[2]))
    path = Path(sys.argv[1])
    content = json.loads(path.read_text(encoding="utf-8"))
    outcome = perform(Order(**content["order"]), Workplace(**content["place"]))
    write_outcome(path.with_suffix(".outcome"), outcome)


if __name__ == "__main__":
    main()
