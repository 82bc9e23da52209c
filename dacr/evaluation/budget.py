"""Files of plain numbers about a run: its budget (``dacr.experiments.budget`` counts it)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dacr.evaluation.files import checked

BUDGET = "budget.json"
STAGE = "budget"
NAMES = {
    "parameters": "parameters of the model that predicts",
    "model_bytes": "bytes of that model",
    "exemplars": "exemplars in memory",
    "exemplar_bytes": "bytes of their pixels",
    "images_trained": "images forward and backward in training, each time that one is seen",
    "images_forward": "images forward alone in training: teachers, frozen networks, features",
    "training_flops": "FLOPs of training, counted from these passes",
    "prediction_flops": "FLOPs of the prediction of one image",
}


def read_budget(reports: Path) -> dict[str, Any]:
    return read_numbers(reports / BUDGET, STAGE, *NAMES, "by_session")


def read_numbers(path: Path, stage: str, *keys: str) -> dict[str, Any]:
    """A file of numbers that ``stage`` wrote, if it has these keys."""

    def read(file: Path) -> dict[str, Any]:
        content = json.loads(file.read_text(encoding="utf-8"))
        if missing := [key for key in keys if not isinstance(content, dict) or key not in content]:
            raise ValueError(f"it has no {', '.join(missing)}")
        return dict(content)

    return checked(path, stage, read)


def plain(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The plain numbers of a file, without its lists."""
    return {
        name: float(value)
        for name, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
