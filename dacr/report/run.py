"""Stage ``report``: the page about the run, and beside it when and where the run was made."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from dacr.config import Params
from dacr.data.benchmark import Benchmark
from dacr.data.contact_sheet import contact_sheet
from dacr.data.shares import read_with_shares
from dacr.evaluation import files
from dacr.evaluation.budget import read_budget
from dacr.evaluation.measures import read_measure_tables, read_measures
from dacr.evaluation.plots import read_tables
from dacr.experiments.bounds import bound_of, known_records
from dacr.experiments.images import images_digest, is_restricted, measured_on
from dacr.experiments.published import compare
from dacr.experiments.tables import load_paper
from dacr.report.page import Run, read_provenance, render, write_provenance

BENCHMARK, SCHEDULE = Path("data/benchmark"), Path("data/split/schedule.csv")


def report(params: Params, reports: Path) -> None:
    """Write ``index.html`` and ``provenance.js`` to the folder ``reports``."""
    # The place of a mirror on this machine is no part of the result.
    shown = params.model_dump(mode="json", by_alias=True, exclude={"fetch"})
    benchmark, paper = files.read_benchmark(BENCHMARK), load_paper()
    run = Run(
        params=shown,
        benchmark=benchmark,
        schedule=read_with_shares(SCHEDULE),
        metrics=files.read_metrics(reports / "metrics.json"),
        tables=read_tables(reports / "plots"),
        paper=compare(paper, shown, benchmark),
        contact_sheet=picture_of(BENCHMARK),
        measures=read_measures(reports),
        measure_tables=read_measure_tables(reports),
        budget=read_budget(reports),
    )
    (reports / "index.html").write_text(render(run), encoding="utf-8")
    limits = params.data.per_pair, params.data.validation
    digest = images_digest(benchmark, is_restricted(*limits))
    known = [record for record in known_records() if measured_on(record, digest)]
    bound = bound_of(paper, shown, known)
    write_provenance(reports / "provenance.js", read_provenance(Path("runs")), bound)


def picture_of(benchmark: Path) -> bytes:
    """A contact sheet of the benchmark as PNG."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "contact-sheet.png"
        contact_sheet(Benchmark.open(benchmark), path)
        return path.read_bytes()
