"""What session t hands to session t+1: a folder, and nothing beside it.

Each feature extractor has a file of its own. A frozen one keeps its bytes from session to session,
so that DVC's content-addressed cache stores it once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dacr.errors import UserError
from dacr.methods.parts.method import Method
from dacr.runtime.json_files import read_json, write_json

MEMORY_COLUMNS = ["id", "label", "component"]


@dataclass(frozen=True)
class Start:
    """What is known before a session: the classes seen so far and the memory."""

    seen: list[int]
    memory: pd.DataFrame = field(repr=False)

    def exemplars(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.memory["id"].to_numpy(np.int64), self.memory["label"].to_numpy(np.int64)


def write_state(
    method: Method, folder: Path, *, session: int, seen: list[int], memory: pd.DataFrame
) -> None:
    """All that the next session starts from."""
    save_model(method, folder)
    write_json(folder / "state.json", {"seen": seen, "session": session})
    memory.to_csv(folder / "memory.csv", index=False)


def read_start(folder: Path) -> Start:
    remedy = "run `dvc repro` to make it again"
    state = read_json(folder / "state.json", remedy)
    try:
        memory = pd.read_csv(folder / "memory.csv").astype("int64")
        return Start([int(label) for label in state["seen"]], memory[MEMORY_COLUMNS])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{folder} is missing or damaged; {remedy}") from None


def save_model(method: Method, folder: Path) -> None:
    """The extractors, one file each, and what lasts of the classifier."""
    extractors = folder / "extractors"
    extractors.mkdir(parents=True, exist_ok=True)
    for number, extractor in enumerate(method.features.extractors, start=1):
        _save(extractor.state_dict(), extractors / f"{number:02d}.safetensors")
    _save(method.classifier.lasting(), folder / "state.safetensors")


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    # A view would be stored with its whole base, and channels_last strides not at all.
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, path)


def load_model(method: Method, folder: Path) -> None:
    """Put the stored tensors into a fresh method; shapes come from the files."""
    try:
        files = sorted((folder / "extractors").glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(folder / "extractors")
        method.representation.restore([load_file(file) for file in files])
        method.classifier.restore(load_file(folder / "state.safetensors"))
    except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"the model in {folder} is missing or damaged ({reason}); run `dvc repro`"
        ) from None
    method.place()
