"""The training loop: its batches, schedule and arithmetic, against plain torch code."""

import math
import shutil
from collections import Counter
from itertools import pairwise

import pytest
import torch

from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.training import Phase, Trainer, extract, learning_rate, shuffle
from dacr.methods import make_method
from dacr.rng import torch_generator
from dacr.runtime.progress import TrainingProgress
from dacr.sessions.trial import tiny_params, trial
from tests.learning import CPU, small_params, small_session


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


def trainer_for(method, session, checkpoint):
    return Trainer(method, session, checkpoint, TrainingProgress(1, 1))


def train(params, session, name="work"):
    method = make_method(params, CPU)
    method.begin(session)
    rows = []
    with Checkpoint(name) as checkpoint:
        trainer = trainer_for(method, session, checkpoint)
        for phase in method.phases(session):
            rows += trainer.fit(phase)
    return method, rows


def test_replay_equals_a_plain_loop_written_with_torch():
    """One extractor, cross-entropy, SGD with momentum and weight decay: nothing hidden."""
    params = small_params(
        "method=replay", "train.schedule=multistep", "train.milestones=[1]", "train.lr=0.005"
    )
    session = small_session(1, [], [0, 1, 2], [], each=8)
    method, rows = train(params, session)

    reference = make_method(params, CPU)
    reference.head.grow(3, torch_generator(params.seed, "head", 1))
    reference.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        reference.parameters(), lr=params.train.lr, momentum=0.9, weight_decay=5e-4
    )
    reference.train()
    for epoch in range(2):
        for group in optimizer.param_groups:
            group["lr"] = params.train.lr * (0.1 if epoch >= 1 else 1.0)
        order = torch.randperm(
            24, generator=torch_generator(params.seed, "shuffle", 1, "train", epoch)
        )
        total = 0.0
        for start in range(0, 24, 8):
            chosen = order[start : start + 8]
            pixels = session.data.images(chosen).float() / 255
            inputs = ((pixels - 0.5) / 0.5).permute(0, 3, 1, 2)
            loss = torch.nn.functional.cross_entropy(
                reference.head(reference.features(inputs)), session.data.labels[chosen]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(chosen)
        assert rows[epoch]["cross_entropy"] == pytest.approx(total / 24, rel=1e-4)
    for (name, ours), theirs in zip(method.named_parameters(), reference.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5), name


def test_an_epoch_visits_every_sample_once_and_depends_on_its_name_only():
    view = small_session(1, [], [0, 1], []).data
    epochs = [
        shuffle(view, None, 5, torch_generator(1, "shuffle", 1, "train", e)) for e in (0, 0, 1)
    ]
    for batches in epochs:
        assert sorted(torch.cat(batches).tolist()) == list(range(12))
    assert [b.tolist() for b in epochs[0]] == [b.tolist() for b in epochs[1]]
    assert [b.tolist() for b in epochs[0]] != [b.tolist() for b in epochs[2]]


def test_a_lone_sample_joins_the_batch_before():
    view = small_session(1, [], [0], [], each=9).data
    assert [len(b) for b in shuffle(view, None, 4, torch.Generator())] == [4, 5]


def test_a_phase_may_train_on_a_part():
    view = small_session(1, [], [0, 1], []).data
    chosen = torch.tensor([3, 7, 11])
    assert sorted(torch.cat(shuffle(view, chosen, 2, torch.Generator())).tolist()) == [3, 7, 11]


def phase(epochs=10, lr=0.4, milestones=(3, 6)):
    return Phase("train", epochs, lr, milestones, [], lambda batch: {})


def test_multistep_schedule_drops_at_its_milestones():
    train = small_params("train.schedule=multistep").train
    rates = [learning_rate(phase(), train, e) for e in (0, 2.99, 3, 5.5, 6, 9)]
    assert rates == pytest.approx([0.4, 0.4, 0.04, 0.04, 0.004, 0.004])


def test_cosine_schedule_falls_from_the_rate_to_nearly_nothing():
    train = small_params("train.schedule=cosine").train
    rates = [learning_rate(phase(), train, e / 4) for e in range(40)]
    assert rates[0] == 0.4
    assert rates[20] == pytest.approx(0.2)
    assert all(a > b for a, b in pairwise(rates))
    assert rates[-1] < 0.001


def test_a_loss_that_is_not_finite_stops_with_one_line():
    params = small_params("method=replay")
    session = small_session(1, [], [0, 1], [])
    method = make_method(params, CPU)
    method.begin(session)
    broken = Phase(
        "train",
        2,
        0.1,
        (),
        method.parameter_groups(),
        lambda batch: {"loss": method.losses(batch)["cross_entropy"] * math.nan},
    )
    with Checkpoint("nan") as checkpoint, pytest.raises(UserError, match=r"not finite.*train\.lr"):
        trainer_for(method, session, checkpoint).fit(broken)


def test_features_are_extracted_in_order_whatever_the_batch_size():
    params = small_params("method=replay")
    session = small_session(1, [], [0, 1, 2], [])
    method = make_method(params, CPU).eval()
    data = session.data
    all_at_once = extract(data, method.features, method.augmentation, CPU)
    in_pieces = extract(data, method.features, method.augmentation, CPU, batch_size=5)
    assert all_at_once.shape == (18, 16)
    assert torch.allclose(all_at_once, in_pieces, atol=1e-5)


def test_learning_uses_no_global_random_state():
    params = small_params("method=der_dacr")
    session = small_session(1, [], [0, 1], [])
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        method, _ = train(params, session)
        results.append(torch.cat([p.detach().flatten() for p in method.parameters()]))
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0], results[1])


