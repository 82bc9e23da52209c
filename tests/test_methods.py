"""Every method on every split, through the real stages, on four classes in two domains."""

import hashlib
import json
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dacr.evaluation.evaluate import evaluate
from dacr.learning.expansion import carry_over
from dacr.learning.losses import less_forget
from dacr.methods import make_method
from dacr.methods.parts.departures import BlockMixtureHead
from dacr.model.heads import CosineHead, MixtureHead
from dacr.sessions import consolidate
from dacr.sessions.places import run_folder
from dacr.sessions.state import load_model
from tests.learning import CPU, THIN, small_params, small_session
from tests.teaching import whole_batch
from tests.tiny_pipeline import run, tiny_params

METHODS = sorted(file.stem for file in Path("conf/method").glob("*.yaml"))
SPLITS = {"nc": 2, "nd": 2, "ncd": 4}
STREAMS = {"vil": 4, "uil": 4, "blurry": 2, "repeat": 4}
LEAK = ("schedule.leaks_into=1", "schedule.leak=0.4")
pytestmark = pytest.mark.usefixtures("no_epoch_kept", "no_t_sne")
LONGER = ("train.epochs=6", "train.batch_size=4", "memory.size=8", "facts.second_stage_epochs=30")


@pytest.fixture
def no_t_sne(monkeypatch):
    """Nothing here looks at the picture; test_exact does, of every method on every split."""
    monkeypatch.setattr(consolidate, "embed", lambda features, seed: np.zeros((len(features), 2)))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_every_split(tmp_path, method, split):
    """The accuracy matrix has the right shape, and what was just learned beats chance."""
    check_learned(tmp_path, tiny_params(THIN, f"method={method}", f"split={split}", *LONGER))


@pytest.mark.parametrize("split", STREAMS)
@pytest.mark.parametrize("method", ["replay", "icarl", "geodl", "der_dacr", "joint"])
def test_a_method_learns_pairs_that_come_back_or_in_parts(tmp_path, method, split):
    leak = LEAK if split == "blurry" else ()
    check_learned(tmp_path, tiny_params(THIN, f"method={method}", f"split={split}", *LONGER, *leak))
    with chdir(tmp_path):
        evaluate(Path("reports"))
    metrics = json.loads((tmp_path / "reports/metrics.json").read_text())
    assert len(metrics["accuracy_by_session"]) == STREAMS[split]


def check_learned(tmp_path, params):
    run(tmp_path, params)
    split = params.split
    last = run_folder(params.schedule.last)
    predictions = pd.read_parquet(tmp_path / last.results / "predictions.parquet")
    predictions["hit"] = predictions["label"] == predictions["predicted"]
    schedule = pd.read_csv(tmp_path / "data/split/schedule.csv")

    assert sorted(predictions["session"].unique()) == list(range(1, (SPLITS | STREAMS)[split] + 1))
    just_learned = []
    for session, rows in predictions.groupby("session"):
        brought = schedule[schedule["session"] <= session]
        pairs = set(zip(brought["class"], brought["domain"], strict=True))
        assert set(zip(rows["label"], rows["domain"], strict=True)) == pairs
        assert set(rows["predicted"]) <= set(brought["class"]), "it predicts classes it has seen"
        new = schedule[schedule["session"] == session]
        own = set(zip(new["class"], new["domain"], strict=True))
        mine = [p in own for p in zip(rows["label"], rows["domain"], strict=True)]
        just_learned += rows.loc[mine, "hit"].tolist()
    # Chance is at most one half (two classes in the first session), 1/4 later on.
    assert np.mean(just_learned) > 0.5

    memory = pd.read_csv(tmp_path / last.state / "memory.csv")
    assert len(memory) <= params.memory.size
    assert memory["id"].is_unique


def digest(folder):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted((folder / "extractors").iterdir())
    }


@pytest.mark.parametrize("method", ["der", "der_dacr"])
def test_old_extractors_do_not_change_by_one_bit(tmp_path, method):
    params = tiny_params(f"method={method}", "split=ncd", "memory.size=8")
    run(tmp_path, params)
    for t in range(2, 5):
        before, after = (digest(tmp_path / f"runs/{n:02d}/state") for n in (t - 1, t))
        assert before.items() <= after.items()
        assert len(after) == t


def two_sessions(method, incoming, memory, seen):
    """A method that began a first session with classes ``seen`` and then a second one."""
    method.begin(small_session(1, [], seen, []))
    second = small_session(2, seen, incoming, memory, domain=1)
    method.begin(second)
    method.start_epoch(second, 0)
    return second


