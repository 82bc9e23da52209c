"""``reports/index.html``: one self-contained page about one run.

The page is a DVC out, so its bytes follow from the run alone. Times, machine and versions stand
beside it in ``provenance.js``, which the page reads when a person opens it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dacr.experiments.published import Comparison
from dacr.report import headline, learner_sections, result_sections
from dacr.report.pictures import data_uri, matrix_png

TEMPLATES = Path(__file__).parent / "templates"
LEARN = "provenance-learn.json"  # a session learns before it consolidates
CHOICES = ("augmentation", "model", "train", "loss", "mixture", "reduction", "memory", "options")


@dataclass(frozen=True)
class Run:
    """All that the page tells about."""

    params: dict[str, Any]
    benchmark: dict[str, Any]
    schedule: pd.DataFrame
    metrics: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    paper: Comparison
    contact_sheet: bytes


def page_environment(*folders: Path) -> Environment:
    """What every page is rendered with: templates (more in ``folders``) and style."""
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))
    tools = {"format_metric": headline.format_metric, "style": style}
    environment.globals |= tools
    environment.filters["thousands"] = lambda value: f"{value:,}"
    environment.filters["shares"] = shares
    return environment


def render(run: Run) -> str:
    """The page's HTML."""
    template = page_environment().get_template("report.html.j2")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    benchmark, metrics, tables = run.benchmark, run.metrics, run.tables
    mixture = learner_sections.mixture(tables, benchmark)
    confusion = result_sections.confusion(tables["confusion"], benchmark["classes"])
    return template.render(
        params=run.params,
        benchmark=benchmark,
        mirrored=any("mirror" in origin["kind"] for origin in benchmark["origins"].values()),
        metrics=metrics,
        paper=run.paper,
        sessions=len(metrics["accuracy_by_session"]),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        summary=headline.summary(metrics, benchmark),
        cards=headline.cards(metrics, benchmark, run.paper, mixture is not None),
        settings=main_settings(run.params, mixture is not None),
        flat_params=flatten(run.params),
        command=reproduce_command(run.params),
        params_hash=params_hash(run.params),
        beside=headline.beside_the_paper(run.paper, metrics),
        accuracy=result_sections.accuracy_curve(tables["accuracy_by_session"]),
        domain_grid=result_sections.domain_grid(tables["domain_accuracy"], benchmark["domains"]),
        pair_grid=result_sections.pair_grid(metrics, benchmark),
        schedule_grid=result_sections.schedule_grid(run.schedule, benchmark),
        mixture=mixture,
        memory=learner_sections.memory(tables["memory_by_domain"], benchmark["domains"]),
        losses=learner_sections.losses(tables["losses"]),
        confusion=confusion,
        confusion_picture=data_uri(matrix_png(confusion.shares)),
        contact_sheet=data_uri(run.contact_sheet),
        embedding=result_sections.embedding(tables["embedding"], benchmark),
    )


def shares(origin: dict[str, Any]) -> str:
    """How much of a published data set a source holds, where it does not hold all of it."""
    own, published = origin.get("counts"), origin.get("published_counts")
    if not own or not published or own == published:
        return ""
    parts = [f"{own[p]:,} of {published[p]:,} {p} images" for p in ("train", "test")]
    return f" ({', '.join(parts)})"


def flatten(params: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested parameters as (dotted name, value as JSON)."""
    flat: list[tuple[str, str]] = []
    for key, value in params.items():
        if isinstance(value, dict) and value:
            flat += flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", json.dumps(value, ensure_ascii=False)))
    return flat


def reproduce_command(params: dict[str, Any]) -> str:
    """``dvc exp run`` with the three groups and whatever can be chosen inside them."""
    chosen = {name: params[name] for name in ("benchmark", "split", "method", "seed")}
    chosen["data"] = {name: params["data"][name] for name in ("per_pair", "validation")}
    chosen["schedule"] = {"seed": params["schedule"]["seed"]}
    chosen |= {name: params[name] for name in CHOICES if params[name]}
    options = [f"-S {_override(name, value)}" for name, value in flatten(chosen)]
    return " \\\n  ".join(["dvc exp run", *options])


def _override(name: str, value: str) -> str:
    """``name=value`` as Hydra reads it, quoted for the shell; simple words need no quotes."""
    word = json.loads(value)
    simple = isinstance(word, str) and re.fullmatch(r"[A-Za-z][\w.-]*", word)
    return shlex.quote(f"{name}={word if simple else value}")


def params_hash(params: dict[str, Any]) -> str:
    """A short name for the experiment: equal exactly if every parameter is equal."""
    text = json.dumps(params, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main_settings(params: dict[str, Any], mixture: bool) -> list[tuple[str, str]]:
    """The parameters that a reader asks for first, in words."""
    train, memory, loss = params["train"], params["memory"], params["loss"]
    settings = [
        ("Network", params["model"]["backbone"]),
        ("Training", f"{train['epochs']} epochs a session, lr {train['lr']}"),
        ("Batch", f"{train['batch_size']} images"),
        ("Memory", f"{memory['size']} exemplars, {memory['strategy']}"),
    ]
    if mixture:
        mix, reduction = params["mixture"], params["reduction"]
        kind = "learned from" if mix["kappa_learnable"] else "fixed at"
        settings += [
            ("Mixture", f"m = {mix['components']}, κ {kind} {mix['kappa']:g}"),
            ("Reduction", f"δ = {reduction['delta']}, {reduction['distance']} distance"),
            ("Loss", f"λ = {loss['lambda']}, β = {loss['beta']}, η = {loss['eta']}"),
        ]
    return settings


def read_provenance(runs: Path) -> list[dict[str, Any]]:
    """What the stages noted in ``runs/<tt>/provenance-<stage>.json``, sorted by session and stage.

    The notes are a courtesy and no part of the result: one that is missing or damaged is left out,
    and so is one about other bytes than those that are here now (of a run that was here before).
    """
    records = []
    for file in sorted(runs.glob("*/provenance-*.json"), key=lambda f: (f.parent, f.name != LEARN)):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict) and _is_about(content.get("about"), file.parent):
            records.append(content)
    return records


def _is_about(about: Any, folder: Path) -> bool:
    """Whether a note is about the bytes in ``folder``; old notes do not say."""
    if about is None:
        return True
    try:
        content = (folder / about["path"]).read_bytes()
        return bool(hashlib.sha256(content).hexdigest() == about["sha256"])
    except (OSError, KeyError, TypeError):
        return False


def write_provenance(path: Path, records: list[dict[str, Any]]) -> None:
    """The script that the page loads; always written, since a missing one is a browser's error."""
    content = json.dumps(records, ensure_ascii=True, sort_keys=True, indent=1)
    path.write_text(f"window.DACR_PROVENANCE = {content};\n", encoding="utf-8")
