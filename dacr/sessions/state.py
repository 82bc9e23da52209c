"""What session t hands to session t+1: a folder, and nothing beside it.

Each feature extractor has a file of its own. A frozen one keeps its bytes from session to session,
so that DVC's content-addressed cache stores it once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dacr.errors import UserError
from dacr.methods.base import Method

MEMORY_COLUMNS = ["id", "label", "component"]
CUMULATIVE_TABLES = {
    "predictions.parquet": [
        "session",
        "id",
        "label",
        "domain",
        "predicted",
        "component",
        "confidence",
    ],
    "embedding.parquet": ["session", "id", "label", "domain", "component", "x", "y"],
}
"""Tables that grow by a session's rows: the last session's hold all that `evaluate` needs."""


@dataclass(frozen=True)
class Start:
    """What is known before a session: the classes seen so far and the memory."""

    seen: list[int]
    memory: pd.DataFrame = field(repr=False)

    def exemplars(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.memory["id"].to_numpy(np.int64), self.memory["label"].to_numpy(np.int64)


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_json(path: Path, remedy: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {remedy}") from None
    except (ValueError, UnicodeDecodeError):
        raise UserError(f"{path} is damaged; {remedy}") from None


def write_start(method: Method, folder: Path) -> None:
    """The state before the first session: random weights, nothing seen, nothing remembered."""
    save_model(method, folder)
    write_json(folder / "state.json", {"seen": [], "session": 0})
    write_json(folder / "history.json", {})
    pd.DataFrame(columns=MEMORY_COLUMNS).to_csv(folder / "memory.csv", index=False)
    for name, columns in CUMULATIVE_TABLES.items():
        pd.DataFrame(columns=columns).to_parquet(folder / name, index=False)


def extend_table(before: Path, folder: Path, name: str, new: pd.DataFrame) -> None:
    """The table of all sessions up to this one: the last session's holds every earlier one."""
    try:
        old = pd.read_parquet(before / name)
    except (OSError, ValueError):
        raise UserError(f"{before / name} is missing or damaged; run `dvc repro`") from None
    table = pd.concat([old, new], ignore_index=True) if len(old) else new
    table[CUMULATIVE_TABLES[name]].to_parquet(folder / name, index=False)


def read_start(folder: Path) -> Start:
    remedy = "run `dvc repro` to make it again"
    state = read_json(folder / "state.json", remedy)
    try:
        memory = pd.read_csv(folder / "memory.csv").astype("int64")
        return Start([int(label) for label in state["seen"]], memory[MEMORY_COLUMNS])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{folder} is missing or damaged; {remedy}") from None


def save_model(method: Method, folder: Path) -> None:
    """The extractors, one file each, and everything else of the method."""
    extractors = folder / "extractors"
    extractors.mkdir(parents=True, exist_ok=True)
    for number, extractor in enumerate(method.features.extractors, start=1):
        _save(extractor.state_dict(), extractors / f"{number:02d}.safetensors")
    _save(lasting(method), folder / "state.safetensors")


def lasting(method: Method) -> dict[str, Tensor]:
    """The head and the method's own buffers; a module beside them only helps within a session."""
    tensors = method.state_dict().items()
    return {name: t for name, t in tensors if name.startswith("head.") or "." not in name}


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    # A view would be stored with its whole base, and channels_last strides not at all.
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, path)


def load_model(method: Method, folder: Path) -> None:
    """Put the stored extractors and tensors into a fresh method; shapes come from the files."""
    try:
        files = sorted((folder / "extractors").glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(folder / "extractors")
        extractors = [method.new_extractor(number) for number in range(1, len(files) + 1)]
        for extractor, file in zip(extractors, files, strict=True):
            extractor.load_state_dict(load_file(file))
        rest = load_file(folder / "state.safetensors")
        head = {k.removeprefix("head."): v for k, v in rest.items() if k.startswith("head.")}
        method.features = method.super_feature(extractors)
        method.head = method.head_from_state(head)
    except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the model in {folder} is missing or damaged ({reason}); run `dvc repro`"
        ) from None
    for name, tensor in rest.items():
        if not name.startswith("head."):
            method.register_buffer(name, tensor)
    method.place()
