"""``dacr``: what DVC has no verb for. ``dacr --help`` lists the commands."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from dacr.runtime.stage import run_stage

COMMANDS: tuple[str, ...] = ("paper", "compare", "predict", "verify")


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="dacr", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True, metavar="command")
    for name in COMMANDS:
        module = import_module(f"dacr.cli.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return root


def main() -> None:
    arguments = parser().parse_args()
    try:
        run_stage(lambda: arguments.run(arguments))
    except BrokenPipeError:  # the reader of a pipe (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
