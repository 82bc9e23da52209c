"""``schedule``: which class-domain pairs each session brings, as a table that a person can open."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.config import load_params
    from dacr.data.benchmark import read_index
    from dacr.data.splits import make_schedule, write_schedule

    summary, index = read_index(Path("data/benchmark"))
    table = make_schedule(load_params().schedule, summary["classes"], summary["domains"])
    write_schedule(table, index, Path("data/split"))


if __name__ == "__main__":
    run_stage(main, "schedule")