@pytest.mark.parametrize("method", ["ucir", "geodl", "ucir_dacr", "geodl_dacr", "der", "der_dacr"])
@pytest.mark.parametrize(
    ("incoming", "each"), [([0, 1, 2], 6), ([1], 6), ([3], 6), ([0, 3], 1)],
    ids=["no new class", "one old class", "one new class", "fewer samples than m"],
)  # fmt: skip
def test_losses_are_finite_whatever_a_session_brings(method, incoming, each):
    model = make_method(small_params(f"method={method}"), CPU)
    model.begin(small_session(1, [], [0, 1, 2], []))
    session = small_session(2, [0, 1, 2], incoming, [0, 1, 2], domain=1, each=each)
    model.begin(session)
    for epoch in (0, 5):
        model.start_epoch(session, epoch)
        model.train()
        losses = model.losses(whole_batch(session, model))
        assert all(torch.isfinite(value) for value in losses.values()), losses
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_ucirs_weight_is_the_original_without_old_data_and_base_in_nd():
    options = "options.lambda_base=5.0"
    model = make_method(small_params("method=ucir", options), CPU)
    two_sessions(model, [3, 4], [0, 1, 2], [0, 1, 2])
    assert model.representation.adaptive_lambda == pytest.approx(5 * (3 / 2) ** 0.5)
    model = make_method(small_params("method=ucir", options), CPU)
    two_sessions(model, [0, 1, 2], [0, 1, 2], [0, 1, 2])
    assert model.representation.adaptive_lambda == pytest.approx(5)


def test_ucir_keeps_the_embeddings_of_absent_classes_and_imprints_new_ones():
    model = make_method(small_params("method=ucir"), CPU)
    session = two_sessions(model, [1, 3], [0, 1, 2], [0, 1, 2])
    assert isinstance(model.head, CosineHead)
    unit = torch.nn.functional.normalize(model.session_features(session), dim=1)
    mean = unit[session.data.labels == 3].mean(0)
    imprinted = torch.nn.functional.normalize(model.head.weight[3], dim=0)
    assert torch.dot(imprinted, mean / mean.norm()).item() == pytest.approx(1)

    model.train()
    sum(model.losses(whole_batch(session, model)).values()).backward()
    moved = model.head.weight.grad.abs().sum(1) > 0
    assert moved.tolist() == [False, True, False, True], "0 and 2 have no new data"


@pytest.mark.parametrize("method", ["ucir_dacr", "geodl_dacr", "der_dacr"])
def test_ours_keeps_the_hosts_representation_loss_and_swaps_the_classifier(method):
    model = make_method(small_params(f"method={method}"), CPU)
    session = two_sessions(model, [1, 3], [0, 1, 2], [0, 1, 2])
    assert isinstance(model.head, MixtureHead)
    model.train()
    kept = {"ucir_dacr": "less_forget", "geodl_dacr": "geodesic", "der_dacr": "auxiliary"}[method]
    terms = model.losses(whole_batch(session, model)).keys()
    assert {"inter", kept} <= terms
    assert not {"cross_entropy", "margin"} & terms
    assert [phase.name for phase in model.phases(session)] == ["train"], "no second stage"
    # Expansion: every incoming class has m more components than before, the others as many.
    assert model.head.counts().tolist() == [3, 6, 3, 3]


def test_the_less_forget_teacher_is_the_model_of_the_session_before():
    model = make_method(small_params("method=ucir_dacr"), CPU)
    session = two_sessions(model, [0, 1], [0, 1], [0, 1])
    batch = whole_batch(session, model)
    model.eval()
    features = model.features(batch.images)
    unchanged = less_forget(features, model.representation.old(batch)).item()
    assert unchanged == pytest.approx(0, abs=1e-5)
    with torch.no_grad():
        for parameter in model.features.parameters():
            parameter.add_(0.1)
    assert less_forget(model.features(batch.images), model.representation.old(batch)) > 1e-3


def test_the_auxiliary_classes_are_those_of_the_session_and_one_for_the_rest():
    model = make_method(small_params("method=der"), CPU)
    two_sessions(model, [1, 3], [0, 1, 2], [0, 1, 2])
    # Rows: 0, 1, 2 old, 3 new. Incoming are 1 and 3; 0 and 2 share the last auxiliary class.
    assert model.representation.auxiliary_label.tolist() == [2, 0, 2, 1]
    assert model.representation.auxiliary.weight.shape[0] == 3


def test_with_one_component_per_class_ours_is_a_cosine_classifier():
    """K_c = 1 everywhere: log P(y|x) is a softmax of κ·cos (the ablation's first row)."""
    params = small_params(
        "method=ucir_dacr",
        "mixture.components=1",
        "mixture.perturbation=0",
        "mixture.prior=uniform",
        "loss.beta=0",
        "reduction.delta=3",
    )
    model = make_method(params, CPU)
    sessions = [
        small_session(1, [], [0, 1, 2], []),
        small_session(2, [0, 1, 2], [1, 3], [0, 1, 2], domain=1),
    ]
    for session in sessions:
        model.begin(session)
        model.start_epoch(session, 0)
        model.eval()
        batch = whole_batch(session, model)
        features = model.features(batch.images)
        if session.index == 1:
            assert model.head.counts().tolist() == [1, 1, 1]
            expected = torch.nn.functional.cross_entropy(cosine(model)(features), batch.labels)
            assert model.losses(batch)["inter"].item() == pytest.approx(expected.item(), rel=1e-5)
        # The two components of a class that comes again are one after the session.
        model.consolidate(session, model.session_features(session))
        assert model.head.counts().tolist() == [1] * session.n_seen
        answer, logits = model.answer(features), cosine(model)(features)
        assert torch.equal(answer.rows, logits.argmax(1))
        torch.testing.assert_close(answer.confidence, logits.softmax(1).amax(1))
        assert not answer.components.any()


