"""The counted work of the paper's Table 1, and what it was before frozen passes were shared.

``python -m tests.earlier_work`` prints the table of docs/gpu.md, ``--check`` compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dacr.experiments.devices import device_called
from dacr.experiments.plan import Choice, Experiment, cells, parameters_of
from dacr.experiments.tables import load_paper
from dacr.experiments.work import images_of, scales, work_of
from dacr.methods import parts_of
from dacr.methods.parts.scale import Scale
from dacr.model.flops import forward_flops

BENCHMARKS = ("idigits", "icifar20", "idomainnet")
SPLITS = ("nc", "nd", "ncd")
DEVICE = "a100"


def spared(method: str, scale: Scale) -> int:
    """Frozen passes of a session that the code made once and does not make any more."""
    if scale.first:
        return 0
    frozen = scale.index - 1
    if not scale.augmented:
        # GeoDL had two teachers, one of features and one of quadrants.
        return scale.images if method in ("geodl", "geodl_dacr") else 0
    match method:
        case "ucir_dacr" | "geodl_dacr":
            return scale.trained  # host and classifier each asked a teacher in every step
        case "der_dacr":
            views = parts_of(method).classifier.session_views(scale)
            # So did DER's; and the E-step ran all extractors in every epoch.
            return frozen * (scale.trained + (views - 1) * scale.images)
        case _:
            return 0


@dataclass(frozen=True)
class Counted:
    before: float
    after: float
    """FLOPs."""
    rate: float
    """FLOP/s of the device."""


def counted(experiment: Experiment) -> Counted:
    params = parameters_of(experiment)
    images = images_of(params.data, [])
    work = work_of(params, images)
    extra = sum(spared(params.method, scale) for scale in scales(params, images))
    each = forward_flops(work.backbone, params.augmentation.input_size)
    rate = device_called(DEVICE, load_paper()).rate(work.backbone, work.precision)
    return Counted(work.flops + extra * each, work.flops, rate)


def experiments(benchmark: str) -> Iterator[Experiment]:
    paper = load_paper()
    choice = Choice(methods=published(), seeds=[1993])
    for cell in cells(paper, paper.table("main"), benchmark, choice):
        yield from cell


def published() -> list[str]:
    """The methods of the paper."""
    paper = load_paper()
    return [method for method in paper.methods if not paper.is_fair(method)]


def cell(found: list[Counted]) -> str:
    """PFLOP by split; in brackets what it was, where it was more."""
    after = " / ".join(_petaflop(own.after) for own in found)
    before = " / ".join(_petaflop(own.before) for own in found)
    return after if before == after else f"{after} ({before})"


def _petaflop(flops: float) -> str:
    number = flops / 1e15
    return f"{number:.1f}" if number < 100 else f"{number:.0f}"


def table() -> list[str]:
    paper = load_paper()
    found = {
        (own.benchmark, own.method, own.split): counted(own)
        for benchmark in BENCHMARKS
        for own in experiments(benchmark)
    }
    lines = [
        f"| method | {' | '.join(map(paper.benchmark_name, BENCHMARKS))} |",
        "|---|---|---|---|",
    ]
    for method in published():
        row = [cell([found[b, method, split] for split in SPLITS]) for b in BENCHMARKS]
        lines.append(f"| {paper.label(method)} | {' | '.join(row)} |")
    sums = [[own for key, own in found.items() if key[0] == b] for b in BENCHMARKS]
    row = [f"{total(own, 'after'):,.0f} ({total(own, 'before'):,.0f})" for own in sums]
    lines.append(f"| all 30 | {' | '.join(row)} |")
    row = [f"{hours(own, 'after'):.0f} h ({hours(own, 'before'):.0f} h)" for own in sums]
    lines.append(f"| on one A100 | {' | '.join(row)} |")
    return lines


def total(found: list[Counted], when: str) -> float:
    return sum(getattr(own, when) for own in found) / 1e15


def hours(found: list[Counted], when: str) -> float:
    return sum(getattr(own, when) / own.rate for own in found) / 3600


if __name__ == "__main__":
    printed = table()
    print("\n".join(printed))
    if "--check" in sys.argv:
        page = Path("docs/gpu.md").read_text(encoding="utf-8")
        sys.exit(0 if "\n".join(printed) in page else "docs/gpu.md has another table")
