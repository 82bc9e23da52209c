"""What is run under faults, what it starts from, and what it must end in."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.faults.places import (
    AFTER_FIRST,
    CACHE,
    EPOCHS,
    LAST,
    Place,
    Reference,
    Said,
    damaged_objects,
    files_under,
    read_lock,
)
from dacr.runtime.hashes import file_md5

MADE = ("runs", "data/raw", "data/benchmark", "data/split")


@dataclass(frozen=True)
class Known:
    """Of a method: what an undisturbed run made, and what commands answered about it."""

    reference: Reference
    answers: dict[str, object]
    """command → what it printed or wrote"""


Check = Callable[[Place, Known, Said], list[str]]
"""What is not as it must be after the command succeeded."""


@dataclass(frozen=True)
class Command:
    name: str
    words: tuple[str, ...]
    check: Check
    template: str = "finished"
    prepare: Callable[[Place], None] = lambda place: None
    answer: Callable[[Place, Said], object] | None = None
    """What is compared with an undisturbed run, besides the outs."""
    once: bool = False
    """Whether it refuses to do again what is done."""

    def spelled(self, method: str) -> tuple[str, ...]:
        return tuple(word.replace("{method}", method) for word in self.words)


# -- what a run must be ------------------------------------------------------------------------


def whole_run(place: Place, known: Known, said: Said) -> list[str]:
    """Every declared out, ``dvc.lock`` and ``dvc status``."""
    project, reference = place.project, known.reference
    found = reference.differences(project)
    if read_lock(project) != reference.lock:
        found.append("dvc.lock is different")
    status = place.run("dvc", "status", real=False)
    if "up to date" not in status.text:
        found.append(f"dvc status: {' '.join(status.text.split())[:200]}")
    return found


def same_outs(place: Place, known: Known, said: Said) -> list[str]:
    return known.reference.differences(place.project)


def same_answer(place: Place, known: Known, said: Said) -> list[str]:
    command = next(c for c in COMMANDS.values() if c.spelled(place.method) == said.words)
    assert command.answer
    found = same_outs(place, known, said)
    if command.answer(place, said) != known.answers[command.name]:
        found.append("the answer is different")
    return found


def verified(place: Place, known: Known, said: Said) -> list[str]:
    told = [] if said.text.splitlines()[-1:] == ["verified"] else ["it does not say 'verified'"]
    return same_outs(place, known, said) + told


def experiments(project: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)", "refs/exps"],
        cwd=project, capture_output=True, text=True, check=True,
    )  # fmt: skip
    left_out = ("refs/exps/exec", "refs/exps/celery", "refs/exps/stash", "refs/exps/apply")
    return [ref for ref in listed.stdout.split() if not ref.startswith(left_out)]


def same_experiment(place: Place, known: Known) -> list[str]:
    """Every experiment of the repository has the outs of the undisturbed run."""
    wanted = {name: stage["outs"] for name, stage in known.reference.lock["stages"].items()}
    refs = experiments(place.project)
    found = [] if refs else ["there is no experiment"]
    for ref in refs:
        shown = subprocess.run(
            ["git", "show", f"{ref}:dvc.lock"],
            cwd=place.project, capture_output=True, text=True, check=True,
        )  # fmt: skip
        own = yaml.load(shown.stdout, yaml.CSafeLoader)["stages"]
        if {name: stage["outs"] for name, stage in own.items()} != wanted:
            found.append(f"{ref} has other outs")
    return found


def experiment_here(place: Place, known: Known, said: Said) -> list[str]:
    return whole_run(place, known, said) + same_experiment(place, known)


def experiment_elsewhere(place: Place, known: Known, said: Said) -> list[str]:
    """In a temporary folder: the workspace stays, the outs are in the cache."""
    before = [name for name in known.reference.lock["stages"] if name not in AFTER_FIRST]
    found = known.reference.differences(place.project, before)
    if (place.project / f"runs/{LAST}/state").exists() and not place.mended:
        found.append(f"runs/{LAST} appeared in the workspace")
    objects = {f.parent.name + f.name for f in (place.project / CACHE).glob("*/*")}
    wanted = known.reference.objects
    if wanted - objects:
        found.append(f"{len(wanted - objects)} objects are not in the cache")
    return found + same_experiment(place, known)


def pushed(place: Place, known: Known, said: Said) -> list[str]:
    """The remote has every object of the run, with its bytes."""
    store = place.folder / "store/files/md5"
    there = {f"{file.parent.name}{file.name}" for file in store.glob("*/*")}
    lost, bad = len(known.reference.objects - there), len(damaged_objects(store))
    told = [f"{lost} objects are not there"] * bool(lost) + [f"{bad} are damaged"] * bool(bad)
    return same_outs(place, known, said) + told


# -- what it starts from -----------------------------------------------------------------------


def without(*paths: str) -> Callable[[Place], None]:
    def prepare(place: Place) -> None:
        for path in paths:
            target = place.folder / path
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    return prepare


def without_outs(stage: str) -> Callable[[Place], None]:
    """As DVC leaves it when it starts the stage."""

    def prepare(place: Place) -> None:
        outs = read_lock(place.project)["stages"][stage]["outs"]
        without(*(f"project/{out['path']}" for out in outs))(place)

    return prepare


# -- answers -----------------------------------------------------------------------------------


def printed(place: Place, said: Said) -> object:
    return said.text


def written(place: Place, said: Said) -> object:
    names = files_under(place.project, "written")
    return {name: file_md5(place.project / name) for name in names}


def written_weights(place: Place, said: Said) -> object:
    """Of a published model: the card tells when it was made."""
    names = files_under(place.project, "written")
    return {n: file_md5(place.project / n) for n in names if n.endswith(".safetensors")}


def measured(place: Place, said: Said) -> object:
    """Of a table's experiments: their numbers; a record also tells when and where it was made."""
    file = place.project / "reports/paper/main-tiny.json"
    records = json.loads(file.read_text())["experiments"] if file.exists() else {}
    return {name: own["details"] for name, own in records.items()}


