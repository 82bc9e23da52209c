"""``measure``: the field's metrics from the predictions alone, no network needed."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.evaluation.measures import measure

    measure(Path("reports"))


if __name__ == "__main__":
    run_stage(main, "measure")
