"""What a run cost and what it keeps, in counts that are the same on every machine.

A method that keeps a network per session (DER) is no fair rival of one that keeps a single one at
the same accuracy; a reader sees the price beside the accuracy. Seconds are no part of it: they
stand in the provenance of a run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from dacr.config import Params, load_params
from dacr.errors import UserError
from dacr.evaluation.budget import BUDGET
from dacr.evaluation.files import read_benchmark
from dacr.experiments.work import Images, Passes, images_of, passes_of, scales
from dacr.methods import parts_of
from dacr.model.flops import forward_flops, parameter_count, weight_bytes
from dacr.runtime.json_files import write_json
from dacr.sessions.places import run_folder

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Of batch normalisation: kept with the weights, and no parameters."""


def budget(reports: Path) -> None:
    """Stage ``budget``: ``budget.json`` of the run of ``params.yaml`` in ``reports``."""
    params = load_params()
    images = images_of(params.data, [])
    # The names that a user's table may use; those of his own images come with the data.
    names = read_benchmark(Path("data/benchmark"))["classes"]
    data = params.data.model_copy(update={"class_names": names})
    named = params.model_copy(update={"data": data})
    state = run_folder(params.schedule.last).state
    own = counted(named, images) | stored(state, params.data.image_size)
    write_json(reports / BUDGET, own, indent=2)


def counted(params: Params, images: Images) -> dict[str, Any]:
    """The whole budget from the parameters alone: without classifiers, with a full memory.

    A pass is one image through one extractor, without the predictions on test images, which are
    the price of measuring.
    """
    parts, network = parts_of(params.method), params.model.backbone
    forward = forward_flops(network, params.augmentation.input_size)
    sessions = [
        (scale.index, passes_of(parts, replace(scale, test=0))) for scale in scales(params, images)
    ]
    total = sum((own for _, own in sessions), Passes(0, 0))
    extractors = parts.representation.extractors(len(sessions))
    kept = min(params.memory.size, sum(images.train.values()))
    return {
        "parameters": extractors * parameter_count(network),
        "model_bytes": extractors * weight_bytes(network),
        "exemplars": kept,
        "exemplar_bytes": kept * 3 * params.data.image_size**2,
        "images_trained": total.trained,
        "images_forward": total.frozen,
        "training_flops": total.forward * forward,
        "prediction_flops": extractors * forward,
        "by_session": [
            {
                "session": index,
                "extractors": parts.representation.extractors(index),
                "images_trained": own.trained,
                "images_forward": own.frozen,
                "training_flops": own.forward * forward,
            }
            for index, own in sessions
        ],
    }


def stored(state: Path, image_size: int) -> dict[str, int]:
    """What the last session left: the model as it is, and the exemplars that are really there."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        files = [*sorted((state / "extractors").glob("*.safetensors")), state / "state.safetensors"]
        tensors = [own for file in files for own in load_file(file).items()]
        exemplars = len(pd.read_csv(state / "memory.csv"))
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{state} is missing or damaged ({reason}); run `dvc repro consolidate`"
        ) from None
    return {
        "parameters": sum(own.size for name, own in tensors if _is_parameter(name, own)),
        "model_bytes": sum(own.nbytes for _, own in tensors),
        "exemplars": exemplars,
        "exemplar_bytes": exemplars * 3 * image_size**2,
    }


def _is_parameter(name: str, values: Any) -> bool:
    return values.dtype.kind == "f" and not name.endswith(STATISTICS)
