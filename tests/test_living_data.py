"""A data set that grows: what is appended is learned, and no earlier session is trained again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.learning import pictures
from tests.tiny_project import BENCHMARK, commit, make_repository, make_run, run

SPLIT = """\
# @package _global_
split: living
schedule:
  split: living
  rule: table
  seed: 1993
  domain_order: listed
  domains_per_session: null
  new_classes: null
  table: data/schedules/living.csv
  sessions: ${{sessions:{count}}}
  last: ${{last_session:{count}}}
"""
FOUR = ["1,a,x", "1,b,x", "2,c,x", "2,d,x", "3,a,y", "3,b,y", "4,c,y", "4,d,y"]
FIFTH = [f"5,{name},z" for name in "abcd"]
SIXTH = ["6,e,x", "6,a,z2"]


def write_split(folder: Path, rows: list[str]) -> None:
    table = "\n".join(["session,class,domain", *rows, ""])
    (folder / "data/schedules/living.csv").write_text(table)
    count = max(int(row.split(",")[0]) for row in rows)
    (folder / "conf/split/living.yaml").write_text(SPLIT.format(count=count))


def write_source(folder: Path, name: str, labels: str, domains: list[str], seed: int) -> str:
    """Six images of each label in each domain, as a file of its own; its options."""
    each = [(label, domain) for domain in domains for label in labels for _ in range(6)]
    numbers = [ord(label) - ord("a") for label, _ in each]
    images = pictures(numbers, [seed] * len(each), seed)
    y, domain = np.array(each).T
    np.savez(folder / f"{name}.npz", x=images, y=y, domain=domain)
    return f"{name}: {{path: {name}.npz, test_fraction: 0.34}}"


def write_benchmark(folder: Path, options: list[str], classes: int, domains: str) -> None:
    names = ", ".join(option.split(":")[0] for option in options)
    text = BENCHMARK.replace("[npz]", f"[{names}]").replace("[x, y]", f"[{domains}]")
    text = text.replace("classes: 4", f"classes: {classes}")
    own = "{npz: {path: tiny.npz, test_fraction: 0.34}}"
    assert own in text
    text = text.replace(own, "{" + ", ".join(options) + "}")
    (folder / "conf/benchmark/tiny.yaml").write_text(text)


def went(output: str, what: str) -> set[str]:
    return {line.split("'")[1] for line in output.splitlines() if what in line}


def trained(output: str) -> set[str]:
    return {name for name in went(output, "Running stage") if name[:5] in ("learn", "conso")}


def repro(project: Path, *targets: str) -> str:
    run(project, "python", "-m", "stages.params", "benchmark=tiny", "split=living")
    return run(project, "dvc", "repro", *targets)


def stages(project: Path) -> dict[str, object]:
    lock: dict[str, object] = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    return lock


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sessions of a table, run and committed."""
    folder = tmp_path_factory.mktemp("living")
    make_repository(folder)
    write_split(folder, FOUR)
    make_run(folder, scenario="living")
    run(folder, "dvc", "commit", "-f", "-q")
    commit(folder, "four sessions")
    return folder


TINY = "npz: {path: tiny.npz, test_fraction: 0.34}"


def test_what_is_appended_is_all_that_is_learned(project: Path) -> None:
    assert "Running stage" not in repro(project)
    before = stages(project)

    late = write_source(project, "npz_late", "abcd", ["z"], seed=2)
    write_benchmark(project, [TINY, late], classes=4, domains="x, y, z")
    write_split(project, FOUR + FIFTH)
    output = repro(project)
    assert trained(output) == {"learn@05", "consolidate@05"}
    assert {f"learn@0{t}" for t in range(1, 5)} <= went(output, "didn't change, skipping")
    assert "fetch@npz" in went(output, "didn't change, skipping")
    assert "fetch@npz_late" in went(output, "Running stage")
    after = stages(project)
    for name in before:
        if name.startswith(("fetch@", "start", "learn", "consolidate")):
            assert after[name] == before[name], name
    fifth = pd.read_csv(project / "data/split/session-05.csv")
    assert set(fifth.loc[fifth["part"] == "train", "domain"]) == {2}

    more = write_source(project, "npz_more", "e", ["x"], seed=3)
    wide = write_source(project, "npz_wide", "a", ["z2"], seed=4)
    write_benchmark(project, [TINY, late, more, wide], classes=5, domains="x, y, z, z2")
    write_split(project, FOUR + FIFTH + SIXTH)
    output = repro(project, "consolidate@06")
    assert trained(output) == {"learn@06", "consolidate@06"}
    predictions = pd.read_parquet(project / "runs/06/results/predictions.parquet")
    assert set(predictions.loc[predictions["session"] == 6, "label"]) == {0, 1, 2, 3, 4}


def test_other_pixels_of_an_earlier_image_are_noticed(project: Path) -> None:
    """The session is trained again, since its table has another hash of the image."""
    images = np.load(project / "tiny.npz")
    changed = images["x"].copy()
    changed[0] ^= 255
    np.savez(project / "tiny.npz", x=changed, y=images["y"], domain=images["domain"])
    run(project, "dvc", "repro", "-f", "-s", "-q", "fetch@npz")
    run(project, "dvc", "repro", "-q", "split")
    assert "learn@01" in run(project, "dvc", "status", "learn@01")


def test_images_that_are_not_those_of_the_table_are_one_line(project: Path) -> None:
    path = project / "data/benchmark/images.npy"
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        last = pd.read_csv(project / "data/split/session-06.csv")["id"].max()
        output = run(project, "python", "-m", "stages.learn", "06", ok=False)
        (line,) = [text for text in output.splitlines() if text.startswith("dacr:")]
        assert (
            f"image {last} of the benchmark is not the one that data/split/session-06.csv" in line
        )
        assert "dvc repro build" in line
        assert "Traceback" not in output
    finally:
        path.unlink()
        path.write_bytes(whole)
