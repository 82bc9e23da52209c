"""What cannot be the same twice: when, where and how fast a stage ran.

These facts stay out of every declared out, so that equal runs have equal bytes. They are written
beside (``provenance-<stage>.json``) and the report page reads them from there. A note names the
bytes that it is about, so that nobody takes the note of one run for that of another. It holds no
address, user, host or environment: what could be secret is never asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from dacr.config import Params
from dacr.runtime.device import pick_device
from dacr.runtime.git import git_or_nothing
from dacr.runtime.made import made, write_note

OUTS = {"learn": "learned/state.safetensors", "consolidate": "results/predictions.parquet"}
"""The out of each stage that its note is about; another run has other bytes in it."""
PACKAGES = (
    "dvc",
    "numpy",
    "pandas",
    "pillow",
    "pyarrow",
    "safetensors",
    "scikit-learn",
    "scipy",
    "torch",
    "torchvision",
)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


@cache
def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    device = pick_device()
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": dict(_versions()),
        "git_revision": git_or_nothing("rev-parse", "HEAD"),
        "dirty": bool(
            git_or_nothing("status", "--porcelain", "--untracked-files=no", "--", "dacr", "stages")
        ),
    }


@contextmanager
def record(stage: str, key: str, params: Params) -> Iterator[dict[str, Any]]:
    """Time a stage and write its facts to ``runs/<key>/provenance-<stage>.json``.

    What it ran with is no such fact: it is the same twice, and goes into the out itself.
    """
    facts: dict[str, Any] = {}
    note = made(stage, key, params)
    started = datetime.now(UTC)
    clock = time.monotonic()
    yield facts
    write_note(stage, key, note)
    # A stage that went on where a killed one ended knows better how long all of it took.
    facts = {"seconds": round(time.monotonic() - clock, 3)} | facts
    facts |= {
        "stage": stage,
        "session": params.schedule.sessions[key].index,
        "threads": params.train.threads,
        "started": started.isoformat(timespec="seconds"),
        **machine(),
    }
    folder = Path("runs") / key
    content = (folder / OUTS[stage]).read_bytes()
    facts["about"] = {"path": OUTS[stage], "sha256": hashlib.sha256(content).hexdigest()}
    path = folder / f"provenance-{stage}.json"
    path.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
