"""``fetch@<source>``: bring one source of images to ``data/raw/<benchmark>/<source>``, verified."""

import sys
from pathlib import Path

from dacr.runtime.stage import run_stage


def main() -> None:
    from dacr.config import load_params
    from dacr.data.download import choose_mirror, mirror_folder
    from dacr.data.fetching import check_options, fetch_source

    params = load_params()
    (name,) = sys.argv[1:]
    choose_mirror(params.fetch.mirror)
    mirror_folder()  # a wrong one is reported also by a source that does not use it
    check_options(params.data, name)
    folder = Path("data/raw") / params.benchmark / name
    folder.mkdir(parents=True, exist_ok=True)
    fetch_source(name, params.data.source_options, folder)


if __name__ == "__main__":
    run_stage(main, "fetch")
