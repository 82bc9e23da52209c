"""Mid-session checkpoints: a killed run goes on from its last epoch.

DVC removes a stage's outs before it runs the stage, so checkpoints live in a scratch folder of the
main repository. Its name is a hash of everything that the result depends on: another parameter,
another input or other code never meets this state.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dacr.errors import UserError

Rows = list[dict[str, float]]


def scratch_root() -> Path:
    """DVC sets DVC_ROOT to the main repository, also for experiments in a temporary folder."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".dacr" / "scratch"


def interval() -> float:
    """Seconds between two checkpoints: they decide what a kill costs, and no result."""
    text = os.environ.get("DACR_CHECKPOINT_SECONDS", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise UserError(f"DACR_CHECKPOINT_SECONDS={text} is no number of seconds; use 0 or more")
    return seconds


def fingerprint(parameters: object, files: Iterable[Path]) -> str:
    """A name for the work: equal if and only if parameters, inputs and code are equal."""
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=str).encode())
    for file in sorted(files):
        digest.update(f"\0{file}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


class Checkpoint:
    """The scratch of one piece of work, held by one process at a time.

    ``with Checkpoint(name) as checkpoint`` takes the lock; leaving without an error removes the
    scratch, because the stage's outs hold the result then.
    """

    def __init__(self, name: str) -> None:
        self.folder = scratch_root() / name
        self._lock: IO[str] | None = None
        self._began = self._written = time.monotonic()
        self._earlier = 0.0
        self._interval = interval()
        self._unwritten: tuple[str, dict[str, Tensor], Rows] | None = None

    def __enter__(self) -> Self:
        lock = self._locked()
        while not _is_at(lock, self.folder / "lock"):
            # Its last holder finished and removed the scratch between our opening and locking.
            lock.close()
            lock = self._locked()
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        self._began, self._earlier = time.monotonic(), self._seconds_before()
        return self

    @property
    def seconds(self) -> float:
        """How long this work has taken, with what killed processes had kept of it."""
        return self._earlier + time.monotonic() - self._began

    def _seconds_before(self) -> float:
        try:
            return float((self.folder / "seconds").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0  # a note for people: the work does not depend on it

    def _locked(self) -> IO[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = open(self.folder / "lock", "a+")  # noqa: SIM115 (held until the end)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise UserError(
                f"process {holder} is already training this very session; "
                "wait for it, or stop it and run the same command again"
            ) from None
        return lock

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                self.write()
        finally:
            if self._lock:
                self._lock.close()

    def _file(self, phase: str) -> Path:
        return self.folder / f"{phase}.safetensors"

    def keep(
        self, phase: str, module: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows
    ) -> None:
        """An epoch has ended: remember its state, and write it if the last writing is long ago.

        What is only remembered is written when the phase ends, and when the work is interrupted.
        """
        tensors = {f"module.{k}": v for k, v in _changing(module).items()}
        for number, state in optimizer.state_dict()["state"].items():
            if state.get("momentum_buffer") is not None:
                tensors[f"momentum.{number}"] = state["momentum_buffer"]
        copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self._unwritten = phase, copies, list(rows)
        if time.monotonic() - self._written >= self._interval:
            self.write()

    def write(self) -> None:
        """Write, fsync, rename: a half-written checkpoint is never found."""
        if self._unwritten is None:
            return
        phase, tensors, rows = self._unwritten
        file = self._file(phase)
        partial = file.with_suffix(".part")
        on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        told = json.dumps(rows)
        save_file(on_cpu, partial, metadata={"rows": told, "digest": _digest(told, on_cpu)})
        with open(partial, "rb") as stream:
            os.fsync(stream.fileno())
        partial.replace(file)
        (self.folder / "seconds").write_text(f"{self.seconds:.3f}", encoding="utf-8")
        self._unwritten, self._written = None, time.monotonic()

    def restore(self, phase: str, module: nn.Module, optimizer: torch.optim.Optimizer) -> Rows:
        """Load the last finished epoch into ``module`` and ``optimizer``; its rows, [] if none."""
        file = self._file(phase)
        if not file.exists():
            return []
        try:
            with safe_open(file, "pt") as stored:
                told = stored.metadata()
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            if told["digest"] != _digest(told["rows"], tensors):
                return []  # a bit flipped on the disk: the result would be wrong without a sign
            rows: Rows = json.loads(told["rows"])
            own = {tensor: tensors[f"module.{name}"] for name, tensor in _changing(module).items()}
        except (SafetensorError, OSError, ValueError, KeyError):
            # Damaged by something other than us (we rename whole files): train it again.
            return []
        with torch.no_grad():
            for tensor, stored_tensor in own.items():
                tensor.copy_(stored_tensor)
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for number, parameter in enumerate(parameters):
                if (stored_momentum := tensors.get(f"momentum.{number}")) is not None:
                    # In the parameter's memory layout: the fused step walks both side by side.
                    momentum = torch.empty_like(parameter).copy_(stored_momentum)
                    optimizer.state[parameter]["momentum_buffer"] = momentum
        return rows


def _digest(rows: str, tensors: dict[str, Tensor]) -> str:
    """Of all that is restored."""
    digest = hashlib.sha256(rows.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _is_at(opened: IO[str], path: Path) -> bool:
    """Whether the open file is still the one that stands at ``path``."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _changing(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that training can change: frozen extractors are in the previous state already."""
    frozen = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if (own := list(part.parameters())) and not any(p.requires_grad for p in own)
        for name, _ in part.state_dict(keep_vars=True).items()
    }
    return {name: v for name, v in module.state_dict().items() if name not in frozen}
