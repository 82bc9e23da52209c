"""``consolidate@t``: mixture reduction, memory selection, predictions on everything seen."""

from dacr.runtime.stage import run_stage, session_argument


def main() -> None:
    from dacr.runtime.portable import training_params

    params = training_params()
    from dacr.sessions.consolidate import consolidate

    consolidate(params, session_argument(params))


if __name__ == "__main__":
    run_stage(main, "consolidate")
