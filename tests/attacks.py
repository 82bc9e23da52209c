"""Ways to tamper with a finished run, from a bit on the disk to whole consistent forgeries.

``ATTACKS`` names each, with what `dacr verify` must say. A forger knows the project: after an edit
``record`` makes ``dvc.lock`` and the cache agree with the workspace, as ``dvc commit -f`` does,
and ``commit`` makes HEAD agree with both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import yaml

from dacr.experiments.reading import lookup
from dacr.runtime.code import STAGES, describe
from dacr.runtime.hashes import file_md5, md5
from stages import budget, code, evaluate, measure, report, schedule, split
from tests.tiny_project import call, run

Yaml = dict[str, Any]
LAST = "runs/02"
PREDICTIONS = f"{LAST}/results/predictions.parquet"
CACHE = ".dvc/cache/files/md5"
CODE_FOLDERS = ("dacr", "stages")


class Forger:
    """Someone with write access to a copy of the project."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """A file that may be written, whatever DVC protects it from."""
        path = self.root / name
        if path.is_file():
            path.chmod(0o644)
        return path

    # -- files ---------------------------------------------------------------------------------

    def flip(self, name: str) -> None:
        """One bit of a file that keeps its size and time, as a failing disk would have it."""
        path = self.path(name)
        times, content = path.stat(), bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def replace(self, name: str, old: str, new: str) -> None:
        path = self.path(name)
        text = path.read_text(encoding="utf-8")
        assert old in text, (name, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        path = self.path(name)
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

    @contextmanager
    def json(self, name: str, indent: int = 1) -> Iterator[Any]:
        path = self.path(name)
        content = json.loads(path.read_text(encoding="utf-8"))
        yield content
        text = json.dumps(content, indent=indent, sort_keys=True)
        path.write_text(text + "\n", encoding="utf-8")

    @contextmanager
    def yaml(self, name: str) -> Iterator[Yaml]:
        path = self.path(name)
        content = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        yield content
        path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False))

    # -- what DVC and git know -----------------------------------------------------------------

    def lock(self, stage: str, change: Callable[[Yaml], Any]) -> None:
        """Edit what ``dvc.lock`` says of a stage."""
        with self.yaml("dvc.lock") as content:
            change(content["stages"][stage])

    def param(self, name: str, value: Any) -> None:
        """Another value in ``params.yaml``."""
        *sections, key = name.split(".")
        with self.yaml("params.yaml") as content:
            section = content
            for part in sections:
                section = section[part]
            assert section[key] != value
            section[key] = value

    def record(self) -> None:
        """``dvc commit -f``: ``dvc.lock`` and the cache say what is in the workspace."""
        params = yaml.load((self.root / "params.yaml").read_text(), yaml.CSafeLoader)
        with self.yaml("dvc.lock") as content:
            for stage in content["stages"].values():
                for name in (stage.get("params") or {}).get("params.yaml", {}):
                    stage["params"]["params.yaml"][name] = lookup(params, name)
                entries = [*(stage.get("deps") or []), *(stage.get("outs") or [])]
                for entry in entries:
                    if entry["path"] not in CODE_FOLDERS:
                        self._hash(entry)

    def _hash(self, entry: Yaml) -> None:
        place = self.root / entry["path"]
        own = md5(place)
        if own == entry["md5"]:
            return
        files = [file for file in place.rglob("*") if file.is_file()] or [place]
        entry |= {"md5": own, "size": sum(file.stat().st_size for file in files)}
        listing = []
        for file in files:
            self._keep(file_md5(file), file.read_bytes())
            listing.append({"md5": file_md5(file), "relpath": str(file.relative_to(place))})
        if place.is_dir():
            entry["nfiles"] = len(files)
            rows = sorted(listing, key=lambda row: row["relpath"])
            self._keep(own, json.dumps(rows, sort_keys=True).encode())

    def object(self, own: str) -> Path:
        return self.root / CACHE / own[:2] / own[2:]

    def _keep(self, own: str, content: bytes) -> None:
        if not self.object(own).exists():
            self.object(own).parent.mkdir(parents=True, exist_ok=True)
            self.object(own).write_bytes(content)

    def cached(self, out: str, name: str = "") -> str:
        """The object of an out, or of a file in it, as a path in the project."""
        stages = yaml.load((self.root / "dvc.lock").read_text(), yaml.CSafeLoader)["stages"]
        (own,) = {o["md5"] for stage in stages.values() for o in stage["outs"] if o["path"] == out}
        if name:
            rows = json.loads(self.object(own).read_text())
            (own,) = (row["md5"] for row in rows if row["relpath"] == name)
        return str(self.object(own).relative_to(self.root))

    def commit(self) -> None:
        run(self.root, "git", "commit", "-qam", "a better number")

    def git(self, *words: str) -> None:
        run(self.root, "git", *words)

    # -- stages --------------------------------------------------------------------------------

    def stages(self, *mains: Callable[[], None]) -> None:
        """Run stages here, as they are meant to run."""
        with chdir(self.root), patch.dict(os.environ, {"DVC_ROOT": str(self.root)}):
            for main in mains:
                call(main)

    def score(self) -> None:
        """Everything that follows from the results, made again."""
        self.stages(evaluate.main, measure.main, budget.main, report.main)

    def recode(self) -> None:
        """``runs/code`` made again from the code that is here now."""
        with chdir(self.root):
            for stage in STAGES:
                if stage != "fetch":
                    code.write(stage, describe(stage, "der_dacr", ["npz"], root=self.root))

    def resplit(self) -> None:
        """The tables of the sessions made again."""
        self.stages(schedule.main)
        with chdir(self.root):
            for key in ("01", "02"):
                call(split.main, key)

    def options(self) -> None:
        """``runs/code`` of the source made again, for other options."""
        with chdir(self.root):
            call(code.main, "npz")

    # -- forgeries -----------------------------------------------------------------------------

    def predict(self) -> None:
        """Other predictions than those of the model, which are all right in this tiny run."""
        path = self.path(PREDICTIONS)
        rows = pd.read_parquet(path)
        rows.assign(predicted=(rows["label"] + 1) % 4).to_parquet(path, index=False)

    def relabel(self, name: str, value: Any) -> None:
        """Another parameter, and a run that claims to be made with it."""
        self.param(name, value)
        self.stages(report.main)
        self.record()
        self.commit()


Attack = Callable[[Forger], object]
FILES = {
    "data/raw/tiny/npz/images.npz": "fetch@npz",
    "data/raw/tiny/npz/ORIGIN.json": "fetch@npz",
    "data/benchmark/images.npy": "build",
    "data/benchmark/index.parquet": "build",
    "data/benchmark/benchmark.json": "build",
    "data/split/schedule.csv": "schedule",
    "data/split/session-02.csv": "split@02",
    "runs/code/learn.json": "code",
    "runs/code/fetch-npz.json": "fetch_code@npz",
    "runs/00/state/state.safetensors": "start",
    "runs/01/learned/extractors/01.safetensors": "learn@01",
    "runs/01/learned/losses.json": "learn@01",
    "runs/01/learned/made.json": "learn@01",
    "runs/02/state/state.safetensors": "consolidate@02",
    "runs/02/state/memory.csv": "consolidate@02",
    "runs/02/state/made.json": "consolidate@02",
    "runs/02/results/predictions.parquet": "consolidate@02",
    "runs/02/results/history.json": "consolidate@02",
    "reports/metrics.json": "evaluate",
    "reports/plots/confusion.csv": "evaluate",
    "reports/measures.json": "measure",
    "reports/measures/accuracy_matrix.csv": "measure",
    "reports/budget.json": "budget",
    "reports/index.html": "report",
}
"""A file of each kind, and the stage that made it."""


def _entry(stage: Yaml, kind: str, path: str) -> Yaml:
    (entry,) = (entry for entry in stage[kind] if entry["path"] == path)
    return entry


def _set(kind: str, path: str, **facts: Any) -> Callable[[Yaml], None]:
    """An edit of an entry of a lock."""
    return lambda stage: _entry(stage, kind, path).update(facts)


def _drop(kind: str, path: str) -> Callable[[Yaml], None]:
    return lambda stage: stage[kind].remove(_entry(stage, kind, path))


def _empty(*kinds: str) -> Callable[[Yaml], None]:
    return lambda stage: stage.update({kind: [] for kind in kinds})


# -- the lock: what it says, and what it leaves out --------------------------------------------

STATE, LEARNED = "runs/02/state", "runs/02/learned"


def an_emptied_lock(forger: Forger) -> None:
    """The lock forgets who made the results; they are edited and scored."""
    for stage in ("consolidate@02", "evaluate", "report"):
        forger.lock(stage, _empty("outs", "deps"))
    forger.predict()
    forger.score()


def a_whole_stage_gone(forger: Forger) -> None:
    with forger.yaml("dvc.lock") as lock:
        del lock["stages"]["measure"]


def an_empty_stage(forger: Forger) -> None:
    with forger.yaml("dvc.lock") as lock:
        lock["stages"]["learn@01"] = None


LOCK: dict[str, tuple[Attack, str]] = {
    "outs and deps emptied": (an_emptied_lock, "lacks the out runs/02/results"),
    "outs of a stage gone": (
        lambda f: f.lock("learn@02", lambda s: s.pop("outs")),
        "learn@02 lacks the out runs/02/learned",
    ),
    "one of two outs gone": (
        lambda f: f.lock("consolidate@02", _drop("outs", "runs/02/results")),
        "consolidate@02 lacks the out runs/02/results",
    ),
    "a dependency gone": (
        lambda f: f.lock("evaluate", _drop("deps", "runs/02/results")),
        "evaluate lacks the dependency runs/02/results",
    ),
    "parameters gone": (
        lambda f: f.lock("learn@01", lambda s: s.pop("params")),
        "learn@01 lacks the parameter train",
    ),
    "one parameter gone": (
        lambda f: f.lock("start", lambda s: s["params"]["params.yaml"].pop("seed")),
        "start lacks the parameter seed",
    ),
    "a parameter too many": (
        lambda f: f.lock("start", lambda s: s["params"]["params.yaml"].update(facts={})),
        "start has the parameter facts, which dvc.yaml does not have",
    ),
    "an out too many": (
        lambda f: f.lock("start", lambda s: s["outs"].append(s["outs"][0] | {"path": "runs"})),
        "start has the out runs, which dvc.yaml does not have",
    ),
    "a stage gone": (a_whole_stage_gone, "15 of 16 stages are recorded, measure is not"),
    "a stage that is empty": (an_empty_stage, "learn@01 is no mapping"),
    "an out without md5": (
        lambda f: f.lock("learn@02", lambda s: s["outs"][0].pop("md5")),
        "learn@02 has no md5 of runs/02/learned",
    ),
    "an md5 of nothing": (
        lambda f: f.lock("learn@02", _set("outs", LEARNED, md5=None)),
        "learn@02 has no md5 of runs/02/learned",
    ),
    "an md5 that is a number": (
        lambda f: f.lock("learn@02", _set("deps", "runs/01/state", md5=7)),
        "learn@02 has no md5 of runs/01/state",
    ),
    "an md5 that is a path": (
        lambda f: f.lock("learn@02", _set("outs", LEARNED, md5="../../../../params.yaml")),
        "learn@02 has no md5 of runs/02/learned",
    ),
    "an md5 of another file": (
        lambda f: f.lock("learn@02", _set("outs", LEARNED, md5="0" * 32 + ".dir")),
        "runs/02/learned of learn@02 is not what the run made",
    ),
    "another size": (
        lambda f: f.lock("learn@02", _set("outs", LEARNED, size=1)),
        "dvc.lock has another size of runs/02/learned",
    ),
    "an out twice": (
        lambda f: f.lock("learn@02", lambda s: s["outs"].append({**s["outs"][0], "md5": "0" * 32})),
        "learn@02 has runs/02/learned more than once",
    ),
    "an out without a path": (
        lambda f: f.lock("learn@02", lambda s: s["outs"][0].pop("path")),
        "learn@02 has an entry without a path in its outs",
    ),
    "outs that are a word": (
        lambda f: f.lock("learn@02", lambda s: s.update(outs="none")),
        "learn@02 has outs that are no list",
    ),
    "another command": (
        lambda f: f.lock("learn@02", lambda s: s.update(cmd="python -m stages.learn 01")),
        "learn@02 ran 'python -m stages.learn 01', dvc.yaml has",
    ),
    "no command": (
        lambda f: f.lock("learn@02", lambda s: s.pop("cmd")),
        "learn@02 has no command",
    ),
    "another input": (
        lambda f: f.lock("evaluate", _set("deps", "runs/02/results", md5="0" * 32 + ".dir")),
        "evaluate was made from another runs/02/results",
    ),
    "another value of a parameter": (
        lambda f: f.lock("learn@01", lambda s: s["params"]["params.yaml"].update(seed=7)),
        r"params.yaml changed since the run \(seed\)",
    ),
}

# -- the cache ---------------------------------------------------------------------------------


def a_list_that_hides_a_file(forger: Forger) -> None:
    """The list of a folder in the cache has other md5s, and the file the bytes of one of them."""
    forger.flip("runs/02/state/memory.csv")
    with forger.json(forger.cached("runs/02/state")) as rows:
        (row,) = (row for row in rows if row["relpath"] == "memory.csv")
        row["md5"] = file_md5(forger.root / "runs/02/state/memory.csv")


def a_list_of_nonsense(forger: Forger) -> None:
    forger.path(forger.cached("runs/02/state")).write_text('[{"relpath": 1, "md5": ["x"]}]')


CACHED: dict[str, tuple[Attack, str]] = {
    "a bit of an object": (
        lambda f: f.flip(f.cached("runs/01/state", "memory.csv")),
        "runs/01/state/memory.csv of consolidate@01 is damaged in the cache",
    ),
    "an object gone": (
        lambda f: f.path(f.cached("runs/01/state", "memory.csv")).unlink(),
        "runs/01/state/memory.csv of consolidate@01 is not in the cache",
    ),
    "an empty object": (
        lambda f: f.path(f.cached("data/benchmark/images.npy")).write_bytes(b""),
        "data/benchmark/images.npy of build is damaged in the cache",
    ),
    "a list gone": (
        lambda f: f.path(f.cached("runs/01/state")).unlink(),
        "runs/01/state of consolidate@01 is not in the cache",
    ),
    "a list that hides a file": (
        a_list_that_hides_a_file,
        "runs/02/state of consolidate@02 is not what the run made",
    ),
    "a list of nonsense": (
        a_list_of_nonsense,
        "runs/02/state of consolidate@02 is damaged in the cache",
    ),
}

# -- files that come, go and change their kind -------------------------------------------------


def a_pipe(forger: Forger) -> None:
    forger.path("runs/02/state/memory.csv").unlink()
    os.mkfifo(forger.root / "runs/02/state/memory.csv")


def a_link_to_nothing(forger: Forger) -> None:
    forger.path("runs/02/state/memory.csv").unlink()
    (forger.root / "runs/02/state/memory.csv").symlink_to("nowhere")


def a_hidden_file(forger: Forger) -> None:
    """DVC is told to overlook the predictions, and they are edited."""
    forger.append(".dvcignore", "predictions.parquet\n")
    forger.predict()


KINDS: dict[str, tuple[Attack, str]] = {
    "a file gone": (
        lambda f: f.path("runs/01/learned/losses.json").unlink(),
        "runs/01/learned/losses.json of learn@01 is missing",
    ),
    "a file too many": (
        lambda f: (f.root / "runs/01/results/more.csv").write_text("id\n"),
        "runs/01/results/more.csv of consolidate@01 does not belong there",
    ),
    "a pipe for a file": (a_pipe, "runs/02/state/memory.csv of consolidate@02 is not what"),
    "a link to nothing": (a_link_to_nothing, "runs/02/state/memory.csv of consolidate@02 is"),
    "a file that DVC overlooks": (a_hidden_file, "predictions.parquet of consolidate@02 is miss"),
}

# -- dvc.yaml ----------------------------------------------------------------------------------

LEARN, FORGE = "python -m stages.learn ${key}", "python forge.py ${key}"


def another_command_everywhere(forger: Forger) -> None:
    """In ``dvc.yaml`` and in the lock."""
    forger.replace("dvc.yaml", LEARN, FORGE)
    for key in ("01", "02"):
        forger.lock(f"learn@{key}", lambda s, key=key: s.update(cmd=f"python forge.py {key}"))


def the_same_committed(forger: Forger) -> None:
    another_command_everywhere(forger)
    forger.commit()


def an_out_that_nobody_declares(forger: Forger) -> None:
    """The results are no out any more: nobody hashes them."""
    forger.replace("dvc.yaml", "outs: ['runs/${key}/state', 'runs/${key}/results']",
                   "outs: ['runs/${key}/state']")  # fmt: skip
    for key in ("01", "02"):
        forger.lock(f"consolidate@{key}", _drop("outs", f"runs/{key}/results"))
    forger.predict()
    forger.score()
    forger.record()


def a_parameter_that_nobody_declares(forger: Forger) -> None:
    forger.replace("dvc.yaml", "params: [seed]", "params: []")
    for stage in ("evaluate", "measure"):
        forger.lock(stage, lambda s: s.pop("params"))


def a_stage_of_ones_own(forger: Forger) -> None:
    """With one more stage the two runs are not comparable, one would think."""
    extra = "stages:\n  extra: {cmd: echo, deps: [LICENSE]}\n"
    forger.replace("dvc.yaml", "\nstages:\n", f"\n{extra}")
    own = {"path": "LICENSE", "hash": "md5", "md5": md5(forger.root / "LICENSE")}
    with forger.yaml("dvc.lock") as lock:
        lock["stages"]["extra"] = {"cmd": "echo", "deps": [own]}


def a_pipeline_replaced_in_git(forger: Forger) -> None:
    """`git replace` shows a forged commit wherever HEAD is asked for."""
    forged_and_scored(forger)
    forger.git("replace", "HEAD~1", "HEAD")
    forger.git("reset", "-q", "--soft", "HEAD~1")


PIPELINE: dict[str, tuple[Attack, str]] = {
    "another command in dvc.yaml": (
        lambda f: f.replace("dvc.yaml", LEARN, FORGE),
        "dvc.yaml: learn@01 runs 'python forge.py 01' and not 'python -m stages.learn 01'",
    ),
    "another command in both": (another_command_everywhere, r"dvc.yaml is not as .*learn.cmd"),
    "another command, committed": (the_same_committed, "learn@01 runs 'python forge.py 01' and"),
    "an undeclared out": (an_out_that_nobody_declares, r"not as committed \(consolidate.outs"),
    "an undeclared parameter": (
        a_parameter_that_nobody_declares,
        r"not as committed \(evaluate.params, measure.params\)",
    ),
    "a stage of one's own": (a_stage_of_ones_own, r"dvc.yaml is not as committed \(extra"),
    "a replaced commit": (a_pipeline_replaced_in_git, "first differs in consolidate@02"),
}

# -- parameters --------------------------------------------------------------------------------


def another_share_of_test_images(forger: Forger) -> None:
    """The options of a source stand in ``runs/code`` too."""
    with forger.yaml("params.yaml") as params:
        params["data"]["source_options"]["npz"]["test_fraction"] = 0.5
    forger.options()
    forger.stages(report.main)
    forger.record()
    forger.commit()


RELABELLED: dict[str, tuple[Any, str]] = {
    "train.lr": (0.06, "learn@01 was made with other parameters: train.lr"),
    "train.epochs": (2, "learn@01 was made with other parameters: train.epochs"),
    "loss.beta": (2.0, "learn@01 was made with other parameters: loss.beta"),
    "seed": (7, "learn@01 was made with other parameters: seed"),
    "mixture.kappa": (11.0, "learn@01 was made with other parameters: mixture.kappa"),
    "memory.size": (9, "consolidate@01 was made with other parameters: memory.size"),
    "reduction.delta": (0.9, "consolidate@01 was made with other parameters: reduction.delta"),
    "data.per_pair": (3, "other per_pair than the parameters"),
    "data.validation": (0.5, "does not follow from data/raw/tiny and the parameters"),
    "data.class_names": (["w", "x", "y", "z"], "other classes than the parameters"),
    "data.image_size": (16, "other image_size than the parameters"),
    "data.paper": ({"train": 32, "test": 16}, "other paper than the parameters"),
    "schedule.rule": ("nc", "schedule.csv does not follow from the parameters"),
    "schedule.domain_order": ("shuffled", "schedule.csv does not follow from the parameters"),
}
"""Parameters that a run claims to be made with and was not."""

PARAMETERS: dict[str, tuple[Attack, str]] = {
    "edited": (lambda f: f.param("train.lr", 0.06), r"changed since the run \(train.lr\)"),
    "a reading that no stage reads": (
        lambda f: f.param("reading", "printed"),
        "reports/index.html does not follow from the metrics",
    ),
    "options of a source": (
        another_share_of_test_images,
        "index.parquet does not follow from data/raw/tiny and the parameters",
    ),
}

# -- code --------------------------------------------------------------------------------------

METRICS, TRAINING = "dacr/evaluation/metrics.py", "dacr/learning/training.py"


def other_code_described(forger: Forger) -> None:
    """The code of the training is edited, and ``runs/code`` describes the edit."""
    forger.append(TRAINING, "\nANOTHER = 1\n")
    forger.recode()
    forger.record()
    forger.commit()


def code_left_out(forger: Forger) -> None:
    """… or does not mention the module any more."""
    forger.append(TRAINING, "\nANOTHER = 1\n")
    for stage in ("learn", "consolidate", "start", "budget"):
        with forger.json(f"runs/code/{stage}.json") as content:
            content["modules"].pop(TRAINING, None)
    forger.record()
    forger.commit()


def hidden_from_git(forger: Forger) -> None:
    forger.append("dacr/config.py", "\nANOTHER = 1\n")
    forger.git("update-index", "--assume-unchanged", "dacr/config.py")


CODE: dict[str, tuple[Attack, str]] = {
    "a module edited": (
        lambda f: f.append(METRICS, "\nANOTHER = 1\n"),
        f"{METRICS} changed since the run",
    ),
    "a module that is no Python": (
        lambda f: f.append(METRICS, "\n)\n"),
        f"{METRICS} changed since the run",
    ),
    "a module gone": (lambda f: f.path(METRICS).unlink(), f"{METRICS} is missing"),
    "a template edited": (
        lambda f: f.append("dacr/report/templates/report.js", "// more\n"),
        "dacr/report/templates changed since the run",
    ),
    "the paper's numbers edited": (
        lambda f: f.append("conf/paper.yaml", "# more\n"),
        "conf/paper.yaml changed since the run",
    ),
    "edited and described": (other_code_described, "learn@01 was made by other code"),
    "edited and left out": (code_left_out, "runs/code/learn.json does not follow from the code"),
    "code that counts for no stage": (
        lambda f: f.append("dacr/config.py", "\nANOTHER = 1\n"),
        "dacr/config.py is not as committed",
    ),
    "the check itself": (
        lambda f: f.append("dacr/runtime/hashes.py", "\nANOTHER = 1\n"),
        "dacr/runtime/hashes.py is not as committed",
    ),
    "code that git overlooks": (hidden_from_git, "dacr/config.py is not as committed"),
}

# -- results: every checksum is right, and HEAD agrees -----------------------------------------


def forged_and_scored(forger: Forger) -> None:
    """Other predictions, everything after them made by its own stage, recorded, committed."""
    forger.predict()
    forger.score()
    forger.record()
    forger.commit()


def a_better_metric(forger: Forger) -> None:
    with forger.json("reports/metrics.json", indent=2) as metrics:
        metrics["final_accuracy"] = 99.9
    forger.record()
    forger.commit()


def a_better_page(forger: Forger) -> None:
    forger.replace("reports/index.html", "</body>", "<p>100 %</p></body>")
    forger.record()
    forger.commit()


def a_plot_too_many(forger: Forger) -> None:
    (forger.root / "reports/plots/better.csv").write_text("session,accuracy\n1,100\n")
    forger.record()
    forger.commit()


def cheaper(forger: Forger) -> None:
    with forger.json("reports/budget.json", indent=2) as counts:
        counts["parameters"] = 1
    forger.record()
    forger.commit()


def fewer_test_images(forger: Forger) -> None:
    """A class that would be predicted wrong is forgotten."""
    path = forger.path(PREDICTIONS)
    rows = pd.read_parquet(path)
    rows[rows["label"] != 0].reset_index(drop=True).to_parquet(path, index=False)
    forger.score()
    forger.record()
    forger.commit()


def more_confidence(forger: Forger) -> None:
    path = forger.path(PREDICTIONS)
    rows = pd.read_parquet(path)
    rows.assign(confidence=0.99).to_parquet(path, index=False)
    forger.score()
    forger.record()
    forger.commit()


def lower_losses(forger: Forger) -> None:
    """Of the curves; no accuracy follows from them."""
    with forger.json("runs/02/results/history.json") as history:
        for row in history["losses"]:
            row["inter"] = 0.001
    forger.score()
    forger.record()
    forger.commit()


def an_easier_stream(forger: Forger) -> None:
    """The sessions' tables name other images, consistently with nothing else."""
    forger.replace("data/split/session-02.csv", ",train,", ",test,")
    forger.record()
    forger.commit()


