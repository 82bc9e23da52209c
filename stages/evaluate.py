"""``evaluate``: metrics and curves from the predictions alone, no network needed."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.evaluation.evaluate import evaluate

    evaluate(Path("reports"))


if __name__ == "__main__":
    run_stage(main, "evaluate")
