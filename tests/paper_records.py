"""Records of experiments that nobody ran, for tests of what is made from records."""

from __future__ import annotations

import random

from dacr.experiments.plan import Experiment
from dacr.experiments.records import Record

CLASSES, DOMAINS = [str(c) for c in range(10)], ["pen", "street", "<blended>", "rendered"]
SESSIONS = {"nc": 5, "nd": 4, "ncd": 10, "nd3": 3}


def record_of(experiment: Experiment, code: str = "c0de", **changes: object) -> Record:
    """A record with numbers drawn from the experiment's name."""
    draw = random.Random(experiment.name)
    sessions = SESSIONS[experiment.split]
    curve = [round(95 - 4 * t - draw.uniform(0, 3 * t), 4) for t in range(sessions)]
    final = curve[-1]
    points = [
        (t + 1, c, d, draw.gauss(8 * i, 3), draw.gauss(8 * j, 3))
        for t in range(sessions)
        for i, c in enumerate(CLASSES)
        for j, d in enumerate(DOMAINS[: t + 1])
        for _ in range(4)
    ]
    columns = ("session", "class", "domain", "x", "y")
    content: dict[str, object] = {
        "name": experiment.name,
        "benchmark": experiment.benchmark,
        "split": experiment.split,
        "method": experiment.method,
        "seed": experiment.seed,
        "overrides": dict(experiment.overrides),
        "command": experiment.command,
        "revision": "0123456789abcdef",
        "code": code,
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": round(draw.uniform(50, 90), 1),
        "whole": True,
        "machine": {"cores": 2, "processor": "a <processor>", "device": "cpu", "torch": "2"},
        "data": {
            "classes": CLASSES,
            "domains": DOMAINS,
            "counts": {"train": 9600, "test": 2400},
            "image_size": 32,
            "origins": {},
        },
        "setting": {
            "backbone": "resnet8", "epochs": 12, "batch_size": 32, "lr": 0.05, "threads": 1,
            "memory": 50, "per_pair": None, "validation": 0.0, "sessions": sessions,
        },
        "metrics": {
            "average_incremental_accuracy": round(sum(curve) / sessions, 4),
            "final_accuracy": final,
            "forgetting": round(-draw.uniform(1, 15), 4),
            "components_per_class": round(draw.uniform(1, 6), 4),
            "purity": round(draw.uniform(0.4, 0.9), 4),
            "purity_average": round(draw.uniform(0.6, 0.9), 4),
            "purity_single_component_average": 0.5208,
        },
        "details": {
            "accuracy_by_session": curve,
            "purity_by_session": [round(1 - 0.05 * t, 4) for t in range(sessions)],
            "components_by_session": {
                "session": list(range(1, sessions + 1)),
                "before": [10.0 + t for t in range(sessions)],
                "after": [round(1 + draw.uniform(0.2, 0.5) * t, 4) for t in range(sessions)],
            },
            "accuracy_by_arrival": {
                c: [round(draw.uniform(30, 60) + 10 * d, 4) for d in range(4)] for c in CLASSES
            },
            "embedding": dict(zip(columns, map(list, zip(*points, strict=True)), strict=True)),
        },
    }  # fmt: skip
    return Record.model_validate(content | changes)
