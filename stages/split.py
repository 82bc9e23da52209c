"""``split``: which class-domain pairs each session brings, as tables that a person can open."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.config import load_params
    from dacr.data.benchmark import Benchmark
    from dacr.data.splits import make_schedule, write_split

    params = load_params()
    benchmark = Benchmark.open(Path("data/benchmark"))
    schedule = params.schedule
    table = make_schedule(
        schedule.rule,
        len(benchmark.classes),
        len(benchmark.domains),
        sessions=len(schedule.sessions),
        seed=schedule.seed,
        domain_order=schedule.domain_order,
        domains_per_session=schedule.domains_by_session(),
        new_classes=schedule.new_classes,
        table=schedule.table,
        class_names=benchmark.classes,
        domain_names=benchmark.domains,
    )
    write_split(table, benchmark.index, Path("data/split"))


if __name__ == "__main__":
    run_stage(main)
