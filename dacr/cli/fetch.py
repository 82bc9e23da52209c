"""Are the files of a benchmark to be had? Asks every address for the first megabyte only.

Run it before a large download: `dacr fetch --check idomainnet`. It tells for each address whether
it answers, whether the size is the expected one, whether an interrupted download can go on there,
and how fast it is. Fetching itself is `dvc repro build`, or the beginning of any `dvc exp run`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from dacr.config import Params, load_params
from dacr.data.checking import Finding, Prospect, addresses_of, examine, prospect_of
from dacr.data.download import choose_mirror, mirror_folder
from dacr.data.pace import LEAST, in_words
from dacr.data.sources import get_source
from dacr.data.sources.upstream import Upstream
from dacr.data.web import host_of
from dacr.errors import UserError
from dacr.experiments.repository import require_project
from dacr.runtime.compose import compose

BENCHMARKS = Path("conf/benchmark")
HEADER = ("source", "file", "address", "alive", "size", "ranges", "rate", "remark")
WIDTHS = (19, 26, 31, 5, 13, 6, 10, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", required=True, help="ask, fetch nothing")
    parser.add_argument("benchmark", nargs="?", help="default: that of params.yaml")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds (default: 20)")


def run(arguments: argparse.Namespace) -> None:
    require_project()
    params = _params(arguments.benchmark)
    choose_mirror(params.fetch.mirror)
    mirror = mirror_folder()
    print(_row(HEADER))
    lines, ready = [], []
    seen: dict[tuple[str, str], Finding] = {}  # the domains of DomainNet share their lists
    for name in params.data.sources:
        source = get_source(name, params.data.source_options)
        if not isinstance(source, Upstream):
            lines.append(f"ready      {name}: is made from what is on this machine")
            continue
        if mirror and _in_mirror(source, mirror):
            lines.append(f"ready      {name}: the mirror has it, no address will be asked")
            continue
        findings = []
        for file, address in addresses_of(source.published):
            key = file.name, address
            if key not in seen:
                seen[key] = examine(file, address, arguments.timeout, time.monotonic)
                print(_row(tell(name, seen[key])), flush=True)
            findings.append(seen[key])
        prospects = [prospect_of(release, findings) for release in source.published.releases]
        line, prospect = verdict(name, prospects)
        lines.append(line)
        ready += [prospect] if prospect else []
    print(*lines, sep="\n")
    faulty = any(line.startswith("NOT READY") for line in lines)
    if ready and not faulty:
        print(f"{params.benchmark}: {_amount(ready)}")
    sys.exit(faulty)


def _params(benchmark: str | None) -> Params:
    if benchmark is None:
        return load_params()
    known = sorted(file.stem for file in BENCHMARKS.glob("*.yaml"))
    if benchmark not in known:
        raise UserError(
            f"there is no benchmark '{benchmark}'; the known ones are {', '.join(known)}"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "params.yaml"
        compose([f"benchmark={benchmark}"], path)
        return load_params(path)


def _in_mirror(source: Upstream, mirror: Path) -> bool:
    whole = any(release.all_in(mirror) for release in source.published.releases)
    return whole or (mirror / source.sample_name).is_file()


def _row(cells: Iterable[str]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return " ".join(padded).rstrip()


def tell(source: str, finding: Finding) -> tuple[str, ...]:
    """A row of the table."""
    file = finding.file
    size = "–" if finding.size is None else f"{finding.size:,}"
    ranges = {True: "yes", False: "no", None: "–"}[finding.ranges]
    rate = "–" if finding.rate is None else in_words(finding.rate)
    remark = finding.fault or ""
    if not remark and finding.rate is not None and finding.rate < LEAST:
        remark = f"slow: asked after the others ({in_words(LEAST)} is enough)"
    if not remark and file.size is None and finding.size is not None:
        remark = "no size was published"
    alive = "yes" if finding.alive else "no"
    return source, file.name, host_of(finding.address), alive, size, ranges, rate, remark


def verdict(name: str, prospects: list[Prospect]) -> tuple[str, Prospect | None]:
    """Whether the source can be had, by which release, how large it is and how long it takes."""
    for number, prospect in enumerate(prospects, start=1):
        if not prospect.missing:
            by = f" (release {number} of {len(prospects)}: {prospect.release.names})"
            warning = f"; {prospect.release.warning}" if prospect.release.warning else ""
            which = by if len(prospects) > 1 else ""
            return f"ready      {name}: {_amount([prospect])}{which}{warning}", prospect
    if not prospects:
        return f"NOT READY  {name}: has no public address; it needs a mirror (docs/data.md)", None
    missing = "; ".join(", ".join(file.name for file in own.missing) for own in prospects)
    return f"NOT READY  {name}: no good address for {missing}; see docs/data.md", None


def _amount(prospects: list[Prospect]) -> str:
    size, seconds = sum(own.size for own in prospects), sum(own.seconds for own in prospects)
    time_needed = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
    return f"{size / 1e6:,.0f} MB, about {time_needed if seconds >= 60 else f'{seconds:.0f} s'}"
