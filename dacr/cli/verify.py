"""Check a run byte by byte: its outs, the cache, what it was made with, its predictions, metrics
and page, and whether it is the committed one.

Exit code 0: the run is whole and what it says, and it is the committed run or one with other
parameters. Exit code 1: something is damaged, missing, unfinished or edited, or the same
parameters gave another result.

What was trained can only be proved by training. --replay trains sessions again, each from the
recorded state before it, in a temporary folder, and compares bytes.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from contextlib import chdir
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dacr.experiments.verification import Report

SEEDS = 2**32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay",
        metavar="N",
        help="train again and compare: N sessions chosen at random, session=3, or all",
    )
    parser.add_argument(
        "--remote",
        nargs="?",
        const="",
        metavar="NAME",
        help="read every object in a DVC remote, too (the default one if not named)",
    )
    parser.add_argument(
        "--seed", type=_seed, help="choose the same sessions and predictions as an earlier check"
    )


def _seed(text: str) -> int:
    if text.isascii() and text.isdecimal() and int(text) < SEEDS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {SEEDS - 1}")


def run(arguments: argparse.Namespace) -> None:
    import dvc  # noqa: F401 (a missing package is said before a missing project)

    from dacr.experiments.reading import project_root
    from dacr.runtime.portable import training_params

    with chdir(project_root()):
        params = training_params()  # as the stages do it, before torch is loaded
        from dacr.experiments.verification.replay import choose, estimate, replay
        from dacr.report.page import read_provenance
        from dacr.report.verified import verify_run
        from dacr.sessions.places import RUNS

        seed = secrets.randbelow(SEEDS) if arguments.seed is None else arguments.seed
        sessions, wanted = list(params.schedule.sessions), arguments.replay
        choice = None if wanted is None else choose(wanted, sessions, seed)
        everything = bool(choice and choice.everything)
        report = verify_run(seed, everything, arguments.remote)
        shown = _show(report, 0)
        # A run that differs from the committed one may still be what it says.
        if choice and not report.faults_besides("reference"):
            print(f"replay of {choice.tell()}: {estimate(choice, read_provenance(RUNS))}")
            for _ in replay(report, params, choice):
                shown = _show(report, shown)
        elif choice:
            print("nothing was replayed: a run with faults proves nothing")
    faults = sum(fault for _, _, fault in report.lines)
    print("verified" if report.ok else f"NOT verified: {faults} fault{'s' * (faults > 1)}")
    sys.exit(not report.ok)


def _show(report: Report, shown: int) -> int:
    """Print the lines that were not shown yet; how many there are now."""
    for subject, text, fault in report.lines[shown:]:
        print(f"{'FAULT' if fault else 'ok':<6}{subject:<11}{text}", flush=True)
    return len(report.lines)
