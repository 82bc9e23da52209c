"""Check a run byte by byte: its outs, the cache, its metrics, and whether it is the committed one.

Exit code 0: the run is whole, and it is the committed run or one with other parameters. Exit code
1: something is damaged, missing, unfinished, or the same parameters gave another result.
"""

from __future__ import annotations

import argparse
import sys

from dacr.experiments.verification import verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to choose: everything is looked at."""


def run(arguments: argparse.Namespace) -> None:

    report = verify()
    for subject, text, fault in report.lines:
        print(f"{'FAULT' if fault else 'ok':<6}{subject:<11}{text}")
    faults = sum(fault for _, _, fault in report.lines)
    print("verified" if report.ok else f"NOT verified: {faults} fault{'s' * (faults > 1)}")
    sys.exit(not report.ok)
