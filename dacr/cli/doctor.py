"""Is this machine ready for a real run? What is there, and every method tried on it.

Runs two sessions of a tiny benchmark with each method on the device and on the CPU, compares the
two, runs one method a second time and compares bits, and times the training loop beside the bare
step. It ends with 'ready', or with one line for each thing that is not. The rates of training that
it measures are kept for `dacr paper plan --device here`. On a machine without a GPU, --pretend
tries a pretend GPU: tensors that claim to be on one.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys

import torch

from dacr.errors import UserError
from dacr.experiments.devices import write_measured
from dacr.experiments.repository import require_project
from dacr.methods import known_methods
from dacr.runtime.device import pick_device
from dacr.runtime.portable import has_avx2
from dacr.runtime.pretend import PretendGpu, pretend_device
from dacr.runtime.provenance import machine
from dacr.sessions.trial import Trial, loop_share, tiny_params, training_rates, trial

EXACT = "der_dacr"
ENOUGH = 0.8
CPU = torch.device("cpu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pretend", action="store_true", help="try a pretend GPU")
    parser.add_argument("--methods", help="only these, with commas (default: all)")


def run(arguments: argparse.Namespace) -> None:
    require_project()
    methods = _methods(arguments.methods)
    device = pretend_device() if arguments.pretend else pick_device()
    for name, fact in facts(device):
        print(f"{name:<15}{fact}")
    with PretendGpu() if arguments.pretend else contextlib.nullcontext():
        faults = examine(methods, device)
    for fault in faults:
        print(f"NOT READY  {fault}")
    if not faults and not arguments.pretend:
        _remember_rates(device)
    if not faults:
        print("ready")
    sys.exit(bool(faults))


def _methods(text: str | None) -> list[str]:
    known = known_methods()
    chosen = [word.strip() for word in text.split(",")] if text else known
    for name in chosen:
        if name not in known:
            raise UserError(f"unknown method {name!r}; known are {', '.join(known)}")
    return chosen


def facts(device: torch.device) -> list[tuple[str, str]]:
    """What is there, on one screen."""
    here = machine()
    found = [
        ("device", str(device)),
        ("processor", f"{here['processor']}, {here['cores']} cores, {here['instructions']}"),
        ("system", f"{here['platform']}, Python {here['python']}"),
        ("torch", f"{torch.__version__}, {_build()}"),
        ("driver", _driver()),
        ("portable bits", _portable()),
    ]
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        found += [
            ("GPU", f"{properties.name}, compute {properties.major}.{properties.minor}"),
            ("memory", f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"),
            ("bf16", "yes" if torch.cuda.is_bf16_supported() else "no: use train.precision=tf32"),
        ]
    return found


def _build() -> str:
    if torch.version.cuda is None:
        return "a CPU build: it cannot use a GPU; `pip install torch` from PyPI brings CUDA"
    usable = "usable" if torch.cuda.is_available() else "no GPU is visible to it"
    return f"built for CUDA {torch.version.cuda}, {usable}"


def _portable() -> str:
    """Whether a run on the CPU can have the bytes of the committed one."""
    if has_avx2():
        return "yes: with train.portable those of every x86-64 CPU with AVX2"
    return "no: /proc/cpuinfo names no AVX2; equal runs have equal bytes here, not everywhere"


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi: there is no NVIDIA driver here"
    asked = ["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    text = (answer.stdout or answer.stderr).strip().splitlines()
    return text[0] if text else f"nvidia-smi ended with code {answer.returncode}"


def examine(methods: list[str], device: torch.device) -> list[str]:
    """Try all methods; what is not as it should be, one line each."""
    faults = []
    for name in methods:
        params = tiny_params(name)
        expected = trial(params, CPU)
        found = _attempt(name, device)
        if isinstance(found, str):
            faults.append(found)
            print(f"{name:<15}failed")
        elif not found.close_to(expected):
            faults.append(f"{name}: losses {found.losses} on {device}, {expected.losses} on a CPU")
            print(f"{name:<15}other values than a CPU")
        else:
            same = found.digest == expected.digest
            print(f"{name:<15}{'the same bits as' if same else 'values close to those of'} a CPU")
    if not faults:
        faults += _exactness(device) + _speed(device)
    return faults


def _attempt(name: str, device: torch.device) -> Trial | str:
    """The trial of a method, or why there is none."""
    try:
        return trial(tiny_params(name), device)
    except (RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:200]
        return f"{name} does not run on {device}: {reason}"


def _exactness(device: torch.device) -> list[str]:
    first, second = (trial(tiny_params(EXACT), device) for _ in range(2))
    same = first.digest == second.digest
    print(f"{'a second run':<15}{'the same bits' if same else 'OTHER BITS'} ({EXACT})")
    return [] if same else [f"two runs of {EXACT} differ on {device}: reruns are not exact there"]


def _remember_rates(device: torch.device) -> None:
    """What `dacr paper plan --device here` counts on."""
    rates = training_rates(device)
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    label = gpu.name if gpu else f"{torch.get_num_threads()} thread of this CPU"
    file = write_measured(label, rates, gpu.total_memory / 1e9 if gpu else None)
    told = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in rates.items())
    print(f"{'training':<15}{told} (in {file.parent.name}/{file.name})")


def _speed(device: torch.device) -> list[str]:
    rate, share = loop_share(tiny_params("replay"), device)
    print(f"{'the loop':<15}{rate:,.0f} images per second, {share:.2f} of the bare step")
    if device.type != "cuda" or share >= ENOUGH:
        return []
    return [f"the loop reaches {share:.2f} of the bare step: other processes may use the machine"]
