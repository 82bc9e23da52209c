"""The model card of a run, in Markdown: what it is, its numbers, how to make and check it again.

The head of the card is YAML as model hubs read it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from dacr.data.terms import terms_of
from dacr.errors import UserError
from dacr.evaluation.budget import NAMES
from dacr.evaluation.continual import rows_of
from dacr.evaluation.formats import NOTHING, UNITS, format_metric, scaled
from dacr.experiments.comparison import FURTHER, metrics_of
from dacr.experiments.reading import WORKSPACE, Files, Revision, Workspace, read_params
from dacr.report.page import params_hash, reproduce_command
from dacr.report.verified import verify_run
from dacr.runtime.git import git_or_nothing

PAPER = (
    "Jiangwei Xie, Shipeng Yan, Xuming He. *General Incremental Learning with Domain-aware "
    "Categorical Representations.* CVPR 2022."
)
SHOWN = {
    "average_incremental_accuracy": "Average incremental accuracy",
    "final_accuracy": "Final accuracy",
    "worst_domain_accuracy": "Worst domain",
    "forgetting": "Forgetting, as the paper defines it (negative is forgetting)",
    "backward_transfer": "Backward transfer (negative is forgetting)",
    "chaudhry_forgetting": "Forgetting of Chaudhry et al. (positive is forgetting)",
    "calibration_error": "Expected calibration error",
}


@dataclass(frozen=True)
class Subject:
    """A finished experiment."""

    name: str
    params: dict[str, Any]
    metrics: dict[str, Any]
    revision: str
    checked: Sequence[str]
    """What ``dacr verify`` says, line by line; empty where it was not asked."""
    measures: dict[str, Any] = field(default_factory=dict)
    budget: dict[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, Any]:
        return self.measures | self.metrics


def read_subject(files: Files, check: bool) -> Subject:
    """All that a card tells about; only a run in the workspace can be checked byte by byte."""
    params = read_params(files)
    params.pop("fetch", None)  # the place of a mirror on this machine is no part of the run
    metrics = metrics_of(files)
    measures, budget = (_optional(files, path) for path in FURTHER)
    here = isinstance(files, Workspace)
    return Subject(
        name=files.name,
        params=params,
        metrics=metrics,
        revision=revision_of(files),
        checked=checked() if here and check else [],
        measures=measures,
        budget=budget,
    )


def revision_of(files: Files) -> str:
    """The commit with the code of a run; an experiment was started from its parent."""
    if not isinstance(files, Revision):
        return git_or_nothing("rev-parse", "HEAD")
    named = git_or_nothing("rev-parse", "--verify", "--quiet", f"{files.name}^{{commit}}")
    return named or git_or_nothing("rev-parse", f"{files.commit}~1")


def _optional(files: Files, path: str) -> dict[str, Any]:
    """A file of numbers that experiments of older versions do not have."""
    content = files.read(path)
    try:
        return dict(json.loads(content)) if content else {}
    except (ValueError, TypeError):
        raise UserError(f"{path} of {files.name} is damaged; restore it from git") from None


def checked() -> list[str]:
    """The word of ``dacr verify``, its verdict first."""
    report = verify_run()
    lines = [f"{subject}: {text}" for subject, text, _ in report.lines]
    return ["verified" if report.ok else "NOT verified", *lines]


def model_card(subject: Subject) -> str:
    params = subject.params
    title = f"{params['method']} on {params['benchmark']}, split {params['split'].upper()}"
    head = yaml.safe_dump(_head(subject), sort_keys=False, allow_unicode=True)
    parts = [
        f"---\n{head}---\n\n# {title}",
        _about(subject),
        _section("Numbers", _numbers(subject), _matrix(subject)),
        _section("Budget", _budget(subject)),
        _section("Data", _data(params)),
        _section("Make it again", _command(subject)),
        _section("Checked", _checked(subject)),
        _section("Limits", LIMITS),
        _section(
            "Cite", f"{PAPER} This model was made with `dacr`, which is not the authors' code."
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


LIMITS = (
    "The model knows the classes of its benchmark and no others, and answers with one of them "
    "whatever the image shows. Its confidence is not calibrated beyond the error above. The "
    "numbers are of one seed."
)


def _head(subject: Subject) -> dict[str, Any]:
    params = subject.params
    results = [
        {"type": name, "value": subject.metrics[name]}
        for name in ("average_incremental_accuracy", "final_accuracy")
        if name in subject.metrics
    ]
    return {
        "library_name": "dacr",
        "pipeline_tag": "image-classification",
        "tags": ["continual-learning", "general-incremental-learning", params["method"]],
        "model-index": [
            {
                "name": subject.name,
                "results": [
                    {
                        "task": {"type": "image-classification"},
                        "dataset": {"name": params["benchmark"], "type": params["benchmark"]},
                        "metrics": results,
                    }
                ],
            }
        ],
    }


def _section(title: str, *texts: str) -> str:
    inside = [text for text in texts if text]
    return "\n\n".join([f"## {title}", *inside]) if inside else ""


def _about(subject: Subject) -> str:
    params, sessions = subject.params, len(subject.metrics["accuracy_by_session"])
    return (
        f"An image classifier that learned {len(_classes(params))} classes in "
        f"{len(params['data']['domains'])} domains in {sessions} session{'s' * (sessions > 1)}, "
        f"with {params['memory']['size']} exemplars in between. Network "
        f"{params['model']['backbone']}, images of {params['data']['image_size']} × "
        f"{params['data']['image_size']}, seed {params['seed']}."
    )


def _classes(params: Mapping[str, Any]) -> list[str]:
    data = params["data"]
    return list(data.get("class_names") or range(data["classes"]))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _numbers(subject: Subject) -> str:
    rows = [
        [words, f"{format_metric(name, subject.numbers[name])} {_unit(name)}".rstrip()]
        for name, words in SHOWN.items()
        if name in subject.numbers
    ]
    return _table(["metric", "value"], rows)


def _unit(name: str) -> str:
    return UNITS.get(name, "%" if name.endswith("accuracy") else "points")


def _matrix(subject: Subject) -> str:
    if "accuracy_matrix" not in subject.measures:
        return ""
    rows = rows_of(subject.measures["accuracy_matrix"])
    sessions = range(1, len(rows) + 1)
    cells = [
        [
            str(after),
            *(NOTHING if math.isnan(own) else f"{own:.1f}" for own in row),
            *[""] * (len(rows) - after),
        ]
        for after, row in zip(sessions, rows, strict=True)
    ]
    about = "Accuracy in % after session i (row) on the class-domain pairs of session j (column):"
    return f"{about}\n\n{_table(['', *map(str, sessions)], cells)}"


def _budget(subject: Subject) -> str:
    budget = subject.budget
    if not budget:
        return ""
    rows = [
        [words, f"{budget[n]:,}", scaled(budget[n])] for n, words in NAMES.items() if n in budget
    ]
    return _table(["what", "exactly", "about"], rows)


def _data(params: Mapping[str, Any]) -> str:
    sources = params["data"]["sources"]
    rows = [[source, terms_of(source).licence, terms_of(source).cite] for source in sources]
    return _table(["source", "licence or terms", "cite"], rows)


def _command(subject: Subject) -> str:
    revision = f"git checkout {subject.revision[:12]}\n" if subject.revision else ""
    command = reproduce_command(subject.params)
    return (
        f"```\n{revision}{command}\n```\n\nThe same revision and parameters (hash "
        f"`{params_hash(subject.params)}`) give the same bytes."
    )


def _checked(subject: Subject) -> str:
    if not subject.checked:
        name = "the run" if subject.name == WORKSPACE else f"`dvc exp apply {subject.name}`"
        return f"`dacr verify` was not asked. In a clone with {name} it checks every byte."
    verdict, *lines = subject.checked
    return "\n".join([f"`dacr verify` says **{verdict}**:", "", *(f"- {line}" for line in lines)])
