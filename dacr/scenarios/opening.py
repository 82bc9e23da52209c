"""``dacr.scenario``: a benchmark and a split by their names, or the tables of a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dacr.data.splits import SCHEDULE
from dacr.errors import UserError
from dacr.scenarios.cache import BENCHMARK, scenario_folder
from dacr.scenarios.catalogue import Choice
from dacr.scenarios.composition import benchmarks, splits

if TYPE_CHECKING:
    from dacr.scenarios.stream import Scenario

NESTED = (Path(), Path("split"), Path("data/split"))
"""Where the tables may be in a folder that a user names."""


def scenario(
    name: str | Path,
    split: str | None = None,
    *,
    seed: int | None = None,
    per_pair: int | None = None,
    validation: float | None = None,
) -> Scenario:
    """The sessions of a benchmark, as torch data sets.

    ``scenario("icifar20", "ncd")`` fetches and builds the benchmark on first use, into the folder
    that ``DACR_HOME`` names (default: the user's cache folder). ``seed`` orders classes and domains
    anew (default: the committed schedule), ``per_pair`` limits the training images of each
    class-domain pair, ``validation`` holds out this fraction of them and tests on it, to tune a
    method without its test set.

    ``scenario("path/to/data/split")`` takes the tables and the benchmark of a project.
    """
    from dacr.scenarios.stream import Scenario  # torch: who looks for a folder alone needs none

    if split is not None:
        choice = Choice(str(name), split, seed, per_pair, validation)
        folder = scenario_folder(choice)
        return Scenario(folder, folder.parent / BENCHMARK, split)
    if (seed, per_pair, validation) != (None, None, None):
        raise UserError("seed, per_pair and validation are of a named benchmark and split")
    folder = tables_folder(name)
    return Scenario(folder, folder.parent / BENCHMARK, folder.name)


def tables_folder(name: str | Path) -> Path:
    """The folder with the tables of a project, at or below ``name``."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        if str(name) in benchmarks():
            raise UserError(f"name a split of {name}, too: {', '.join(splits())}")
        raise UserError(
            f"{name} is no folder, and no benchmark either: {', '.join(benchmarks())} are"
        )
    for place in NESTED:
        if (folder / place / SCHEDULE).is_file():
            return folder / place
    raise UserError(
        f"{name} has no {SCHEDULE}; name the folder data/split of a project in which "
        "`dvc repro split` has run, or a benchmark and a split"
    )
