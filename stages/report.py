"""``report``: the page about the run, and beside it when and where the run was made."""

from pathlib import Path
from tempfile import TemporaryDirectory

from dacr.runtime.stage import run_stage


def picture_of(benchmark: Path) -> bytes:
    """A contact sheet of the benchmark as PNG."""
    from dacr.data.benchmark import Benchmark
    from dacr.data.contact_sheet import contact_sheet

    with TemporaryDirectory() as folder:
        path = Path(folder) / "contact-sheet.png"
        contact_sheet(Benchmark.open(benchmark), path)
        return path.read_bytes()


def main() -> None:
    from dacr.config import load_params
    from dacr.evaluation import files
    from dacr.evaluation.plots import read_tables
    from dacr.experiments.published import compare
    from dacr.experiments.tables import load_paper
    from dacr.report.page import Run, read_provenance, render, write_provenance

    # Where a mirror lies on this machine is no part of the result.
    params = load_params().model_dump(mode="json", by_alias=True, exclude={"fetch"})
    data, reports = Path("data/benchmark"), Path("reports")
    benchmark = files.read_benchmark(data)
    run = Run(
        params=params,
        benchmark=benchmark,
        schedule=files.read_schedule(Path("data/split/schedule.csv")),
        metrics=files.read_metrics(reports / "metrics.json"),
        tables=read_tables(reports / "plots"),
        paper=compare(load_paper(), params, benchmark),
        contact_sheet=picture_of(data),
    )
    (reports / "index.html").write_text(render(run), encoding="utf-8")
    write_provenance(reports / "provenance.js", read_provenance(Path("runs")))


if __name__ == "__main__":
    run_stage(main)
