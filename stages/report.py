"""``report``: the page about the run, and beside it when and where the run was made."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.config import load_params
    from dacr.report.run import report

    report(load_params(), Path("reports"))


if __name__ == "__main__":
    run_stage(main, "report")
