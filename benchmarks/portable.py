"""Do other instruction sets of the processor give the same bits, and what does that cost?

Each cell of the matrix is a short training in a process of its own, because the libraries read
these settings when they are loaded. Equal letters are equal bytes of all weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from itertools import product

INSTRUCTIONS = {
    "default": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
}
"""Stand-ins for older and newer processors. A real one also changes what no variable controls."""
SETTINGS: dict[str, dict[str, str]] = {
    "as is": {},
    "MKL_CBWR": {"MKL_CBWR": "COMPATIBLE"},
    "no oneDNN": {"DACR_NO_ONEDNN": "1"},
    "no oneDNN, MKL_CBWR": {"DACR_NO_ONEDNN": "1", "MKL_CBWR": "COMPATIBLE"},
    "no oneDNN, MKL_CBWR, ATen default": {
        "DACR_NO_ONEDNN": "1",
        "MKL_CBWR": "COMPATIBLE",
        "ATEN_CPU_CAPABILITY": "default",
    },
}
"""What a user could fix; it wins over what the processor offers."""
THREADS = (1, 2)


def short_training(threads: int, steps: int = 20, batch: int = 32) -> dict[str, object]:
    """Train a ResNet-8 with a mixture-like head for some steps; its digest and its speed."""
    import torch
    from torch.nn import functional

    from dacr.device import make_deterministic
    from dacr.model.backbones import build_backbone

    if "DACR_NO_ONEDNN" in os.environ:
        torch.backends.nnpack.set_flags(False)  # what torch would take in its place  # type: ignore[no-untyped-call]
    torch.backends.mkldnn.enabled = "DACR_NO_ONEDNN" not in os.environ  # type: ignore[assignment]
    make_deterministic(threads)
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
    return {
        "digest": digest.hexdigest(),
        "rate": batch * (steps - 2) / seconds,
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def measure(instructions: str, setting: str, threads: int) -> dict[str, object]:
    settings = INSTRUCTIONS[instructions] | SETTINGS[setting]
    environment = os.environ | settings | {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks.portable", str(threads)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(output.stdout.splitlines()[-1])
    return found


def matrix() -> list[str]:
    """A line for each setting and number of threads: the bits' letter and images a second."""
    letters: dict[object, str] = {}
    lines = [f"  {'':33} threads" + "".join(f"{name:>16}" for name in INSTRUCTIONS)]
    for setting, threads in product(SETTINGS, THREADS):
        cells = []
        for instructions in INSTRUCTIONS:
            found = measure(instructions, setting, threads)
            letter = letters.setdefault(found["digest"], chr(ord("a") + len(letters)))
            cells.append(f"{letter} {found['rate']:7.0f}/s")
        lines.append(f"  {setting:33} {threads:7}" + "".join(f"{cell:>16}" for cell in cells))
    return lines


if __name__ == "__main__":
    print(json.dumps(short_training(int(sys.argv[1]))))
