"""``build``: all images of the benchmark in one memory-mapped array, with an index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dacr.errors import UserError
from dacr.runtime.stage import run_stage

if TYPE_CHECKING:
    from dacr.config import Data


def check_classes(data: Data, names: list[str]) -> None:
    """Refuse other classes than the parameters count: the splits are composed from that number."""
    if len(names) != data.classes:
        some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        raise UserError(
            f"data.classes is {data.classes} and the sources have {len(names)} classes ({some});"
            " correct data.classes in conf/benchmark, or the sources"
        )


def tell_choice(origins: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What every rule that chooses classes would keep, beside the paper, where one chose them."""
    chosen = next((facts for facts in origins.values() if "class_choice" in facts), None)
    if chosen is None:
        return []
    lines = []
    for rule, figures in chosen["class_choice"].items():
        name = "the paper" if rule == "paper" else f"class_rule {rule}"
        mark = " (chosen)" if rule == chosen["class_rule"] else ""
        images, pair = figures["train_images"], figures["smallest_pair"]
        lines.append(f"  {name}{mark}: {images:,} training images, the smallest pair has {pair:,}")
    return lines


def tell_validation(data: Data) -> list[str]:
    """Which images the test part is made of, where it is not the sources' own."""
    if not data.validation:
        return []
    share = f"data.validation={data.validation:g}"
    return [f"  the images to test are held-out training images ({share}), not the test sets"]


def main() -> None:
    from dacr.config import load_params
    from dacr.data.benchmark import build_benchmark, describe
    from dacr.data.sources import get_source

    params = load_params()
    data = params.data
    raw = Path("data/raw") / params.benchmark
    options = data.source_options | data.read_options
    sources = [(get_source(name, options), raw / name) for name in data.sources]
    names = data.class_names or sources[0][0].class_names(sources[0][1])
    check_classes(data, names)
    summary = build_benchmark(
        params.benchmark,
        names,
        data.domains,
        sources,
        image_size=data.image_size,
        out=Path("data/benchmark"),
        paper=data.paper,
        per_pair=data.per_pair,
        validation=data.validation,
        seed=params.schedule.seed,
    )
    told = [*describe(summary), *tell_choice(summary["origins"]), *tell_validation(data)]
    print(*told, sep="\n")


if __name__ == "__main__":
    run_stage(main)
