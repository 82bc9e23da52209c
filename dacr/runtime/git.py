"""Calls of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dacr.errors import UserError


def git(*arguments: str, folder: Path = Path()) -> str:
    """The output of a git command; a UserError where git fails."""
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise UserError("git is not installed; experiments are git commits") from None
    if result.returncode:
        reason = result.stderr.strip() or f"exit code {result.returncode}"
        raise UserError(f"git {arguments[0]} failed: {reason}")
    return result.stdout.rstrip()


def git_or_nothing(*arguments: str) -> str:
    """The same where the answer is optional: empty without git, a repository or a commit."""
    try:
        return git(*arguments)
    except UserError:
        return ""
