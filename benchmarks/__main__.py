"""Print every measurement, or one part: ``python -m benchmarks build 19000``, ``… portable``.

Run it on an idle machine: another process on the cores spoils it. What is measured is imported
late, since the processes that decode images import this module and need none of it.
"""

from __future__ import annotations

import argparse

IMAGES = 3_000  # a tenth of iDomainNet has 19,000


def training() -> None:
    import torch

    from benchmarks.loop import loop_efficiency
    from benchmarks.mixture import BACKBONE, BATCH, CLASSES, COMPONENTS, mixture_costs

    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads")
    print("training loop over the bare forward/backward/step on a ready batch, images/s:")
    for backbone, batch_size, batches in (("resnet32", 128, 5), ("resnet8", 32, 60)):
        loop, bare = loop_efficiency(backbone, batch_size, batches, rounds=5)
        print(f"  {backbone:9} batch {batch_size:4}: {loop:7.0f} / {bare:7.0f} = {loop / bare:.3f}")
    step, mixture, inference, expectation = mixture_costs()
    print(f"mixture of {CLASSES} classes × {COMPONENTS} components on {BACKBONE}, batch {BATCH}:")
    ratio = mixture / step
    print(f"  head with all losses / training step: {mixture:.4f} / {step:.3f} s = {ratio:.3f}")
    print(f"  E-step / training, over an epoch:     {expectation / (step + mixture):.3f}")
    print(f"  of which the forward pass alone:      {inference / (step + mixture):.3f}")


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["all", "build", "portable"], default="all")
    parser.add_argument("images", nargs="?", type=int, default=IMAGES, help="how many to build")
    arguments = parser.parse_args()
    if arguments.what == "all":
        training()
    if arguments.what in ("all", "portable"):
        portable()
    if arguments.what in ("all", "build"):
        build(arguments.images)


if __name__ == "__main__":
    main()
