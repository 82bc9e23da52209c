"""``dacr``: what DVC has no verb for. ``dacr --help`` lists the commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from dacr.errors import UserError
from dacr.runtime.stage import run_stage

COMMANDS = {
    "scenario": "the benchmarks for any method: list, show, export",
    "paper": "the paper's tables and figures: list, plan, run, show",
    "experiments": "the experiments of this repository, in columns that fit a terminal",
    "compare": "two experiments side by side, in the terminal and as a page",
    "predict": "what a trained run says about images",
    "fetch": "--check: whether the files of a benchmark can be had, and how fast",
    "publish": "a trained model to a folder or to s3://…, for `predict` anywhere",
    "card": "a model card of a run, or Croissant metadata of a benchmark",
    "measure": "the field's metrics of a finished run: transfer, forgetting, intransigence",
    "verify": "check a run byte by byte, and against the committed one",
    "doctor": "whether this machine is ready for a real run",
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command with its arguments; only its module is loaded, so that help is fast."""
    root = argparse.ArgumentParser(prog="dacr", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name in words[:1]:
            check_system(name)
            module = import_module(f"dacr.cli.{name}")
            command.description = module.__doc__
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return root.parse_args(words or ["--help"])


def check_system(command: str) -> None:
    """The library works everywhere; the pipeline needs processes and locks as Unix has them."""
    if sys.platform == "win32" and command != "scenario":
        raise UserError(
            f"`dacr {command}` runs on Linux and macOS; on Windows use WSL (docs/machines.md)"
        )


def main() -> None:
    try:
        run_stage(lambda: (arguments := parse(sys.argv[1:])).run(arguments))
    except BrokenPipeError:  # the reader of a pipe (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