def cosine(model):
    """The cosine classifier with the means of a model that has one per class."""
    rows, _, dim = model.head.raw_means.shape
    head = CosineHead(dim, rows, torch.Generator(), scale_init=model.params.mixture.kappa)
    with torch.no_grad():
        head.weight.copy_(model.head.raw_means[:, 0])
    return head


def test_inherited_means_follow_a_growing_representation():
    """A mean with exemplars becomes their mean in the new feature; one without repeats a block."""
    model = make_method(small_params("method=der_dacr", "mixture.components=2"), CPU)
    first = small_session(1, [], [0, 1], [])
    model.begin(first)
    old = [means.clone() for means in model.head.components()]
    dim = model.features.dim
    session = small_session(2, [0, 1], [0, 1], [0, 1], domain=1)
    model.representation.begin(session)
    features = model.session_features(session)
    unit = torch.nn.functional.normalize(features, dim=1)
    carry_over(model.head, features, session)
    for row, means in enumerate(model.head.components()):
        assert means.shape == (2, 2 * dim)
        own = session.data.is_memory & (session.data.labels == row)
        cosines = unit[own][:, :dim] @ torch.nn.functional.normalize(old[row], dim=1).T
        for k in range(2):
            mine = unit[own][cosines.argmax(1) == k]
            expected = mine.mean(0) if len(mine) else torch.cat([old[row][k], old[row][k]])
            assert torch.allclose(means[k], expected / expected.norm(), atol=1e-5)


def test_a_mixture_of_blocks_scores_the_mean_direction_of_the_blocks():
    """Two blocks of two entries at 90° and 0°, whatever their lengths; means along single axes."""
    head = BlockMixtureHead(2, kappa=3.0, kappa_learnable=False)
    head.set_components([torch.eye(4)[:2], torch.eye(4)[2:3]])
    logits = head(torch.tensor([[0.0, 5.0, 0.1, 0.0]]))
    half = 3 / 2**0.5
    expected = torch.tensor([[[0.0, half], [half, -torch.inf]]])
    torch.testing.assert_close(logits, expected)
    assert set(head.state_dict()) == {"raw_means", "mask", "inherited", "fixed_kappa"}


def test_an_extractor_that_answers_loudly_has_no_more_say():
    """Block by block: no length of a block counts, only its direction; as a whole, it does."""
    features = torch.randn(5, 3 * 16, generator=torch.Generator().manual_seed(0))
    louder = features.clone()
    louder[:, -16:] *= 9
    alone = features[:, :16]
    for normalisation, same in (("blocks", True), ("whole", False)):
        params = small_params("method=der_dacr", f"mixture.normalisation={normalisation}")
        model = make_method(params, CPU)
        assert model.features.newest.dim == 16
        unit, loud = (
            torch.nn.functional.normalize(model.head.directed(f), dim=1) for f in (features, louder)
        )
        assert torch.allclose(unit, loud, atol=1e-6) == same
        direction = torch.nn.functional.normalize(model.head.directed(alone), dim=1)
        assert torch.allclose(direction, torch.nn.functional.normalize(alone, dim=1), atol=1e-6)
        if same:
            for row, image in enumerate(features):
                blocks = [image[i : i + 16] / image[i : i + 16].norm() for i in (0, 16, 32)]
                assert torch.allclose(unit[row], torch.cat(blocks) / 3**0.5, atol=1e-6)


@pytest.mark.parametrize("reduced", [True, False])
def test_the_record_of_components_adds_up(tmp_path, reduced):
    """Before = dropped + merged + after; each merge is one component fewer; the head agrees."""
    enabled = f"reduction.enabled={str(reduced).lower()}"
    params = tiny_params("method=der_dacr", "split=nd", enabled)
    run(tmp_path, params)
    last = run_folder(params.schedule.last)
    history = json.loads((tmp_path / last.results / "history.json").read_text(encoding="utf-8"))
    assert {row["session"] for row in history["components"]} == {1, 2}
    after = {}
    for row in history["components"]:
        merges = [
            merge
            for merge in history["merges"]
            if (merge["session"], merge["row"]) == (row["session"], row["row"])
        ]
        assert row["merged"] == len(merges)
        assert row["before"] == row["dropped"] + row["merged"] + row["after"]
        # Every class of this split comes in every session and gets three components.
        assert row["before"] == after.get(row["row"], 0) + 3
        after[row["row"]] = row["after"]
    assert bool(history["merges"]) == reduced
    assert any(row["dropped"] or row["merged"] for row in history["components"]) == reduced
    method = make_method(params, CPU)
    load_model(method, tmp_path / last.state)
    assert method.head.counts().tolist() == [after[row] for row in sorted(after)]
    assert [row["kappa"] for row in history["kappa"]] == [params.mixture.kappa] * 2
