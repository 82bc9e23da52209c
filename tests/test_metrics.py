"""The metrics against hand-computed cases and slow loops written from their definitions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dacr.errors import UserError
from dacr.evaluation.metrics import compute_metrics, rounded
from dacr.evaluation.plots import components_by_session, losses, memory_by_domain, plot_tables
from tests.schedules import make_schedule
from tests.synthetic_run import SyntheticRun

COLUMNS = ["session", "id", "label", "domain", "predicted", "component"]

# Two classes, two domains, three sessions; images 0-3 are of pair (0, 0), 4-5 of (1, 0), 6-7 of
# (0, 1).
SCHEDULE = pd.DataFrame(
    [(1, 0, 0, 1), (2, 1, 0, 1), (3, 0, 1, 0)],
    columns=["session", "class", "domain", "new_class"],
)
BY_HAND = pd.DataFrame(
    [(1, i, 0, 0, 0, 0) for i in range(4)]
    + [(2, 0, 0, 0, 0, 0), (2, 1, 0, 0, 0, 0), (2, 2, 0, 0, 0, 0), (2, 3, 0, 0, 1, 0)]
    + [(2, 4, 1, 0, 1, 0), (2, 5, 1, 0, 0, 0)]
    + [(3, 0, 0, 0, 0, 0), (3, 1, 0, 0, 0, 0), (3, 2, 0, 0, 1, 0), (3, 3, 0, 0, 1, 1)]
    + [(3, 4, 1, 0, 1, 0), (3, 5, 1, 0, 1, 0), (3, 6, 0, 1, 0, 1), (3, 7, 0, 1, 1, 0)],
    columns=COLUMNS,
)
COMPONENTS = [
    {"session": 1, "class": 0, "before": 3, "after": 1},
    {"session": 2, "class": 1, "before": 3, "after": 2},
    {"session": 3, "class": 0, "before": 4, "after": 3},
]


def test_by_hand() -> None:
    metrics = compute_metrics(BY_HAND, SCHEDULE, COMPONENTS)
    # 4/4, (3+1)/6, (2+2+1)/8
    assert metrics["accuracy_by_session"] == [100.0, 66.6667, 62.5]
    assert metrics["average_incremental_accuracy"] == pytest.approx(
        (100 + 200 / 3 + 62.5) / 3, abs=1e-4
    )
    assert metrics["final_accuracy"] == 62.5
    # pairs: 1; (3/4 + 1/2)/2; (2/4 + 2/2 + 1/2)/3
    assert metrics["pair_averaged_accuracy_by_session"] == [100.0, 62.5, 66.6667]
    assert metrics["pair_averaged_incremental_accuracy"] == pytest.approx(76.3889, abs=1e-4)
    assert metrics["pair_averaged_final_accuracy"] == 66.6667
    # session 2 on the images of session 1: 75 − 100; session 3 on those of session 2: 4/6 − 4/6
    assert metrics["forgetting"] == -12.5
    # on what the session itself brought: 75 − 100; pair (1, 0): 100 − 50
    assert metrics["forgetting_session_only"] == 12.5
    assert metrics["worst_domain_accuracy"] == 50.0  # domain 0: 4/6, domain 1: 1/2
    assert metrics["accuracy_by_domain"] == [
        {"domain": 0, "accuracy": 66.6667},
        {"domain": 1, "accuracy": 50.0},
    ]
    assert metrics["accuracy_by_class"] == [
        {"class": 0, "accuracy": 50.0},
        {"class": 1, "accuracy": 100.0},
    ]
    assert metrics["accuracy_by_pair"][1] == {"class": 0, "domain": 1, "accuracy": 50.0}
    assert metrics["components_per_class"] == 2.5
    # Class 0, session 3: component 0 has 3/4 of domain 0 and 1/2 of domain 1, component 1 has 1/4
    # and 1/2: (3/4 + 1/2)/2; class 1 has one domain: 1.
    assert metrics["purity"] == pytest.approx((0.625 + 1) / 2, abs=1e-4)
    assert metrics["purity_single_component"] == 0.75
    assert metrics["purity_by_session"] == [1.0, 1.0, 0.8125]
    assert metrics["purity_average"] == 0.9375
    assert metrics["purity_single_component_by_session"] == [1.0, 1.0, 0.75]
    assert metrics["purity_single_component_average"] == pytest.approx(2.75 / 3, abs=1e-4)


def test_every_value_is_json_that_reads_back_equal() -> None:
    metrics = compute_metrics(BY_HAND, SCHEDULE, COMPONENTS)
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_one_session_has_nothing_to_forget() -> None:
    first = compute_metrics(BY_HAND[BY_HAND["session"] == 1], SCHEDULE[:1], [])
    assert first["forgetting"] == first["forgetting_session_only"] == 0.0
    assert first["components_per_class"] == 1.0
    assert first["average_incremental_accuracy"] == first["final_accuracy"] == 100.0


def test_a_tiny_negative_number_is_written_as_zero() -> None:
    still = BY_HAND.assign(predicted=BY_HAND["label"])
    assert str(compute_metrics(still, SCHEDULE, [])["forgetting"]) == "0.0"
    assert str(rounded(-1e-9)) == "0.0"


def _slow(predictions: pd.DataFrame, schedule: pd.DataFrame) -> dict[str, Any]:
    """Loops over images, from the definitions."""
    rows = predictions.to_dict("records")
    last = max(row["session"] for row in rows)
    brought = {(row["class"], row["domain"]): row["session"] for row in schedule.to_dict("records")}

    def accuracy(session: int, keep: Callable[..., bool]) -> float:
        hits = [r["predicted"] == r["label"] for r in rows if r["session"] == session and keep(r)]
        return 100.0 * sum(hits) / len(hits)

    def since(row: dict[Any, Any]) -> Any:
        return brought[row["label"], row["domain"]]

    def change(i: int, keep: Callable[..., bool]) -> float:
        return accuracy(i, keep) - accuracy(i - 1, keep)

    curve = [accuracy(t, lambda _: True) for t in range(1, last + 1)]
    cumulative = [change(i, lambda row, i=i: since(row) < i) for i in range(2, last + 1)]
    own = [change(i, lambda row, i=i: since(row) == i - 1) for i in range(2, last + 1)]
    purities = []
    for label in {row["label"] for row in rows if row["session"] == last}:
        of_class = [r for r in rows if r["session"] == last and r["label"] == label]
        domains = {row["domain"] for row in of_class}
        purity = 0.0
        for component in {row["component"] for row in of_class}:
            weight: dict[int, float] = defaultdict(float)
            for row in of_class:
                if row["component"] == component:
                    size = sum(other["domain"] == row["domain"] for other in of_class)
                    weight[row["domain"]] += 1 / size
            purity += max(weight.values()) / len(domains)
        purities.append(purity)
    return {
        "average_incremental_accuracy": sum(curve) / len(curve),
        "final_accuracy": curve[-1],
        "forgetting": sum(cumulative) / len(cumulative),
        "forgetting_session_only": sum(own) / len(own),
        "purity": sum(purities) / len(purities),
        "worst_domain_accuracy": min(
            accuracy(last, lambda row, d=d: row["domain"] == d)
            for d in {row["domain"] for row in rows}
        ),
    }


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_predictions_match_the_slow_definitions(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 99))
    schedule = make_schedule("ncd", 3, 2, sessions=3, new_classes=[2, 1, 0], seed=seed)
    rows, image = [], 0
    for session, label, domain, _ in schedule.itertuples(index=False):
        for _ in range(data.draw(st.integers(1, 4))):
            for t in range(session, 4):
                guess, component = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
                rows.append((t, image, label, domain, guess, component))
            image += 1
    predictions = pd.DataFrame(rows, columns=COLUMNS)
    metrics = compute_metrics(predictions, schedule, [])
    for name, value in _slow(predictions, schedule).items():
        assert metrics[name] == pytest.approx(value, abs=1e-4), name
    assert metrics["purity"] >= metrics["purity_single_component"] - 1e-4
    shuffled = predictions.sample(frac=1.0, random_state=0)
    assert compute_metrics(shuffled, schedule, []) == metrics


def test_forgetting_is_the_difference_of_accuracies_on_a_run() -> None:
    run = SyntheticRun("nd")
    metrics = compute_metrics(run.predictions, run.schedule, run.history["components"])
    slow = _slow(run.predictions, run.schedule)
    assert metrics["forgetting"] == pytest.approx(slow["forgetting"], abs=1e-4)
    assert metrics["purity_single_component"] == 0.25  # four domains a class


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (BY_HAND[BY_HAND["session"] < 3], "the schedule has [1, 2, 3]"),
        (BY_HAND.assign(domain=1), "pairs that the schedule had not yet brought"),
        (BY_HAND.assign(domain=BY_HAND["domain"] | BY_HAND["label"]), "had not yet brought"),
        (BY_HAND.drop(index=5), "do not hold every test image"),
        (pd.concat([BY_HAND, BY_HAND[-1:]]), "do not hold every test image"),
    ],
)
def test_predictions_of_another_split_are_refused(predictions: pd.DataFrame, message: str) -> None:
    with pytest.raises(UserError) as error:
        compute_metrics(predictions, SCHEDULE, [])
    assert message in str(error.value)


def test_the_order_of_both_tables_is_free() -> None:
    metrics = compute_metrics(BY_HAND, SCHEDULE, COMPONENTS)
    assert compute_metrics(BY_HAND[::-1], SCHEDULE, COMPONENTS) == metrics
    assert compute_metrics(BY_HAND, SCHEDULE[::-1], COMPONENTS[::-1]) == metrics


def test_components_of_a_class_without_data_stay() -> None:
    table = components_by_session(SCHEDULE, COMPONENTS)
    # session 2: class 0 keeps 1 while class 1 goes 3 → 2; session 3: class 0 4 → 3, class 1 stays 2
    assert table.to_dict("list") == {
        "session": [1, 2, 3],
        "before": [3, 2, 3],
        "after": [1, 1.5, 2.5],
    }


def test_components_without_a_mixture_are_one() -> None:
    assert components_by_session(SCHEDULE, [])["after"].tolist() == [1, 1, 1]


def test_memory_is_joined_with_the_domains_of_its_images() -> None:
    memory = [{"session": 1, "class": 0, "ids": [3, 5]}, {"session": 2, "class": 0, "ids": [3, 7]}]
    domain_of = pd.Series({3: 1, 5: 0, 7: 1})
    table = memory_by_domain(memory, domain_of, ["photo", "sketch"])
    assert [tuple(row) for row in table.itertuples(index=False)] == [
        (1, "photo", 1),
        (1, "sketch", 1),
        (2, "sketch", 2),
    ]
    assert memory_by_domain([{"session": 1, "class": 0, "count": 2}], domain_of, ["a", "b"]).empty


def test_loss_steps_count_over_sessions() -> None:
    epochs = [
        {"session": 1, "phase": "expand", "epoch": 1, "inter": 2.0},
        {"session": 2, "phase": "expand", "epoch": 1, "inter": 1.0, "dis": 0.5},
    ]
    table = losses(epochs)
    assert table[["step", "session", "term", "value"]].to_numpy().tolist() == [
        [1, 1, "inter", 2.0],
        [2, 2, "dis", 0.5],
        [2, 2, "inter", 1.0],
    ]


def test_confusion_names_every_test_image_of_the_last_session() -> None:
    tables = plot_tables(
        predictions=BY_HAND,
        embedding=BY_HAND.assign(x=0.0, y=0.0),
        schedule=SCHEDULE,
        history={},
        metrics=compute_metrics(BY_HAND, SCHEDULE, []),
        classes=["cat", "dog"],
        domains=["photo", "sketch"],
        domain_of=pd.Series(dtype="int64"),
    )
    assert tables["confusion"].value_counts().to_dict() == {
        ("cat", "cat"): 3,
        ("cat", "dog"): 3,
        ("dog", "dog"): 2,
    }
    assert tables["domain_accuracy"].iloc[-1].tolist() == [3, "sketch", 50.0]
