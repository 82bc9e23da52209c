"""Compose ``params.yaml`` from ``conf/``, as ``dvc exp run`` does but without running anything."""

from __future__ import annotations

import sys
from pathlib import Path

from dacr.runtime.stage import run_stage

PARAMS = Path("params.yaml")


def main() -> None:
    from dacr.config import load_params
    from dacr.data.fetching import check_options
    from dacr.data.splits import check_schedule
    from dacr.methods import parts_of
    from dacr.runtime.compose import compose

    # Checked before it takes the place of the old one: a wrong override loses nothing.
    draft = PARAMS.with_suffix(".draft.yaml")
    try:
        compose(sys.argv[1:], draft)
        params = load_params(draft)
        for name in params.data.sources:
            check_options(params.data, name)
        check_schedule(params.schedule, params.data)
        parts_of(params.method).options(params)
        draft.replace(PARAMS)
    finally:
        draft.unlink(missing_ok=True)
    experiment = f"{params.method} on {params.benchmark}, split {params.split}"
    print(f"params.yaml: {experiment}, {len(params.schedule.sessions)} sessions")


if __name__ == "__main__":
    run_stage(main)
