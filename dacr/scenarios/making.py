"""A process that fetches the sources of a benchmark and builds it (``cache`` starts it)."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock

from dacr.config import Data
from dacr.data.building import build
from dacr.data.download import mirror_folder
from dacr.data.fetching import check_options, fetch_source
from dacr.data.sources import get_source
from dacr.data.sources.upstream import Upstream
from dacr.errors import UserError
from dacr.runtime.code import identity
from dacr.runtime.stage import explain, termination_is_an_interrupt
from dacr.scenarios.catalogue import use_carried_sources


def make(data: Data, seed: int, home: Path, out: Path) -> list[str]:
    """The benchmark of ``data`` in ``out``; what was built, as lines."""
    use_carried_sources()
    for name in data.sources:
        check_options(data, name)
        _refuse_without_address(name, data)
    raw = home / "raw" / _variant(data)
    for name in data.sources:
        _fetch(name, data, raw)
    return build(data, seed, raw, out)


def _refuse_without_address(name: str, data: Data) -> None:
    """A source that only a mirror has is missed before another one is downloaded."""
    source, mirror = get_source(name, data.source_options), mirror_folder()
    if not isinstance(source, Upstream) or source.published.releases:
        return
    if mirror is None or not (mirror / source.sample_name).is_file():
        raise UserError(
            f"{name} has no public address; put {source.sample_name} in a folder and name that by "
            "DACR_MIRROR (see docs/data.md)"
        )


def _variant(data: Data) -> str:
    """Where the raw files go: published sets are the same for all benchmarks and versions."""
    upstream = all(isinstance(get_source(s, data.source_options), Upstream) for s in data.sources)
    mirror = mirror_folder()
    if upstream and mirror is None and not data.source_options:
        return "published"
    facts = [str(mirror), data.source_options]
    code = [] if upstream else [identity("fetch", sources=data.sources)]
    return hashlib.sha256(json.dumps([*facts, *code]).encode()).hexdigest()[:10]


def _fetch(name: str, data: Data, raw: Path) -> None:
    """The source in ``raw``, whole or absent; benchmarks that share it do not fetch it twice."""
    raw.mkdir(parents=True, exist_ok=True)
    with FileLock(raw / f".{name}.lock"):
        if (raw / name).is_dir():
            return
        unfinished = raw / f".{name}.partial"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        fetch_source(name, data.source_options, unfinished)
        unfinished.replace(raw / name)


def main(request: dict[str, Any]) -> None:
    try:
        with termination_is_an_interrupt():
            data = Data.model_validate(request["data"])
            told = make(data, request["seed"], Path(request["home"]), Path(request["out"]))
            print(*told, sep="\n", flush=True)
    except BaseException as error:
        line = explain(error)
        if line is None:
            raise
        Path(request["fault"]).write_text(line, encoding="utf-8")
        sys.exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
