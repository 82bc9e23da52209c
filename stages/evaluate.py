"""``evaluate``: metrics and curves from the predictions alone, no network needed."""

from pathlib import Path

from dacr.runtime.stage import run_stage


def evaluate(reports: Path) -> None:
    """Write ``metrics.json`` and ``plots`` to the folder ``reports``."""
    from dacr.config import load_params
    from dacr.evaluation import files
    from dacr.evaluation.metrics import compute_metrics
    from dacr.evaluation.plots import plot_tables, write_tables

    run = Path("runs") / load_params().schedule.last
    data = Path("data/benchmark")
    benchmark = files.read_benchmark(data)
    schedule = files.read_schedule(Path("data/split/schedule.csv"))
    predictions = files.read_predictions(run / "predictions.parquet")
    history = files.read_history(run / "history.json")
    metrics = compute_metrics(predictions, schedule, history.get("components", []))
    tables = plot_tables(
        predictions=predictions,
        embedding=files.read_embedding(run / "embedding.parquet"),
        schedule=schedule,
        history=history,
        metrics=metrics,
        classes=benchmark["classes"],
        domains=benchmark["domains"],
        domain_of=files.read_domains(data),
    )
    write_tables(tables, reports / "plots")
    files.write_json(reports / "metrics.json", metrics)


def main() -> None:
    evaluate(Path("reports"))


if __name__ == "__main__":
    run_stage(main)
