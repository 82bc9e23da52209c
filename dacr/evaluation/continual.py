"""The field's metrics, from predictions alone.

All of them come from one matrix: R[i, j] is the accuracy after session i on the test images of the
class-domain pairs that session j brings. Predictions on pairs that are yet to come are no part of a
run (``dacr.sessions.future`` makes them); with them the upper triangle is filled, too.

References:

- D. Lopez-Paz and M. Ranzato, Gradient Episodic Memory for Continual Learning, NeurIPS 2017: R,
  average accuracy, backward and forward transfer.
- A. Chaudhry et al., Riemannian Walk for Incremental Learning, ECCV 2018: forgetting,
  intransigence.
- N. Díaz-Rodríguez et al., Don't forget, there is more than forgetting, 2018: the means over the
  two triangles of R.
- M. Riemer et al., Learning to Learn without Forgetting, ICLR 2019: learning accuracy.
- C. Guo et al., On Calibration of Modern Neural Networks, ICML 2017: expected calibration error.

Accuracies are percentages, so that all differences of them are points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dacr.evaluation.metrics import PAIR, accuracies, check_sessions, rounded, with_hits

BINS = 15
"""Of confidence, each of the same width, as in Guo et al."""

Rows = list[list[float]]
"""Row i of R: the accuracies on sessions 1 to i, or to the last one if the future is known."""


def compute_measures(predictions: pd.DataFrame, schedule: pd.DataFrame) -> dict[str, Any]:
    """Every number of ``reports/measures.json``.

    Lists are left out of DVC's tables of experiments, which show the plain numbers.
    """
    check_sessions(predictions, schedule)
    scored = with_hits(predictions)
    rows = accuracy_matrix(scored, schedule)
    groups = new_and_old(scored, schedule)
    measures = {
        "average_accuracy": average_accuracy(rows),
        "matrix_accuracy": matrix_accuracy(rows),
        "learning_accuracy": learning_accuracy(rows),
        "backward_transfer": backward_transfer(rows),
        "chaudhry_forgetting": chaudhry_forgetting(rows),
        **{f"{name}_accuracy": value for name, value in averages(groups).items()},
    }
    if "confidence" in predictions:
        errors = [calibration_error(reliability(own)) for _, own in scored.groupby("session")]
        measures |= {
            "calibration_error": errors[-1],
            "calibration_error_average": float(np.mean(errors)),
        }
    return {name: rounded(value) for name, value in measures.items()} | {
        "accuracy_matrix": [[None if np.isnan(v) else rounded(v) for v in row] for row in rows]
    }


# -- the matrix -------------------------------------------------------------------------------


def accuracy_matrix(scored: pd.DataFrame, schedule: pd.DataFrame, future: bool = False) -> Rows:
    """R by row; with ``future`` the predictions hold those on pairs that are yet to come."""
    brought = schedule.rename(columns={"class": "label", "session": "on"})[["on", *PAIR]]
    found = accuracies(scored.merge(brought, on=PAIR), ["session", "on"])
    last = int(schedule["session"].max())
    values = {(int(i), int(j)): float(v) for (i, j), v in zip(found.index, found, strict=True)}
    return [
        [values.get((i, j), np.nan) for j in range(1, 1 + (last if future else i))]
        for i in range(1, last + 1)
    ]


def rows_of(matrix: Sequence[Sequence[float | None]]) -> Rows:
    """R from JSON, where a session without test images has null."""
    return [[np.nan if value is None else float(value) for value in row] for row in matrix]


def average_accuracy(rows: Rows) -> float:
    """ACC = 1/T Σ_j R[T, j]: sessions count equally, however many test images they have."""
    return _mean(iter(rows[-1]))


def matrix_accuracy(rows: Rows) -> float:
    """A: the mean of R[i, j] over all j ≤ i (Díaz-Rodríguez et al.)."""
    return _mean(value for i, row in enumerate(rows) for value in row[: i + 1])


def learning_accuracy(rows: Rows) -> float:
    """1/T Σ_j R[j, j]: how well each session is learned when it comes (Riemer et al.)."""
    return _mean(iter(diagonal(rows)))


def diagonal(rows: Rows) -> list[float]:
    return [row[j] for j, row in enumerate(rows)]


def backward_transfer(rows: Rows) -> float:
    """BWT = 1/(T−1) Σ_{j<T} (R[T, j] − R[j, j]); negative is forgetting (Lopez-Paz, Eq. 3).

    A single session has nothing to transfer to, and BWT is 0.
    """
    return _mean(rows[-1][j] - rows[j][j] for j in range(len(rows) - 1))


def chaudhry_forgetting(rows: Rows) -> float:
    """F = 1/(T−1) Σ_{j<T} max_{j≤l<T} (R[l, j] − R[T, j]); positive is forgetting (Eq. 3 there).

    The best accuracy that a session ever had is compared with the last one, so F ≥ −BWT.
    """
    last = len(rows) - 1
    return _mean(max(rows[k][j] for k in range(j, last)) - rows[last][j] for j in range(last))


def intransigence(rows: Rows, joint: Rows) -> float:
    """I = 1/T Σ_k (R*[k, k] − R[k, k]), where R* is of a run that trains on everything seen so far.

    Chaudhry et al. define it for one session k; this is the mean over all. Positive: the method
    learns a session worse than joint training does.
    """
    if len(rows) != len(joint):
        raise ValueError("the two runs have different numbers of sessions")
    return _mean(best - own for best, own in zip(diagonal(joint), diagonal(rows), strict=True))


def forward_transfer(rows: Rows, chance: Sequence[float]) -> float:
    """FWT = 1/(T−1) Σ_{j≥2} (R[j−1, j] − b_j); ``chance`` are b_2 to b_T (Lopez-Paz, Eq. 4)."""
    return _mean(rows[j - 1][j] - chance[j - 1] for j in range(1, len(rows)))


def upper_triangle(rows: Rows) -> float:
    """Mean of R[i, j] over all i < j (Díaz-Rodríguez et al.)."""
    return _mean(rows[i][j] for i in range(len(rows)) for j in range(i + 1, len(rows)))


def chance_levels(scored: pd.DataFrame, schedule: pd.DataFrame) -> list[float]:
    """b_2 to b_T: the expected accuracy on session j of guesses among the classes seen before it.

    Lopez-Paz and Ranzato measure a model with random weights. Ours has no output for a class that
    it has not seen, so that the guess is among the classes seen; one that is new is never right.
    """
    first = schedule.groupby("class")["session"].min()
    images = scored.drop_duplicates("id")
    levels = []
    for session in range(2, int(schedule["session"].max()) + 1):
        known = first[first < session].index
        own = schedule[schedule["session"] == session].rename(columns={"class": "label"})
        labels = images.merge(own[PAIR], on=PAIR)["label"]
        levels.append(100.0 * float(labels.isin(known).mean()) / len(known))
    return levels


def _mean(values: Iterator[float]) -> float:
    """0 where there are none; a session without test images counts for nothing."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else 0.0


