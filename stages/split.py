"""``split@t``: the images that session t trains on and is tested with."""

from pathlib import Path

from dacr.runtime.stage import run_stage, session_argument


def main() -> None:
    from dacr.config import load_params
    from dacr.data.benchmark import read_index
    from dacr.data.splits import write_session

    key = session_argument(load_params())
    _, index = read_index(Path("data/benchmark"))
    write_session(Path("data/split"), key, index)


if __name__ == "__main__":
    run_stage(main, "split")
