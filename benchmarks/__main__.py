"""Print every measurement, or one part: ``python -m benchmarks peers``, ``… build 19000``.

``python -m benchmarks faults --rounds 200 --seed 1`` measures no speed and is no part of ``all``:
it does random things to tiny runs, and prints what became of them (docs/reliability.md).

Run it on an idle machine: another process on the cores spoils it. What is measured is imported
late, since the processes that decode images import this module and need none of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

IMAGES = 3_000  # a tenth of iDomainNet has 19,000


def mixture() -> None:
    import torch

    from benchmarks.mixture import BACKBONE, BATCH, CLASSES, COMPONENTS, mixture_costs

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    step, head, inference, expectation = mixture_costs()
    print(f"mixture of {CLASSES} classes × {COMPONENTS} components on {BACKBONE}, batch {BATCH}:")
    print(f"  head with all losses / training step: {head:.4f} / {step:.3f} s = {head / step:.3f}")
    print(f"  E-step / training, over an epoch:     {expectation / (step + head):.3f}")
    print(f"  of which the forward pass alone:      {inference / (step + head):.3f}")


def peers() -> None:
    from benchmarks.peers import table

    print("an epoch of class-incremental replay at 32×32, images, one thread:")
    for line in table():
        print(line, flush=True)


def portable() -> None:
    from benchmarks.portable import cost, letters

    print("the bits of a short training on other processors, equal letters for equal weights:")
    for line in letters():
        print(line, flush=True)
    held, free = cost()
    print(
        f"  train.portable costs, images/s of ResNet-8: {held:.0f} / {free:.0f} = {held / free:.3f}"
    )


def build(images: int) -> None:
    from benchmarks.build import build_costs, tell

    tell(build_costs(images))


def main() -> None:
    parts: dict[str, Callable[[], None]] = {
        "mixture": mixture,
        "peers": peers,  # after the mixture, which uses all threads
        "portable": portable,
        "build": lambda: build(arguments.images),
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["all", "faults", *parts], default="all")
    parser.add_argument("images", nargs="?", type=int, default=IMAGES, help="how many to build")
    parser.add_argument("--rounds", type=int, default=200, help="how many faults")
    parser.add_argument("--seed", type=int, default=1, help="which faults")
    parser.add_argument("--only", metavar="KIND", help="only the rounds of this kind of fault")
    parser.add_argument("--round", type=int, nargs="+", default=[], help="only these rounds")
    arguments = parser.parse_args()
    if arguments.what == "faults":
        from benchmarks.faults.driver import faults

        sys.exit(not faults(arguments.rounds, arguments.seed, arguments.only, arguments.round))
    for name, tell in parts.items():
        if arguments.what in ("all", name):
            tell()


if __name__ == "__main__":
    main()
