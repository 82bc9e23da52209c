"""What ``train.portable`` gives and costs: the bits of a training on other processors.

Other processors are emulated, with the instructions and the maker that they report, where
``qemu-x86_64`` (Debian's qemu-user) is installed. It has no AVX-512. Each training is a process of
its own, because the libraries look at the processor when they are loaded. Equal letters are equal
bytes of all weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from dacr.runtime.portable import PORTABLE

EMULATOR = "qemu-x86_64"
PROCESSORS = {
    "this one": [],
    "Intel Haswell": [EMULATOR, "-cpu", "Haswell"],
    "AMD EPYC": [EMULATOR, "-cpu", "EPYC"],
}
SETTINGS: dict[str, dict[str, str]] = {"as is": {}, "portable": PORTABLE}


def short_training(steps: int, batch: int) -> dict[str, object]:
    """Train a ResNet-8 with a cosine head for some steps; its digest and its speed."""
    import torch
    from torch.nn import functional

    from dacr.config import load_params
    from dacr.model.backbones import build_backbone
    from dacr.runtime.device import make_deterministic

    make_deterministic(load_params().train.model_copy(update={"threads": 1}))
    generator = torch.Generator().manual_seed(0)
    network = build_backbone("resnet8", False, generator).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    head = torch.nn.Parameter(torch.randn(10, network.dim, generator=generator))
    optimizer = torch.optim.SGD([*network.parameters(), head], lr=0.05, momentum=0.9, fused=True)
    images = torch.randn(batch, 3, 32, 32, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), generator=generator)
    started = time.perf_counter()
    for step in range(steps):
        if step == 2:  # the first ones warm up
            started = time.perf_counter()
        unit = functional.normalize(network(images), dim=1)
        loss = functional.cross_entropy(16 * unit @ functional.normalize(head, dim=1).T, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - started
    digest = hashlib.sha256()
    for tensor in (*network.state_dict().values(), head):
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return {"digest": digest.hexdigest(), "rate": batch * (steps - 2) / seconds}


def measure(processor: str, setting: str, steps: int, batch: int) -> dict[str, object]:
    own = {name: value for name, value in os.environ.items() if name not in PORTABLE}
    output = subprocess.run(
        [
            *PROCESSORS[processor],
            sys.executable,
            "-m",
            "benchmarks.portable",
            f"{steps}",
            f"{batch}",
        ],
        env=own | SETTINGS[setting] | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(output.stdout.splitlines()[-1])
    return found


def letters() -> Iterator[str]:
    """A line for each setting: the letter of the bits on each processor."""
    known: dict[object, str] = {}
    processors = list(PROCESSORS) if shutil.which(EMULATOR) else ["this one"]
    yield f"  {'':10}" + "".join(f"{name:>15}" for name in processors)
    for setting in SETTINGS:
        cells = []
        for processor in processors:
            found = measure(processor, setting, steps=4, batch=8)["digest"]
            cells.append(known.setdefault(found, chr(ord("a") + len(known))))
        yield f"  {setting:10}" + "".join(f"{cell:>15}" for cell in cells)
    if len(processors) == 1:
        yield f"  (other processors need {EMULATOR}: apt-get install qemu-user)"


def cost(rounds: int = 3) -> tuple[float, float]:
    """Images per second, portable and as is: the best of some rounds, in turn."""
    best = dict.fromkeys(SETTINGS, 0.0)
    for _ in range(rounds):
        for setting in SETTINGS:
            rate = measure("this one", setting, steps=200, batch=32)["rate"]
            best[setting] = max(best[setting], float(str(rate)))
    return best["portable"], best["as is"]


if __name__ == "__main__":
    print(json.dumps(short_training(*map(int, sys.argv[1:]))))
