"""The paper's numbers in conf/paper/, against its tables copied line by line as printed."""

from __future__ import annotations

import pytest

from dacr.experiments.tables import Paper

AVERAGE, FINAL = "average_incremental_accuracy", "final_accuracy"
SPLITS = ("nc", "nd", "ncd")

# Methods down; NC, ND, NCD of iCIFAR-20, then of iDomainNet, then of iDigits across.
RESULTS = """
replay     74.22 72.47 67.56 45.73 47.40 42.74 83.22 92.75 80.24
icarl      78.98 73.06 70.90 51.64 48.40 44.60 89.03 93.26 85.12
eeil       78.50 73.86 70.52 52.03 48.03 43.54 89.97 93.91 85.46
meta_dr    73.22 71.09 66.65 46.40 48.73 44.15 89.89 94.00 86.31
ucir       78.19 76.01 72.54 50.17 49.25 44.53 89.41 94.17 86.29
ucir_dacr  78.82 78.08 75.62 50.52 52.85 49.81 90.51 95.50 90.42
geodl      78.92 76.43 72.96 51.64 49.33 45.12 89.72 93.98 86.24
geodl_dacr 79.49 79.40 76.19 51.81 53.32 51.20 89.86 94.80 89.82
der        82.17 74.87 74.56 66.58 46.76 50.00 89.01 93.62 84.80
der_dacr   82.52 84.03 82.11 66.85 61.05 57.07 91.32 97.07 88.65
"""

# Rows from DER to all four parts; final and average of NC, ND, NCD across.
ABLATION = """
none           72.06 82.07 67.35 77.18 54.32 70.64
mixture        72.39 81.38 68.98 80.39 68.47 78.71
reduction      73.95 82.32 70.32 81.28 69.86 80.26
regularisation 74.14 82.46 71.92 82.04 71.56 80.97
bilevel        74.49 82.77 80.13 84.11 73.70 82.17
"""

FORGETTING = """
ucir       -12.22 -12.36 -6.48
ucir_dacr  -10.66 -10.27 -4.48
geodl      -11.85 -11.33 -4.06
geodl_dacr  -9.12  -8.57 -3.73
der         -5.92 -14.76 -5.79
der_dacr    -5.36  -3.44 -1.79
"""

# A value of the parameter down; final and average across.
DELTA = """
0.5  74.08 80.70
0.55 75.24 81.19
0.6  75.47 81.21
0.65 75.74 81.26
0.7  76.5  82.17
0.75 77.44 82.05
0.8  76.49 82.01
"""
COMPONENTS = """
der 80.94 85.59
1   82.45 86.34
5   84.39 87.32
10  84.54 87.40
15  84.08 87.21
"""
MEMORY = """
500  66.45 75.04
1000 72.47 78.02
1500 75.13 80.63
2000 76.40 82.17
2500 77.56 82.61
3000 78.80 82.80
"""
NUMBER_OF_COMPONENTS = "0.6 6.6  0.65 6.2  0.7 5.4  0.75 5.1  0.8 4.7  0.85 4.35  0.9 3.45"

# DER, then DER w/ ours, over the domains from the first to the fifth.
IMBALANCE = {
    "reptiles": ("30.23 52.01 25.24 48.27 76.28", "48.17 57.79 45.48 61.91 66.28"),
    "medium-sized mammals": ("32.56 17.31 37.36 37.63 88.47", "84.27 46.87 46.14 79.16 85.25"),
    "large carnivores": ("33.19 22.00 71.43 14.18 92.38", "69.33 68.59 85.35 42.74 85.98"),
    "large omnivores and herbivores": (
        "42.41 66.74 17.65 45.22 86.11",
        "70.23 64.27 56.48 84.26 76.32",
    ),
}


def printed(text: str) -> dict[str, list[float]]:
    rows = [line.split() for line in text.strip().splitlines()]
    return {name: [float(word) for word in words] for name, *words in rows}


def columns(paper: Paper, table: str, benchmark: str, places: list[tuple[str, str]]) -> object:
    """row → the values at (split, metric) places, of the rows that have any."""
    own = paper.table(table)
    found = [own.column(metric, benchmark, split) for split, metric in places]
    return {row: [column.get(row) for column in found] for row in found[0]}


def test_results(paper: Paper) -> None:
    places = [(split, AVERAGE) for split in SPLITS]
    for i, benchmark in enumerate(("icifar20", "idomainnet", "idigits")):
        expected = {row: values[3 * i : 3 * i + 3] for row, values in printed(RESULTS).items()}
        assert columns(paper, "main", benchmark, places) == expected


def test_ablation(paper: Paper) -> None:
    places = [(split, metric) for split in SPLITS for metric in (FINAL, AVERAGE)]
    assert columns(paper, "ablation", "icifar20", places) == printed(ABLATION)


def test_forgetting(paper: Paper) -> None:
    places = [(split, "forgetting") for split in SPLITS]
    assert columns(paper, "forgetting", "icifar20", places) == printed(FORGETTING)


@pytest.mark.parametrize(
    ("table", "split", "text"),
    [("delta", "ncd", DELTA), ("components", "nd3", COMPONENTS), ("memory", "ncd", MEMORY)],
)
def test_studies(paper: Paper, table: str, split: str, text: str) -> None:
    places = [(split, FINAL), (split, AVERAGE)]
    assert columns(paper, table, "icifar20", places) == printed(text)


def test_number_of_components(paper: Paper) -> None:
    words = NUMBER_OF_COMPONENTS.split()
    expected = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    found = paper.table("delta").column("components_per_class", "icifar20", "ncd")
    assert found == expected


def test_seeds(paper: Paper) -> None:
    own = paper.table("seeds")
    for split, mean, spread in (("nc", 82.58, 0.47), ("nd", 84.19, 0.50), ("ncd", 82.00, 0.22)):
        assert own.number(AVERAGE, "icifar20", split, "der_dacr") == mean
        assert own.deviation(AVERAGE, "icifar20", split, "der_dacr") == spread


def test_imbalance(paper: Paper) -> None:
    found = paper.table("imbalance").arrival["icifar20"]["ncd"]
    for i, method in enumerate(("der", "der_dacr")):
        assert found[method] == {
            name: [float(word) for word in rows[i].split()] for name, rows in IMBALANCE.items()
        }


def test_purity(paper: Paper) -> None:
    """ "the average component purity is 0.962" """
    assert paper.table("purity").column("purity_average", "icifar20", "ncd") == {"der_dacr": 0.962}
