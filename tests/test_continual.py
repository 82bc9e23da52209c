"""The field's metrics against hand-computed cases, slow loops, and the peers' own numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from dacr.errors import UserError
from dacr.evaluation import continual
from dacr.evaluation.continual import compute_measures, rows_of
from dacr.evaluation.measures import measure_tables
from dacr.evaluation.metrics import with_hits
from tests.schedules import make_schedule
from tests.test_metrics import BY_HAND, SCHEDULE

# After session i (row) on session j (column); the future is above the diagonal.
FULL = [[80.0, 10.0, 30.0], [60.0, 90.0, 20.0], [70.0, 50.0, 100.0]]
SEEN = [row[: i + 1] for i, row in enumerate(FULL)]


def test_the_matrix_of_predictions_by_hand() -> None:
    # Session 1 brings pair (0, 0), images 0-3; session 2 (1, 0), 4-5; session 3 (0, 1), 6-7.
    measures = compute_measures(BY_HAND, SCHEDULE)
    assert measures["accuracy_matrix"] == [[100.0], [75.0, 50.0], [50.0, 100.0, 50.0]]
    assert measures["average_accuracy"] == 66.6667  # (50 + 100 + 50) / 3
    assert measures["learning_accuracy"] == 66.6667  # (100 + 50 + 50) / 3
    assert measures["matrix_accuracy"] == 70.8333  # 425 / 6
    assert measures["backward_transfer"] == 0.0  # ((50 − 100) + (100 − 50)) / 2
    # Session 1 was best at first (100 → 50), session 2 has only one earlier value (50 → 100).
    assert measures["chaudhry_forgetting"] == 0.0
    # New classes: session 2, class 1: 1/2. Old ones: session 2, class 0: 3/4; session 3: 5/8.
    assert measures["new_class_accuracy"] == 50.0
    assert measures["old_class_accuracy"] == 68.75
    # Class 0 meets domain 1 in session 3: 1/2. Pairs met before: 3/4, then (2 + 2)/6.
    assert measures["new_domain_accuracy"] == 50.0
    assert measures["old_domain_accuracy"] == 70.8333
    assert "calibration_error" not in measures  # these predictions have no confidence


def test_transfer_and_forgetting_of_a_matrix_by_hand() -> None:
    assert continual.backward_transfer(SEEN) == ((70 - 80) + (50 - 90)) / 2
    assert continual.chaudhry_forgetting(SEEN) == ((80 - 70) + (90 - 50)) / 2
    recovered = [[60.0], [80.0, 90.0], [70.0, 50.0, 100.0]]
    # The best of session 1 was after session 2: 80 − 70, although 70 is more than the 60 at first.
    assert continual.chaudhry_forgetting(recovered) == ((80 - 70) + (90 - 50)) / 2
    assert continual.backward_transfer(recovered) == ((70 - 60) + (50 - 90)) / 2
    joint = [[80.0], [0.0, 95.0], [0.0, 0.0, 98.0]]
    assert continual.intransigence(SEEN, joint) == (0 + 5 - 2) / 3
    assert continual.forward_transfer(FULL, [5.0, 10.0]) == ((10 - 5) + (20 - 10)) / 2
    assert continual.upper_triangle(FULL) == (10 + 30 + 20) / 3
    # The future is no part of the mean over the lower triangle.
    lower = (80 + 60 + 90 + 70 + 50 + 100) / 6
    assert continual.matrix_accuracy(FULL) == continual.matrix_accuracy(SEEN) == lower


def test_forward_transfer_compares_each_session_with_its_own_chance() -> None:
    rows = [[0.0, 10.0, 0.0, 0.0], [0.0, 0.0, 20.0, 0.0], [0.0, 0.0, 0.0, 40.0], [0.0] * 4]
    chance = [1.0, 5.0, 18.0]
    expected = ((10 - 1) + (20 - 5) + (40 - 18)) / 3
    assert continual.forward_transfer(rows, chance) == pytest.approx(expected)
    # The last session has no test images, so that a chance taken from another one shows.
    untested = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, np.nan], [0.0] * 4]
    assert continual.forward_transfer(untested, chance) == 0.0


def test_a_pair_that_comes_back_is_old_since_its_first_session() -> None:
    """Class 0 has domain 0 in sessions 1 and 2, and meets domain 1 in session 2."""
    schedule = pd.DataFrame(
        [(1, 0, 0, 1), (2, 0, 0, 0), (2, 0, 1, 0), (2, 1, 0, 1)],
        columns=["session", "class", "domain", "new_class"],
    )
    predictions = pd.DataFrame(
        [
            *[(1, 0, 0, 0, 0), (1, 1, 0, 0, 0)],
            *[(2, 0, 0, 0, 0), (2, 1, 0, 0, 1)],  # one of two is right
            *[(2, 2, 0, 1, 0), (2, 3, 0, 1, 1), (2, 4, 0, 1, 1), (2, 5, 0, 1, 1)],  # one of four
            (2, 6, 1, 0, 1),
        ],
        columns=["session", "id", "label", "domain", "predicted"],
    )
    groups = continual.new_and_old(with_hits(predictions), schedule)
    assert groups.loc[2].to_dict() == {
        "new_class": 100.0,
        "old_class": pytest.approx(100 * 2 / 6),
        "new_domain": 25.0,
        "old_domain": 50.0,
    }
    assert groups.loc[1].dropna().to_dict() == {"new_class": 100.0}


def test_intransigence_needs_the_same_sessions() -> None:
    with pytest.raises(ValueError, match="different numbers of sessions"):
        continual.intransigence(SEEN, SEEN[:2])


def test_one_session_transfers_nothing() -> None:
    first = compute_measures(BY_HAND[BY_HAND["session"] == 1], SCHEDULE[:1])
    assert first["backward_transfer"] == first["chaudhry_forgetting"] == 0.0
    assert first["average_accuracy"] == first["learning_accuracy"] == 100.0
    assert not [name for name in first if name.startswith(("new_", "old_"))]


def test_chance_is_a_guess_among_the_classes_seen_before() -> None:
    scored = with_hits(BY_HAND)
    # Session 2 brings a new class, which no guess gets right; session 3 an old one of two.
    assert continual.chance_levels(scored, SCHEDULE) == [0.0, 50.0]


def test_a_session_without_test_images_counts_for_nothing() -> None:
    schedule = pd.concat(
        [SCHEDULE, pd.DataFrame([(2, 1, 1, 0)], columns=SCHEDULE.columns)]
    ).sort_values("session")
    assert compute_measures(BY_HAND, schedule)["accuracy_matrix"][1] == [75.0, 50.0]
    gap = SCHEDULE.assign(domain=[0, 1, 1])  # no test image is of pair (1, 1)
    untested = BY_HAND[BY_HAND["label"] != 1]
    measures = compute_measures(untested, gap)
    assert measures["accuracy_matrix"] == [[100.0], [75.0, None], [50.0, None, 50.0]]
    assert measures["backward_transfer"] == -50.0
    assert json.loads(json.dumps(measures, allow_nan=False)) == measures
    assert np.isnan(rows_of(measures["accuracy_matrix"])[1][1])


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_predictions_match_the_slow_definitions(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 99))
    schedule = make_schedule("ncd", 3, 2, sessions=3, new_classes=[2, 1, 0], seed=seed)
    predictions = _random(schedule, np.random.default_rng(seed))
    measures = compute_measures(predictions, schedule)
    rows = predictions.to_dict("records")
    since = {(own["class"], own["domain"]): own["session"] for own in schedule.to_dict("records")}

    def accuracy(i: int, j: int) -> float:
        hits = [
            own["predicted"] == own["label"]
            for own in rows
            if own["session"] == i and since[own["label"], own["domain"]] == j
        ]
        return 100.0 * sum(hits) / len(hits)

    slow = [[accuracy(i, j) for j in range(1, i + 1)] for i in range(1, 4)]
    assert measures["accuracy_matrix"] == [[pytest.approx(v, abs=1e-4) for v in r] for r in slow]
    assert measures["chaudhry_forgetting"] >= -measures["backward_transfer"] - 1e-4
    shuffled = predictions.sample(frac=1.0, random_state=0)
    assert compute_measures(shuffled, schedule) == measures


def _random(schedule: pd.DataFrame, draw: np.random.Generator) -> pd.DataFrame:
    """Predictions on one to four images of each pair, with a confidence."""
    rows, image = [], 0
    for session, label, domain, _ in schedule.itertuples(index=False):
        for _ in range(draw.integers(1, 5)):
            for t in range(session, schedule["session"].max() + 1):
                rows.append((t, image, label, domain, draw.integers(0, 3), 0, draw.random()))
            image += 1
    columns = ["session", "id", "label", "domain", "predicted", "component", "confidence"]
    return pd.DataFrame(rows, columns=columns)


# -- calibration ------------------------------------------------------------------------------


def _confident(*images: tuple[float, bool]) -> pd.DataFrame:
    rows = [(number, c, 100.0 * right) for number, (c, right) in enumerate(images)]
    return pd.DataFrame(rows, columns=["id", "confidence", "accuracy"])


def test_calibration_by_hand() -> None:
    # Two bins: (0, 0.5] has 0.2 and 0.5, one of them right; (0.5, 1] has 0.8, 0.9, 1.0, all right.
    scored = _confident((0.2, False), (0.5, True), (0.8, True), (0.9, True), (1.0, True))
    table = continual.reliability(scored, bins=2)
    assert table["images"].tolist() == [2, 3]
    assert table["confidence"].tolist() == pytest.approx([35.0, 90.0])
    assert table["accuracy"].tolist() == pytest.approx([50.0, 100.0])
    assert continual.calibration_error(table) == pytest.approx((2 * 15 + 3 * 10) / 5)


def test_the_ends_of_a_bin() -> None:
    edges = np.array([0.0, 0.1, 0.5, 0.51, 1.0])
    assert continual.bins_of(edges, 2).tolist() == [0, 0, 0, 1, 1]
    # A probability in single precision may be a little more than 1.
    assert continual.bins_of(np.array([1.0 + 1e-6]), 2).tolist() == [1]


def test_there_are_fifteen_bins_and_over_and_under_confidence_do_not_cancel() -> None:
    """0.065 and 0.068 are on two sides of 1/15; one is wrong, the other right."""
    table = continual.reliability(_confident((0.065, False), (0.068, True)))
    assert table["images"].tolist() == [1, 1]
    assert continual.calibration_error(table) == pytest.approx((6.5 + 93.2) / 2)


def test_the_average_calibration_error_is_that_of_the_sessions() -> None:
    """All answers with confidence 0.9; of the sessions 100, 4/6 and 5/8 are right."""
    measures = compute_measures(BY_HAND.assign(confidence=0.9), SCHEDULE)
    errors = [100 - 90, 90 - 100 * 4 / 6, 90 - 62.5]
    assert measures["calibration_error"] == errors[-1]
    assert measures["calibration_error_average"] == pytest.approx(sum(errors) / 3, abs=1e-4)


def test_the_reliability_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(3)
    confidence = draw.random(500)
    right = draw.random(500) < confidence**2
    table = continual.reliability(
        _confident(*zip(confidence.tolist(), right.tolist(), strict=True))
    )
    accuracy, mean = calibration_curve(right, confidence, n_bins=continual.BINS)
    assert table["accuracy"].tolist() == pytest.approx((100 * accuracy).tolist())
    assert table["confidence"].tolist() == pytest.approx((100 * mean).tolist())


def test_tables_hold_what_the_numbers_come_from(tmp_path: Path) -> None:
    predictions = _random(SCHEDULE, np.random.default_rng(0))
    measures = compute_measures(predictions, SCHEDULE)
    tables = measure_tables(predictions, SCHEDULE, measures)
    matrix = tables["accuracy_matrix"].set_index(["after", "on"])["accuracy"]
    assert matrix[3, 2] == measures["accuracy_matrix"][2][1]
    assert tables["reliability"]["images"].sum() == (predictions["session"] == 3).sum()
    error = continual.calibration_error(tables["reliability"])
    assert measures["calibration_error"] == pytest.approx(error, abs=1e-4)


def test_predictions_of_another_split_are_refused() -> None:
    with pytest.raises(UserError, match="the schedule has"):
        compute_measures(BY_HAND[BY_HAND["session"] < 3], SCHEDULE)


# -- the peers' own numbers -------------------------------------------------------------------


@pytest.fixture
def stream() -> tuple[pd.DataFrame, pd.DataFrame]:
    schedule = make_schedule("ncd", 4, 3, sessions=6, new_classes=[2, 1, 1, 0, 0, 0], seed=5)
    return _random(schedule, np.random.default_rng(7)), schedule


def _peer(name: str) -> Any:
    from tests import torchvision_compat  # noqa: F401 (before torchvision, which both import)

    return pytest.importorskip(
        name, reason=f"{name} is not installed: pip install -c constraints.txt -e '.[peers]'"
    )


def test_continuum_says_the_same(stream: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """But for an off-by-one in its BWT and forgetting, which leave out the session before i."""
    _peer("continuum")
    from continuum.metrics import Logger

    predictions, schedule = stream
    measures = compute_measures(predictions, schedule)
    tasked = predictions.merge(
        schedule.rename(columns={"class": "label", "session": "task"}), on=["label", "domain"]
    )
    logger = Logger(list_subsets=["test"])
    for session, own in tasked.groupby("session"):
        if session > 1:
            logger.end_task()
        columns = (own[name].to_numpy() for name in ("predicted", "label"))
        logger.add([*columns, own["task"].to_numpy() - 1], subset="test")
    rows = measures["accuracy_matrix"]
    last = len(rows)
    assert [100 * own for own in logger.accuracy_per_task] == pytest.approx(rows[-1], abs=1e-4)
    assert 100 * logger.accuracy_A == pytest.approx(measures["matrix_accuracy"], abs=1e-4)
    skipped = [rows[i][j] - rows[j][j] for i in range(1, last) for j in range(i - 1)]
    theirs = sum(skipped) / (last * (last - 1) / 2)
    assert 100 * logger.backward_transfer == pytest.approx(theirs, abs=1e-4)
    best = [max(rows[k][j] for k in range(j, last - 2)) - rows[-1][j] for j in range(last - 2)]
    assert 100 * logger.forgetting == pytest.approx(sum(best) / (last - 1), abs=1e-4)


def test_avalanche_says_the_same(stream: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Its evaluation plugin on a model that answers what our predictions say.

    Its forgetting is the first accuracy minus the last one, so that it is minus BWT.
    """
    _peer("avalanche")
    import torch
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.evaluation.metrics import accuracy_metrics, bwt_metrics, forgetting_metrics
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    predictions, schedule = stream
    answers = predictions.set_index(["session", "id"])["predicted"]

    class Told(torch.nn.Module):
        """Looks up the prediction of an image after the session; one that has none is class 0."""

        session = 0

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            told = [int(answers.get((self.session, int(i)), 0)) for i in ids]
            return torch.nn.functional.one_hot(torch.tensor(told), 4).float() + self.weight

    images = predictions.drop_duplicates("id").merge(
        schedule.rename(columns={"class": "label", "session": "since"}), on=["label", "domain"]
    )
    sets = []
    for _, own in images.groupby("since"):
        labels = own["label"].tolist()
        data = torch.utils.data.TensorDataset(
            torch.tensor(own["id"].tolist()), torch.tensor(labels)
        )
        data.targets = labels
        sets.append(as_classification_dataset(data))
    scenario = benchmark_from_datasets(train=sets, test=sets)
    model = Told()
    plugin = EvaluationPlugin(
        accuracy_metrics(experience=True),
        forgetting_metrics(experience=True, stream=True),
        bwt_metrics(stream=True),
        loggers=[],
    )
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        train_epochs=1,
        eval_mb_size=64,
        evaluator=plugin,
    )
    for session, experience in enumerate(scenario.train_stream, start=1):
        strategy.train(experience)
        model.session = session
        found = strategy.eval(scenario.test_stream[:session])
    measures = compute_measures(predictions, schedule)

    def of(name: str) -> float:
        (value,) = (v for key, v in found.items() if key.startswith(f"{name}/"))
        return 100.0 * value

    assert of("StreamBWT") == pytest.approx(measures["backward_transfer"], abs=1e-3)
    assert of("StreamForgetting") == pytest.approx(-measures["backward_transfer"], abs=1e-3)
    accuracy = [
        100.0 * v for key, v in sorted(found.items()) if key.startswith("Top1_Acc_Exp/eval")
    ]
    assert accuracy == pytest.approx(measures["accuracy_matrix"][-1], abs=1e-3)


def test_avalanche_transfers_forward_as_we_do() -> None:
    _peer("avalanche")
    from avalanche.evaluation.metrics.forward_transfer import ForwardTransfer

    chance, metric = [5.0, 10.0], ForwardTransfer()
    for j in (1, 2):
        metric.update(j, chance[j - 1], initial=True)
        metric.update(j, FULL[j - 1][j])
    theirs = metric.result()
    assert continual.forward_transfer(FULL, chance) == sum(theirs.values()) / len(theirs)