# -- the commands ------------------------------------------------------------------------------

EXPERIMENT = (
    *("dvc", "exp", "run"),
    *("-S", "benchmark=tiny", "-S", "split=nd", "-S", "method={method}"),
    *("-S", f"train.epochs={EPOCHS}"),
)
STAGES = {
    "learn 01": "learn@01",
    "learn 02": "learn@02",
    "consolidate 02": "consolidate@02",
    "evaluate": "evaluate",
    "measure": "measure",
    "budget": "budget",
    "report": "report",
    "build": "build",
    "schedule": "schedule",
    "split 02": "split@02",
    "start": "start",
    "fetch npz": "fetch@npz",
    "code": "code",
}


def _stage(words: str) -> Command:
    module, *rest = words.split()
    command = ("python", "-m", f"stages.{module}", *rest)
    return Command(f"stages.{words}", command, same_outs, prepare=without_outs(STAGES[words]))


LIST = (
    Command("dvc repro", ("dvc", "repro"), whole_run, "half"),
    *(
        Command(f"dvc repro -f {stage}", ("dvc", "repro", "-f", "-s", stage), whole_run)
        for stage in ("learn@02", "consolidate@01", "evaluate", "build")
    ),
    *(_stage(words) for words in STAGES),
    Command("dvc exp run", EXPERIMENT, experiment_here, "half"),
    Command("dvc exp run --temp", (*EXPERIMENT, "--temp"), experiment_elsewhere, "half"),
    Command(
        "dvc checkout",
        ("dvc", "checkout"),
        whole_run,
        prepare=without(*(f"project/{path}" for path in MADE)),
    ),
    Command(
        "dvc pull",
        ("dvc", "pull"),
        whole_run,
        prepare=without("project/.dvc/cache", *(f"project/{path}" for path in MADE)),
    ),
    Command("dvc push", ("dvc", "push"), pushed, prepare=without("store/files")),
    Command("dacr verify", ("dacr", "verify", "--seed", "1"), verified),
    Command(
        "dacr predict",
        ("dacr", "predict", "runs/02", "photo.png", "--json"),
        same_answer,
        answer=printed,
    ),
    Command(
        "dacr scenario show", ("dacr", "scenario", "show", "data/split"), same_answer,
        answer=printed,
    ),
    *(
        Command(
            f"dacr scenario export {form}",
            ("dacr", "scenario", "export", "data/split", "--to", form, "--out", "written"),
            same_answer,
            answer=written,
            once=True,
        )
        for form in ("csv", "torch")
    ),
    Command(
        "dacr paper run",
        ("dacr", "paper", "run", "main", "--benchmark", "tiny", "--methods", "{method}",
         "--splits", "nd", "--seeds", "1"),
        same_answer,
        answer=measured,
    ),
    Command(
        "dacr publish",
        ("dacr", "publish", "workspace", "written"),
        same_answer,
        answer=written_weights,
        once=True,
    ),
)  # fmt: skip
COMMANDS = {command.name: command for command in LIST}
ALL = tuple(COMMANDS)
DVC = tuple(name for name in ALL if name.startswith("dvc "))
WRITING = tuple(n for n in ALL if n not in ("dacr verify", "dacr scenario show", "dacr predict"))
