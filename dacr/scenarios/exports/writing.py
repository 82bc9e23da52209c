"""Write a scenario for people (CSV), for torch, Avalanche or continuum."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch

from dacr.data.splits import SCHEDULE
from dacr.errors import UserError, naming
from dacr.runtime.progress import IMAGES, AmountProgress
from dacr.scenarios.exports.stream import Stream
from dacr.scenarios.stream import Scenario

HERE = Path(__file__).parent
CHUNK = 1024
PEERS = ("avalanche", "continuum")
"""Forms that need a library of this name, beyond torch."""
SCRIPTS: dict[str, tuple[str, ...]] = {
    "csv": (),
    "torch": ("stream.py",),
    "avalanche": ("stream.py", "avalanche_benchmark.py"),
    "continuum": ("stream.py", "continuum_scenarios.py"),
}


def require_library(name: str) -> None:
    if find_spec(name) is None:
        raise UserError(f"{name} is not installed; `pip install 'dacr[peers]'`")


def check_export(form: str, out: Path) -> None:
    """Refuse what cannot end well, before anything is fetched."""
    if form in PEERS:
        require_library(form)
    with naming(f"--out {out}"):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"--out {out} exists and is not empty; name another folder")


def export(scenario: Scenario, form: str, out: Path, domains: bool = False) -> None:
    """Write ``scenario`` into the folder ``out``: all of it, or nothing."""
    check_export(form, out)
    with naming(f"--out {out}"):
        beside = out if out.is_dir() else out.parent
        beside.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".dacr-export-", dir=beside) as scratch:
            draft = Path(scratch) / "whole"
            draft.mkdir()
            _write(scenario, form, draft, domains)
            if out.is_dir():
                for file in sorted(draft.iterdir()):
                    file.replace(out / file.name)
            else:
                draft.replace(out)


def _write(scenario: Scenario, form: str, out: Path, domains: bool) -> None:
    if form == "csv":
        write_csv(scenario, out)
        return
    write_stream(stream_of(scenario, domains), out)
    for script in SCRIPTS[form]:
        text = (HERE / script).read_text(encoding="utf-8")
        (out / script).write_text(text.replace(f"{__package__}.stream", "stream"), "utf-8")


def write_csv(scenario: Scenario, out: Path) -> None:
    """``schedule.csv``, ``images.csv`` with a row per session and image, and the names."""
    shutil.copyfile(scenario.folder / SCHEDULE, out / SCHEDULE)
    tables = [session.table.assign(session=session.index) for session in scenario]
    rows = pd.concat(tables, ignore_index=True)
    rows["source_id"] = scenario.table["source_id"].to_numpy()[rows["id"]]
    columns = ["session", "part", "id", "label", "domain", "source_id", "pixels"]
    rows[columns].to_csv(out / "images.csv", index=False, lineterminator="\n")
    names = {
        "benchmark": scenario.benchmark,
        "split": scenario.split,
        "classes": scenario.classes,
        "domains": scenario.domains,
    }
    text = json.dumps(names, indent=1, ensure_ascii=False)
    (out / "names.json").write_text(text + "\n", encoding="utf-8")


def stream_of(scenario: Scenario, domains: bool = False) -> Stream:
    """The scenario as ``exports/stream.py`` describes it; its rows are those of the benchmark."""
    parts = {
        "train": [session.train().ids for session in scenario],
        "test": [session.test(seen=False).ids for session in scenario],
        "seen": [session.test().ids for session in scenario],
    }
    index = scenario.table
    stream: Stream = {
        "images": scenario.pixels,
        "labels": torch.from_numpy(index["label"].to_numpy(copy=True)),
        "ids": torch.arange(len(index)),
        "classes": list(scenario.classes),
        "domain_names": list(scenario.domains),
    }
    if domains:
        stream["domains"] = torch.from_numpy(index["domain"].to_numpy(copy=True))
    return stream | {
        name: [torch.from_numpy(ids) for ids in sessions] for name, sessions in parts.items()
    }


def write_stream(stream: Stream, out: Path) -> None:
    """``images.npy`` with the images that a session has, and ``stream.pt`` with all the rest."""
    parts = ("train", "test", "seen")
    kept = torch.cat([rows for part in parts for rows in stream[part]]).unique()
    _copy_images(stream["images"], kept.numpy(), out / "images.npy")
    place = torch.full((len(stream["ids"]),), -1)
    place[kept] = torch.arange(len(kept))
    content = {name: value for name, value in stream.items() if name != "images"}
    for name in ("labels", "ids", "domains"):
        if name in content:
            content[name] = content[name][kept]
    for part in parts:
        content[part] = [place[rows] for rows in content[part]]
    torch.save(content, out / "stream.pt")


def _copy_images(images: np.ndarray, kept: np.ndarray, file: Path) -> None:
    """Written, and not mapped: a full disk is then an error, and no signal that ends Python."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(kept), *images.shape[1:])}
    progress = AmountProgress(f"export {file.name}", len(kept), IMAGES)
    try:
        with file.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, header)
            for start in range(0, len(kept), CHUNK):
                rows = kept[start : start + CHUNK]
                stream.write(images[rows].tobytes())
                progress.step(len(rows))
    finally:
        progress.close()
