"""What gains rest on: intervals, rank tests, and the better of two hosts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import rankdata, ttest_rel

from dacr.experiments.gains import Gain, gain_over, rank_test
from dacr.experiments.plan import experiment_of
from dacr.experiments.records import Store
from dacr.experiments.results import Results, results_of
from dacr.experiments.tables import Paper
from dacr.report.table_figures import bars, metric_sheet
from dacr.report.table_page import render_table
from dacr.report.table_terminal import show_results
from dacr.report.table_words import significance
from tests.paper_records import record_of

AVERAGE, FINAL = "average_incremental_accuracy", "final_accuracy"
MINI = "idigits_mini"


# -- intervals --------------------------------------------------------------------------------


def test_the_interval_of_three_differences() -> None:
    """1, 2, 3: mean 2, deviation 1, and t with two degrees of freedom is 4.3027."""
    gain = Gain("host", {1: 1.0, 2: 2.0, 3: 3.0})
    assert gain.interval == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)
    assert gain.significant is False
    assert Gain("host", {1: 4.0, 2: 5.0, 3: 6.0}).significant is True
    assert Gain("host", {1: -4.0, 2: -5.0, 3: -6.0}).significant is True


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    draw = np.random.default_rng(1)
    for seeds in (2, 3, 5, 9):
        host, own = draw.normal(70, 3, seeds), draw.normal(73, 3, seeds)
        gain = gain_over(dict(enumerate(own)), {"host": dict(enumerate(host))})
        assert gain is not None
        expected = ttest_rel(own, host)
        assert gain.interval == pytest.approx(expected.confidence_interval(0.95))
        assert gain.significant == (expected.pvalue < 0.05)


def test_one_seed_has_no_interval_and_equal_gains_a_point() -> None:
    alone = Gain("host", {1: 3.0})
    assert (alone.interval, alone.significant, alone.deviation) == (None, None, None)
    assert Gain("host", {1: 3.0, 2: 3.0}).significant is True
    assert Gain("host", {1: 0.0, 2: 0.0}).significant is False


# -- hosts ------------------------------------------------------------------------------------


def test_the_better_host_is_the_better_on_the_same_seeds() -> None:
    own = {1: 80.0, 2: 80.0, 3: 80.0}
    published = {1: 60.0, 2: 62.0, 3: 64.0, 4: 99.0}  # 4 is not ours
    fair = {1: 61.0, 2: 63.0}
    gain = gain_over(own, {"der": published, "fair": fair})
    assert gain is not None
    assert (gain.over, gain.by_seed) == ("fair", {1: 19.0, 2: 17.0})
    gain = gain_over(own, {"der": {2: 70.0}, "fair": {1: 60.0, 3: 50.0}})  # they share no seed
    assert gain is not None
    assert (gain.over, gain.by_seed) == ("der", {2: 10.0})
    assert gain_over(own, {"der": {}, "fair": {7: 1.0}}) is None
    assert gain_over(own, {}) is None


# -- rank tests -------------------------------------------------------------------------------


def slow_rank_test(differences: list[float]) -> float:
    """The share of all choices of signs whose sum of signed ranks is as far from 0."""
    ranks = rankdata(np.abs(differences))
    seen = abs(float(np.sum(np.sign(differences) * ranks)))
    sums = [abs(float(np.dot(s, ranks))) for s in product((-1, 1), repeat=len(differences))]
    return sum(own >= seen - 1e-9 for own in sums) / len(sums)


def test_the_rank_test_counts_all_signs() -> None:
    draw = np.random.default_rng(2)
    for pairs in (6, 8, 9):
        differences = draw.normal(1, 1, pairs).tolist()
        found = rank_test(differences)
        assert found is not None
        assert found.p == pytest.approx(slow_rank_test(differences))
        assert (found.pairs, found.median) == (pairs, pytest.approx(np.median(differences)))
    sure = rank_test([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert sure is not None
    assert (sure.p, sure.significant) == (pytest.approx(2 / 64), True)
    assert rank_test([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert rank_test([0.0] * 6 + [1.0]) is None


# -- three rows -------------------------------------------------------------------------------


def measured(paper: Paper, store: Store, values: dict[tuple[str, str], list[float]]) -> Results:
    """Table 1 with these values of (method, split), a seed each."""
    table = paper.table("main")
    for (method, split), own in values.items():
        for seed, value in enumerate(own):
            experiment = experiment_of(table, paper.method_rows[method], MINI, split, seed)
            store.add(record_of(experiment, experiment.code, metrics=numbers(value)))
    return results_of(paper, table, MINI, store)


def numbers(value: float) -> dict[str, float]:
    return {AVERAGE: value, FINAL: value}


@pytest.fixture
def results(paper: Paper, store: Store) -> Results:
    """On NC the fair host is the better one, on ND the published one."""
    return measured(
        paper,
        store,
        {
            ("der", "nc"): [70.0, 70.1, 70.2],
            ("der_fair", "nc"): [80.0, 80.2, 80.4],
            ("der_dacr", "nc"): [79.0, 81.2, 80.4],
            ("der", "nd"): [90.0, 90.0, 90.0],
            ("der_fair", "nd"): [88.0, 88.0, 88.0],
            ("der_dacr", "nd"): [95.0, 95.1, 95.2],
            ("ucir", "nd"): [60.0],
            ("ucir_dacr", "nd"): [70.0],
        },
    )


def test_the_gain_is_over_the_better_of_the_two_hosts(results: Results) -> None:
    nc, nd = (results.number("der_dacr", split, AVERAGE) for split in ("nc", "nd"))
    assert nc.gain is not None
    assert nd.gain is not None
    assert (nc.gain.over, nd.gain.over) == ("der_fair", "der")
    assert nc.gain.mean == pytest.approx(0.0)
    assert nd.gain.mean == pytest.approx(5.1)
    assert nc.published_gain is not None
    assert nc.published_gain.mean == pytest.approx(10.1)
    assert (nc.gain.significant, nd.gain.significant) == (False, True)


def test_the_fair_host_is_not_in_the_paper_and_the_papers_gain_is_over_its_own(
    results: Results,
) -> None:
    assert results.number("der_fair", "nc", AVERAGE).paper is None
    assert results.number("der_fair", "nc", AVERAGE).paper_gain is None
    assert results.number("der_dacr", "nc", AVERAGE).paper_gain == pytest.approx(91.32 - 89.01)
    assert not any("prior" in words for words in results.other_settings if "options" in words)


def test_page_and_terminal_say_over_which_host_and_what_is_chance(results: Results) -> None:
    console = Console(record=True, width=200)
    show_results(results, console)
    text, page = " ".join(console.export_text().split()), render_table(results)
    assert "NC: DER w/ ours over DER (fair)" in page
    assert "ND: DER w/ ours over DER<" in page
    nc, nd = (line for line in significance(results) if line.startswith(("NC", "ND")))
    assert " ".join(nd.split()) in text
    assert "Not significant: DER w/ ours over DER (fair) +0.00" in nc
    chance, alone = nd.split(" One seed, no interval: ")
    assert "accuracy. Significant: DER (fair) over DER -2.00" in chance
    assert "DER w/ ours over DER +5.10 (+4.85 … +5.35)" in chance
    assert alone == "UCIR w/ ours over UCIR +10.00."
    *_, missing = significance(results)
    assert missing == "Not measured, so that gains are over the other host: UCIR (fair) on ND."


def test_headroom_is_joint_minus_the_row_on_the_seeds_that_both_have(
    paper: Paper, store: Store
) -> None:
    results = measured(
        paper,
        store,
        {
            ("joint", "nd"): [97.0, 98.0],
            ("der", "nd"): [90.0, 92.0, 10.0],
            ("finetune", "nd"): [60.0],
            ("der", "nc"): [80.0],
        },
    )
    der, lower, joint = (results.number(row, "nd", AVERAGE) for row in ("der", "finetune", "joint"))
    assert der.headroom is not None
    assert der.headroom.by_seed == {0: 7.0, 1: 6.0}
    assert lower.headroom is not None
    assert lower.headroom.mean == pytest.approx(37.0)
    assert joint.headroom is None
    assert results.number("der", "nc", AVERAGE).headroom is None
    assert results.number("der", "nd", "forgetting").headroom is None
    console = Console(record=True, width=250)
    show_results(results, console)
    text, page = " ".join(console.export_text().split()), render_table(results)
    for told in (text, page):
        assert "+6.50" in told
        assert "Joint (upper bound, breaks the protocol)" in told
        assert "memory 50;" in told  # that of methods, not of bounds
    nd, nc = (metric_sheet(results, split, AVERAGE, lambda _: "") for split in ("nd", "nc"))
    assert "headroom" in nd.columns
    assert "headroom" not in nc.columns
    chart = bars(results, results.rows, "nd", AVERAGE)
    assert chart is not None
    assert "dotted line is joint training" in chart.caption
    assert 'class="divider"' in chart.chart
    other = bars(results, results.rows, "nc", AVERAGE)
    assert other is not None
    assert 'class="divider"' not in other.chart


def test_all_splits_together_have_a_rank_test(results: Results) -> None:
    """DER (fair): 10, 10.1, 10.2 and three times -2. Of ours one of six is 0: too few."""
    found = results.rank_tests(AVERAGE)
    assert found.keys() == {"DER (fair)"}
    assert found["DER (fair)"].pairs == 6
    assert found["DER (fair)"].median == pytest.approx(4.0)
    assert any("DER (fair) +4.00 in the median of 6 pairs" in own for own in significance(results))


@pytest.mark.parametrize("table", ["main", "curves", "forgetting", "seeds", "imbalance"])
def test_every_gain_has_three_rows_in_the_same_order(paper: Paper, table: str) -> None:
    rows = list(paper.rows(paper.table(table), MINI))
    hosts = [own.host for own in paper.methods.values() if own.host in rows]
    assert hosts
    for host in hosts:
        place = rows.index(host)
        assert rows[place : place + 3] == [host, f"{host}_fair", f"{host}_dacr"]
        ours = paper.rows(paper.table(table), MINI)[f"{host}_dacr"]
        assert ours.hosts == (host, f"{host}_fair")


def test_a_fair_host_is_an_experiment_of_its_own(paper: Paper) -> None:
    table = paper.table("main")
    fair, host = (
        experiment_of(table, paper.method_rows[name], MINI, "nd", 1) for name in ("der_fair", "der")
    )
    assert fair.name != host.name
    assert "method=der_fair" in fair.arguments
    assert fair.code != host.code
