"""Stage ``evaluate``: metrics and curves from the predictions alone, no network needed."""

from __future__ import annotations

from pathlib import Path

from dacr.config import load_params
from dacr.data.session_table import read_schedule
from dacr.evaluation import files
from dacr.evaluation.metrics import compute_metrics
from dacr.evaluation.plots import plot_tables, write_tables
from dacr.runtime.json_files import write_json

BENCHMARK, SCHEDULE = Path("data/benchmark"), Path("data/split/schedule.csv")


def evaluate(reports: Path) -> None:
    """From the results of the last session to ``metrics.json`` and ``plots`` in ``reports``."""
    results = Path("runs") / load_params().schedule.last / "results"
    benchmark = files.read_benchmark(BENCHMARK)
    schedule = read_schedule(SCHEDULE)
    predictions = files.read_predictions(results / "predictions.parquet")
    history = files.read_history(results / "history.json")
    metrics = compute_metrics(predictions, schedule, history.get("components", []))
    tables = plot_tables(
        predictions=predictions,
        embedding=files.read_embedding(results / "embedding.parquet"),
        schedule=schedule,
        history=history,
        metrics=metrics,
        classes=benchmark["classes"],
        domains=benchmark["domains"],
        domain_of=files.read_domains(BENCHMARK),
    )
    write_tables(tables, reports / "plots")
    write_json(reports / "metrics.json", metrics, indent=2)