def other_weights(forger: Forger) -> None:
    """The model after the first session is another one; the lock says so everywhere."""
    forger.flip("runs/01/state/extractors/01.safetensors")
    forger.record()
    forger.commit()


def damaged_results(forger: Forger) -> None:
    """Recorded as they are, so that no checksum is wrong."""
    forger.path(PREDICTIONS).write_bytes(b"PAR1")
    forger.record()
    forger.commit()


NOTE = "runs/01/learned/made.json"


def no_note(forger: Forger) -> None:
    forger.path(NOTE).unlink()
    forger.record()
    forger.commit()


def a_note_of_nothing(forger: Forger) -> None:
    forger.path(NOTE).write_text("[]")
    forger.record()
    forger.commit()


def a_note_of_another_session(forger: Forger) -> None:
    forger.path(NOTE).write_bytes((forger.root / "runs/02/learned/made.json").read_bytes())
    forger.record()
    forger.commit()


def a_forged_note(forger: Forger) -> None:
    """A relabelled run whose first session says so, too; the second one saw another note."""
    with forger.json(NOTE) as note:
        note["parameters"]["train"]["lr"] = 0.06
    forger.relabel("train.lr", 0.06)


RESULTS: dict[str, tuple[Attack, str]] = {
    "other predictions": (forged_and_scored, "predictions of session 2 are not those of the mod"),
    "a better metric": (a_better_metric, "reports/metrics.json does not follow from the predic"),
    "a better page": (a_better_page, "reports/index.html does not follow from the metrics"),
    "a plot too many": (a_plot_too_many, "reports/plots/better.csv does not follow from the pre"),
    "a smaller budget": (cheaper, "reports/budget.json does not follow from the state"),
    "fewer test images": (fewer_test_images, "are not on the images of data/split/session-"),
    "more confidence": (more_confidence, "predictions of session 1 are not those of the model"),
    "lower losses": (lower_losses, "runs/02/results/history.json has other losses"),
    "an easier stream": (an_easier_stream, "learn@02 was made from another data/split/session-02"),
    "other weights": (other_weights, "learn@02 was made from another runs/01/state"),
    "no note": (no_note, f"{NOTE} is missing, so that nothing proves"),
    "a note of nothing": (a_note_of_nothing, "learn@01 was made in an unknown way"),
    "a note of another session": (
        a_note_of_another_session,
        r"learn@01 was made by another stage \(learn@02\)",
    ),
    "a forged note": (a_forged_note, "consolidate@01 was made from another runs/01/learned"),
    "damaged results": (damaged_results, "cannot be checked: "),
}

ATTACKS: dict[str, tuple[Attack, str]] = {
    f"{kind}: {name}": attack
    for kind, attacks in {
        "lock": LOCK,
        "cache": CACHED,
        "files": KINDS,
        "dvc.yaml": PIPELINE,
        "parameters": PARAMETERS,
        "code": CODE,
        "results": RESULTS,
    }.items()
    for name, attack in attacks.items()
}
