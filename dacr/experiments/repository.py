"""What a sweep asks of the repository: the revision, and what is not committed."""

from __future__ import annotations

from pathlib import Path

from dacr.errors import UserError
from dacr.runtime.git import git

WATCHED = (
    *("conf", "dacr", "data/schedules", "dvc.yaml", "stages"),
    *(
        f":(exclude){path}"
        for path in ("conf/paper", "conf/paper.yaml", "dacr/cli", "dacr/experiments", "dacr/report")
    ),
)
"""What an experiment reads; the tables and this command only choose among experiments."""


def require_project() -> None:
    """The commands read conf/ and write .dacr/ and reports/ where they are called."""
    missing = [name for name in ("dvc.yaml", "conf/config.yaml", ".dvc") if not Path(name).exists()]
    if missing:
        raise UserError(f"no {missing[0]} here; call `dacr paper` in the folder of the project")


def head() -> str:
    return git("rev-parse", "HEAD")


def uncommitted() -> list[str]:
    """Files that an experiment would need, and that are not as the committed revision has them."""
    status = git("status", "--porcelain", "--untracked-files=all", "--", *WATCHED)
    return [line[3:] for line in status.splitlines()]


def require_committed() -> None:
    if changed := uncommitted():
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise UserError(
            f"{changed[0]}{more} is not committed, and experiments run at the committed "
            "revision; commit or `git stash -u` first"
        )