# -- new and old ------------------------------------------------------------------------------

GROUPS = ("new_class", "old_class", "new_domain", "old_domain")


def new_and_old(scored: pd.DataFrame, schedule: pd.DataFrame) -> pd.DataFrame:
    """Accuracy by session of images in four groups, a column each; empty where it has none.

    A class is new in the session that first brings it, and old later. Of old classes alone, a
    domain is new if the class first meets it in this session, and old if it met it before.
    """
    pairs = schedule.rename(columns={"class": "label"})
    seen = scored.assign(
        class_since=scored["label"].map(pairs.groupby("label")["session"].min()),
        pair_since=scored[PAIR]
        .merge(
            pairs.groupby(PAIR)["session"].min().rename("since").reset_index(), on=PAIR, how="left"
        )["since"]
        .to_numpy(),
    )
    new_class = seen["class_since"] == seen["session"]
    new_pair = seen["pair_since"] == seen["session"]
    masks = (new_class, ~new_class, ~new_class & new_pair, ~new_class & ~new_pair)
    columns = {
        name: accuracies(seen[m], ["session"]) for name, m in zip(GROUPS, masks, strict=True)
    }
    sessions = sorted(seen["session"].unique())
    return pd.DataFrame(columns).reindex(sessions).rename_axis("session")


def averages(groups: pd.DataFrame) -> dict[str, float]:
    """The mean of each group over the sessions after the first that have it.

    In the first session everything is new, and there is nothing to compare it with.
    """
    means = groups.iloc[1:].mean()
    return {str(name): float(value) for name, value in means.items() if not np.isnan(value)}


# -- calibration ------------------------------------------------------------------------------


def reliability(scored: pd.DataFrame, bins: int = BINS) -> pd.DataFrame:
    """By bin of confidence that has images: how many, their mean confidence and accuracy in %."""
    confidence = scored["confidence"].to_numpy(np.float64)
    table = scored.assign(bin=bins_of(confidence, bins), confidence=100.0 * confidence)
    found = table.groupby("bin").agg(
        images=("id", "size"), confidence=("confidence", "mean"), accuracy=("accuracy", "mean")
    )
    return found.reset_index()


def bins_of(confidence: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Bin m holds (m/M, (m+1)/M]; a confidence of 0 is in the first."""
    bin_of: NDArray[np.int64] = np.clip(np.ceil(confidence * bins) - 1, 0, bins - 1).astype(
        np.int64
    )
    return bin_of


def calibration_error(table: pd.DataFrame) -> float:
    """ECE = Σ_m n_m/n |acc(m) − conf(m)| of a table of ``reliability``, in points."""
    gap = (table["accuracy"] - table["confidence"]).abs()
    return float((gap * table["images"]).sum() / table["images"].sum())
