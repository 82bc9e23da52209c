"""``build``: all images of the benchmark in one memory-mapped array, with an index."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.config import load_params
    from dacr.data.building import build

    params = load_params()
    raw = Path("data/raw") / params.benchmark
    told = build(params.data, params.schedule.seed, raw, Path("data/benchmark"))
    print(*told, sep="\n")


if __name__ == "__main__":
    run_stage(main, "build")
