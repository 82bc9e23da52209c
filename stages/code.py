"""``code``: which code each stage runs, one small file per stage (``dacr/runtime/code.py``).

``python -m stages.code`` writes ``runs/code/<stage>.json`` of all stages but ``fetch``;
``python -m stages.code <source>`` writes ``runs/code/fetch-<source>.json``, with the options of
the source, so that the options of one source do not fetch another one again.

Whatever is fetched or trained comes after this stage: a split that the benchmark's numbers of
classes and domains cannot satisfy is refused here.
"""

import json
import sys
from pathlib import Path
from typing import Any

from dacr.runtime.stage import run_stage

OUT = Path("runs/code")


def write(name: str, content: dict[str, Any]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
    (OUT / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    from dacr.config import load_params
    from dacr.data.splits import check_schedule
    from dacr.runtime.code import STAGES, describe, source_module, source_options

    params = load_params()
    data = params.data
    check_schedule(params.schedule, data)
    if sys.argv[1:]:
        (source,) = sys.argv[1:]
        options = source_options(source, source_module(source), data.source_options)
        write(f"fetch-{source}", describe("fetch", sources=[source]) | {"options": options})
        return
    for stage in STAGES:
        if stage != "fetch":
            write(stage, describe(stage, params.method, data.sources))


if __name__ == "__main__":
    run_stage(main)
