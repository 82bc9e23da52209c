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
from markupsafe import Markup

from dacr.experiments.bounds import BREAKS, Bound, breaks_protocol
from dacr.experiments.published import PaperNumbers
from dacr.experiments.reading import flatten
from dacr.report import sections
from dacr.report.html import TEMPLATES, Figure, PageSection, Sheet, render_page
from dacr.report.measures import (
    budget_figures,
    calibration_figure,
    transfer_figures,
    with_price,
)
from dacr.report.stream import stream_figure

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
    paper: PaperNumbers
    contact_sheet: bytes
    measures: dict[str, Any]
    measure_tables: dict[str, pd.DataFrame]
    budget: dict[str, Any]


def render(run: Run) -> str:
    """The page's HTML."""
    benchmark, metrics, tables = run.benchmark, run.metrics, run.tables
    classes, domains = benchmark["classes"], benchmark["domains"]
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    mixture = sections.mixture_figures(tables, metrics, classes)
    shown: dict[tuple[str, str], list[Figure | None]] = {
        ("accuracy", "Accuracy by session"): [
            sections.accuracy_curve(tables["accuracy_by_session"]),
            sections.domain_accuracies(tables["domain_accuracy"], metrics, domains),
        ],
        ("paper", "Beside the paper"): [*sections.beside_the_paper(run.paper, metrics)],
        ("transfer", "Transfer and forgetting"): [
            *transfer_figures(run.measures, run.measure_tables),
            calibration_figure(run.measures, run.measure_tables["reliability"]),
        ],
        ("budget", "Budget"): [*budget_figures(run.budget, run.measures)],
        ("domains", "Classes and domains"): [
            sections.arrival_figure(run.schedule, benchmark),
            sections.pair_accuracies(metrics, benchmark),
        ],
        ("mixture", "Mixture"): [*mixture],
        ("learning", "Memory and losses"): [
            sections.memory_figure(tables["memory_by_domain"], domains),
            sections.loss_figure(tables["losses"]),
        ],
        ("confusion", "Confusion"): [*sections.confusion_figures(tables["confusion"], classes)],
    }
    brought = stream_figure(run.schedule, classes, domains)
    features = sections.embedding_figures(tables["embedding"], benchmark)
    data = sections.contact_sheet_figure(run.contact_sheet, benchmark)
    return render_page(
        "run.html.j2",
        [
            *(PageSection(*names, figures) for names, figures in shown.items()),
            PageSection("split", "What each session brings", [brought], css="single"),
            PageSection("embedding", "Features in the plane", features, sections.TSNE, "three"),
            PageSection("data", "Data", [data], css="single"),
        ],
        params=run.params,
        benchmark=benchmark,
        paper=run.paper,
        mirrored=any("mirror" in origin["kind"] for origin in benchmark["origins"].values()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        summary=sections.in_words(metrics, benchmark),
        breaks_protocol=breaks_protocol(run.params),
        headroom_curve=json.dumps(metrics["accuracy_by_session"]),
        cards=with_price(
            sections.headline_cards(metrics, benchmark, run.paper, bool(mixture)), run.budget
        ),
        settings=settings(run, bool(mixture)),
        variant="reduction.delta=0.75" if mixture else "memory.strategy=herding",
        all_params=Sheet(
            "All parameters", ["parameter", "value"], flatten(run.params), "numbers left"
        ),
        command=reproduce_command(run.params),
        params_hash=params_hash(run.params),
    )


def settings(run: Run, mixture: bool) -> list[tuple[str, str | Markup]]:
    """The facts and parameters that a reader asks for first, in words."""
    params, benchmark = run.params, run.benchmark
    train, loss = params["train"], params["loss"]
    counts, size = benchmark["counts"], benchmark["image_size"]
    sessions = len(run.metrics["accuracy_by_session"])
    scale = f"{len(benchmark['classes'])} classes × {len(benchmark['domains'])} domains"
    method = Markup("{} <code>{}</code>").format(run.paper.method, params["method"])
    images = f"{counts['train']:,} to train, {counts['test']:,} to test, {size} × {size}"
    told: list[tuple[str, str | Markup]] = [
        ("Benchmark", f"{benchmark['name']}: {scale}"),
        ("Images", images),
        *(
            (f"Source {source}", origin["kind"] + shares(origin))
            for source, origin in sorted(benchmark["origins"].items())
        ),
        ("Split", f"{params['split'].upper()} in {sessions} session{'s' * (sessions > 1)}"),
        ("Method", method),
        ("Network", params["model"]["backbone"]),
        ("Training", f"{train['epochs']} epochs per session, lr {train['lr']}"),
        ("Batch", f"{train['batch_size']} images"),
        ("Memory", memory_words(params)),
    ]
    if mixture:
        mix, reduction = params["mixture"], params["reduction"]
        kind = "learned from" if mix["kappa_learnable"] else "fixed at"
        told += [
            ("Mixture", f"m = {mix['components']}, κ {kind} {mix['kappa']:g}"),
            ("Reduction", f"δ = {reduction['delta']}, {reduction['distance']} distance"),
            ("Loss", f"λ = {loss['lambda']}, β = {loss['beta']}, η = {loss['eta']}"),
        ]
    return [*told, ("Seed", str(params["seed"]))]


def memory_words(params: dict[str, Any]) -> str:
    kept = params["memory"]
    if breaks_protocol(params):
        return f"every image of every session: {BREAKS}"
    return f"{kept['size']} exemplars, {kept['strategy']}" if kept["size"] else "none"


def shares(origin: dict[str, Any]) -> str:
    """How much of a published data set a source holds, where it does not hold all of it."""
    own, published = origin.get("counts"), origin.get("published_counts")
    if not own or not published or own == published:
        return ""
    parts = [f"{own[p]:,} of {published[p]:,} {p} images" for p in ("train", "test")]
    return f" ({', '.join(parts)})"


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


def read_provenance(runs: Path) -> list[dict[str, Any]]:
    """What the stages noted in ``runs/<tt>/provenance-<stage>.json``, sorted by session and stage.

    The notes are no part of the result: one that is missing or damaged is left out, and so is one
    about other bytes than those that are here now (of an earlier run).
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


def write_provenance(path: Path, records: list[dict[str, Any]], bound: Bound | None = None) -> None:
    """The script that the page loads; always written, since a missing one is a browser's error.

    It holds what does not follow from the run alone: times and machine, and the upper bound that
    other experiments measured.
    """
    notes: dict[str, Any] = {"PROVENANCE": records} | ({"BOUND": bound.facts} if bound else {})
    lines = [
        f"window.DACR_{name} = {json.dumps(own, ensure_ascii=True, sort_keys=True, indent=1)};\n"
        for name, own in notes.items()
    ]
    path.write_text("".join(lines), encoding="utf-8")
