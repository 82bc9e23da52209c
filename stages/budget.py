"""``budget``: what the run cost and keeps, in counts that are the same on every machine."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.experiments.budget import budget

    budget(Path("reports"))


if __name__ == "__main__":
    run_stage(main, "budget")
