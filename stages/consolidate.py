"""``consolidate@t``: mixture reduction, memory selection, predictions on everything seen."""

from dacr.stage import run_stage, session_argument


def main() -> None:
    from dacr.config import load_params
    from dacr.learning.consolidate import consolidate

    params = load_params()
    consolidate(params, session_argument(params))


if __name__ == "__main__":
    run_stage(main)