def test_each_seed_gives_another_model():
    session = small_session(1, [], [0, 1], [])
    one, _ = train(small_params("method=replay"), session)
    other, _ = train(small_params("method=replay", "seed=7"), session)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_all_samples_are_labelled_with_their_own_class():
    """The batch keeps images, labels, flags and positions together."""
    params = small_params("method=replay")
    session = small_session(2, [0], [1, 2], [0])
    method = make_method(params, CPU)
    seen = Counter()
    with Checkpoint("labels") as checkpoint:
        trainer = trainer_for(method, session, checkpoint)
        batches = shuffle(session.data, None, 4, torch.Generator())
        (phase,) = method.phases(session)
        for batch in trainer._batches(phase, batches, epoch=0):
            expected = method.augmentation.test(session.data.images(batch.positions))
            assert torch.equal(batch.images, expected)
            assert torch.equal(batch.labels, session.data.labels[batch.positions])
            assert torch.equal(batch.is_memory, session.data.is_memory[batch.positions])
            seen.update(batch.labels.tolist())
    assert seen == {0: 2, 1: 6, 2: 6}


def test_bfloat16_stays_inside_the_extractors_and_out_of_evaluation():
    images = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    exact = make_method(small_params("method=der"), CPU)
    coarse = make_method(small_params("method=der", "train.precision=bf16"), CPU)
    for method in (exact, coarse):
        method.begin(small_session(1, [], [0, 1], []))
        method.train()
    expected, actual = exact.features(images), coarse.features(images)
    assert actual.dtype == torch.float32
    assert not torch.equal(expected, actual)
    assert torch.cosine_similarity(expected, actual).min() > 0.99
    actual.sum().backward()
    assert all(
        p.grad is not None and p.grad.dtype == torch.float32 for p in coarse.features.parameters()
    )
    # The E-step of a session that is learned, and teachers, are coarse as well …
    exact.eval()
    coarse.eval()
    assert not torch.equal(exact.features(images), coarse.features(images))
    # … and what only consolidates and predicts is not.
    fresh = [make_method(m.params, CPU).eval() for m in (exact, coarse)]
    assert torch.equal(fresh[0].features(images), fresh[1].features(images))


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_network_learns_what_the_plain_one_does():
    session = small_session(1, [], [0, 1, 2], [], each=8)
    plain, compiled = (
        train(small_params("method=replay", f"train.compile={flag}"), session)
        for flag in ("false", "true")
    )
    for row, other in zip(plain[1], compiled[1], strict=True):
        assert other == pytest.approx(row, rel=1e-3)
    assert compiled[0].features.compiled


def test_within_the_bounds_of_the_parameters_a_low_rate_keeps_the_loss_finite():
    """So 'lower train.lr' is the right advice: what a lower rate cannot cure is refused before."""
    widest = [
        "mixture.kappa=1e6", "mixture.perturbation=1e6", "loss.lambda=1e6", "loss.beta=1e6",
        "loss.eta=1e6", "train.weight_decay=1e6", "augmentation.mean=[-1e6,0,1e6]",
        "augmentation.std=[1e-6,1e-6,1e6]", "mixture.initialisation=mean_perturbed",
    ]  # fmt: skip
    found = trial(tiny_params("der_dacr", *widest, "train.lr=1e-30"), CPU)
    assert all(math.isfinite(value) for value in found.losses.values())
    assert max(map(abs, found.losses.values())) > 1e4, "the weights do count"
