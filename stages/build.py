"""``build``: all images of the benchmark in one memory-mapped array, with an index."""

from pathlib import Path

from dacr.stage import run_stage


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
    print(*describe(summary), sep="\n")


if __name__ == "__main__":
    run_stage(main)
