"""The tables of docs are written from the records, and say what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dacr.errors import UserError
from dacr.experiments.plan import experiment_of
from dacr.experiments.records import Store
from dacr.experiments.results import Results, results_of
from dacr.experiments.tables import Paper
from dacr.report.table_markdown import insert_tables
from tests.paper_records import record_of

AVERAGE, FINAL = "average_incremental_accuracy", "final_accuracy"
MINI = "idigits_mini"
ROOT = Path(__file__).parents[1]


@pytest.fixture
def results(paper: Paper, store: Store) -> Results:
    """DER, fair and with ours on ND, two seeds of which the gain is 2 ± 0 and 4 ± 5.66."""
    table = paper.table("main")
    rows = paper.rows(table, MINI)
    values = {"der": (80.0, 60.0), "der_fair": (82.0, 61.0), "der_dacr": (84.0, 65.0)}
    for method, (average, final) in values.items():
        for seed, step in ((1993, 0.0), (1994, 1.0)):
            own = experiment_of(table, rows[method], MINI, "nd", seed)
            far = 8 * step if method == "der_dacr" else 0.0
            metrics = {AVERAGE: average + step, FINAL: final + far, "purity": 0.456}
            store.add(record_of(own, own.code, metrics=metrics))
    return results_of(paper, table, MINI, store)


def test_a_marked_table_is_written_and_the_rest_stays(results: Results) -> None:
    mark = f"<!-- table main on {MINI}: {AVERAGE}, {FINAL}, purity -->"
    text = f"before\n\n{mark}\n| old |\n<!-- end of table -->\n\nafter\n"
    asked: list[tuple[str, str]] = []

    def found(table: str, benchmark: str) -> Results:
        asked.append((table, benchmark))
        return results

    written = insert_tables(text, found)
    assert asked == [("main", MINI)]
    assert (
        written
        == f"""before

{mark}
| split |  | average | final | purity | gain, average | gain, final | over | seeds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| ND | DER | 80.5 ± 0.7 | 60.0 ± 0.0 | 0.46 ± 0.00 | – | – | – | 2 |
| ND | DER (fair) | 82.5 ± 0.7 | 61.0 ± 0.0 | 0.46 ± 0.00 | **+2.0 ± 0.0** | **+1.0 ± 0.0** | DER | 2 |
| ND | DER w/ ours | 84.5 ± 0.7 | 69.0 ± 5.7 | 0.46 ± 0.00 | **+2.0 ± 0.0** | +8.0 ± 5.7 | DER (fair) | 2 |
<!-- end of table -->

after
"""  # noqa: E501
    )
    assert insert_tables(written, found) == written


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table main -->\n<!-- end of table -->",
        f"<!-- table main on {MINI}: {FINAL} -->\nno end",
        f"<!-- table main on {MINI}: no_such_metric -->\n<!-- end of table -->",
    ],
)
def test_a_wrong_mark_is_told(text: str, results: Results) -> None:
    with pytest.raises(UserError, match=r"mark of a table|no_such_metric is no metric"):
        insert_tables(text, lambda *_: results)


def test_the_tables_of_docs_are_those_of_the_records(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the committed ones: what only this machine has measured is not in a page yet."""
    monkeypatch.chdir(ROOT)
    store = Store(tmp_path / "scratch")
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    now = insert_tables(text, lambda table, own: results_of(paper, paper.table(table), own, store))
    assert now == text, "run `dacr paper insert docs/results.md`"
