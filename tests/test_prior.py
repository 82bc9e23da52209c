"""The priors of L_inter and of the hosts: by hand, against slow counts, and what they are for."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.errors import UserError
from dacr.learning.prior import class_log_frequencies, empirical_log_prior, uniform_log_prior
from dacr.learning.session import Session
from dacr.learning.training import Batch
from dacr.methods import make_method
from dacr.methods.parts.departures import Ours
from dacr.methods.parts.method import Method
from dacr.model.heads import CosineHead, LinearHead, MixtureHead, class_log_scores
from tests.learning import CPU, small_params, small_session
from tests.teaching import disturb, logits_of, whole_batch

# Rows: 0 is seen and incoming, 1 seen only, 2 new, 3 seen and incoming but without exemplars.
ROWS = torch.tensor([0] * 3 + [1] * 4 + [0] * 20 + [2] * 10 + [3] * 8)
IS_MEMORY = torch.tensor([True] * 7 + [False] * 38)
INHERITED = torch.tensor([2, 3, 0, 1])
COUNTS = torch.tensor([6, 3, 5, 2])


def uniform(counts: Tensor) -> Tensor:
    """The printed prior of a head with these K_c; it looks at nothing of a session."""
    head = MixtureHead(4, kappa=1.0, kappa_learnable=False)
    head.set_components([torch.ones(int(k), 4) for k in counts])
    return uniform_log_prior(small_session(1, [], [0], []), head)


def test_components_share_the_samples_of_their_kind() -> None:
    samples = empirical_log_prior(ROWS, IS_MEMORY, INHERITED, COUNTS).exp()
    assert samples[0].tolist() == pytest.approx([3 / 2] * 2 + [20 / 4] * 4)
    assert samples[1, :3].tolist() == pytest.approx([4 / 3] * 3)
    assert samples[2, :5].tolist() == pytest.approx([10 / 5] * 5)
    assert samples[3, :2].tolist() == pytest.approx([1, 8])


def test_components_of_one_kind_share_exemplars_and_incoming_samples() -> None:
    """Two exemplars and four incoming samples, of a class all new and of one all inherited."""
    rows = torch.tensor([0] * 6 + [1] * 6)
    is_memory = torch.tensor([True, True, False, False, False, False] * 2)
    prior = empirical_log_prior(rows, is_memory, torch.tensor([0, 3]), torch.tensor([3, 3]))
    assert prior.exp().flatten().tolist() == pytest.approx([6 / 3] * 6)


def test_the_shares_of_a_class_add_up_to_its_samples() -> None:
    prior = empirical_log_prior(ROWS, IS_MEMORY, INHERITED, COUNTS).exp()
    for row in range(3):
        total = sum(prior[row, k].item() for k in range(COUNTS[row]))
        assert total == pytest.approx((row == ROWS).sum().item())


def test_a_class_that_the_memory_forgot_keeps_a_finite_score() -> None:
    none = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.bool)
    prior = empirical_log_prior(*none, torch.tensor([2]), torch.tensor([2]))
    assert prior[0].tolist() == pytest.approx([math.log(1 / 2)] * 2)


def test_with_the_uniform_prior_the_loss_is_the_papers() -> None:
    logits = torch.randn(7, 4, 6, generator=torch.Generator().manual_seed(0))
    logits = logits.masked_fill(torch.arange(6) >= COUNTS.unsqueeze(1), -torch.inf)
    scores = (logits + uniform(COUNTS)).logsumexp(-1)
    torch.testing.assert_close(scores, class_log_scores(logits, COUNTS))


def test_balanced_counts_change_nothing() -> None:
    """The same number of samples for every component is the uniform prior up to a constant."""
    rows = torch.tensor([0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1])
    memory = torch.arange(12) < 4
    inherited, counts = torch.tensor([1, 1]), torch.tensor([3, 3])
    difference = empirical_log_prior(rows, memory, inherited, counts) - uniform(counts)
    assert difference.std().item() == pytest.approx(0, abs=1e-6)


def test_an_imbalanced_sample_gives_the_balanced_classifier() -> None:
    """Two Gaussians, 30 samples of one for each of the other: the fitted boundary.

    With the empirical prior in training the boundary is where it is for balanced data, half-way;
    with the uniform one it is pushed into the rare class by about the log of the imbalance.
    """
    g = torch.Generator().manual_seed(0)
    rare, often = 400, 12_000
    x = torch.cat([torch.randn(rare, generator=g) - 1, torch.randn(often, generator=g) + 1])
    rows = torch.cat([torch.zeros(rare, dtype=torch.long), torch.ones(often, dtype=torch.long)])
    one = torch.tensor([1, 1])
    none = torch.zeros(len(rows), dtype=torch.bool)

    def boundary(log_prior: torch.Tensor) -> float:
        w, b = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.LBFGS([w, b], max_iter=100)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = F.cross_entropy(x[:, None] * w + b + log_prior[:, 0], rows)
            value.backward()
            return value

        optimizer.step(loss)
        return ((b[0] - b[1]) / (w[1] - w[0])).item()

    assert boundary(empirical_log_prior(rows, none, 0 * one, one)) == pytest.approx(0, abs=0.1)
    assert boundary(uniform(one)) < -1


@pytest.mark.parametrize("prior", ["uniform", "empirical"])
def test_a_method_trains_with_the_prior_that_it_was_given(prior: str) -> None:
    model = make_method(
        small_params("method=ucir_dacr", f"mixture.prior={prior}"), torch.device("cpu")
    )
    first = small_session(1, [], [0, 1], [], each=6)
    model.begin(first)
    second = small_session(2, [0, 1], [1, 2], [0, 1], domain=1)
    model.begin(second)
    expected = uniform(torch.tensor([3, 6, 3]))
    if prior == "empirical":
        labels, memory = second.data.labels.tolist(), second.data.is_memory.tolist()
        expected = torch.zeros(3, 6)
        for row, (old, new) in enumerate([(3, 0), (3, 3), (0, 3)]):
            for k in range(old + new):
                shared = [
                    m == (k < old) or not (old and new)
                    for label, m in zip(labels, memory, strict=True)
                    if label == row
                ]
                sharing = (old if k < old else new) if old and new else old + new
                expected[row, k] = math.log(max(sum(shared), 1) / sharing)
    exists = torch.arange(6) < torch.tensor([3, 6, 3]).unsqueeze(1)
    assert isinstance(model.classifier, Ours)
    torch.testing.assert_close(model.classifier.log_prior[exists], expected[exists])


# -- classifiers with one prototype per class ---------------------------------------------------

HOSTS = ["replay", "icarl", "eeil", "ucir", "geodl", "der"]
WITH_SECOND_STAGE = ["eeil", "ucir", "geodl", "der"]


def in_second_session(name: str, *overrides: str) -> tuple[Method, Session, Batch]:
    """Classes of 2, 8 and 6 samples: exemplars alone, exemplars and new data, new data alone."""
    method = make_method(small_params(f"method={name}", "memory.size=20", *overrides), CPU)
    method.begin(small_session(1, [], [0, 1], []))
    session = small_session(2, [0, 1], [1, 2], [0, 1], domain=1)
    method.begin(session)
    disturb(method, seed=2)
    return method, session, whole_batch(session, method)


def slow_cross_entropy(logits: Tensor, labels: list[int], weights: list[float]) -> float:
    """The mean of −log (n_y exp(o_y) / Σ_c n_c exp(o_c))."""
    total = 0.0
    for scores, label in zip(logits.tolist(), labels, strict=True):
        shifted = [n * math.exp(o - max(scores)) for n, o in zip(weights, scores, strict=True)]
        total -= math.log(shifted[label] / sum(shifted))
    return total / len(labels)


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("prior", ["uniform", "empirical"])
def test_a_host_trains_with_the_frequencies_of_its_classes(name: str, prior: str) -> None:
    method, _, batch = in_second_session(name, f"options.prior={prior}")
    logits = logits_of(method, batch)
    labels = batch.labels.tolist()
    frequencies = [float(labels.count(row)) for row in range(3)]
    assert frequencies == [2, 8, 6]
    weights = frequencies if prior == "empirical" else [1.0] * 3
    expected = slow_cross_entropy(logits, labels, weights)
    assert method.losses(batch)["cross_entropy"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", WITH_SECOND_STAGE)
def test_on_balanced_data_the_prior_is_uniform_again(name: str) -> None:
    method, session, batch = in_second_session(
        name, "options.prior=empirical", "options.second_stage_epochs=1"
    )
    _, second = method.phases(session)
    temperature = method.options.temperature if name == "der" else 1.0
    logits = logits_of(method, batch) / temperature
    expected = slow_cross_entropy(logits, batch.labels.tolist(), [1.0] * 3)
    assert second.losses(batch)["cross_entropy"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("prior", "vanishes"), [("empirical", True), ("uniform", False)])
def test_a_classifier_that_knows_the_frequencies_alone_has_nothing_to_learn(
    prior: str, vanishes: bool
) -> None:
    """All logits 0: P(y|x) is the frequency of y, which no bias improves."""
    method, _, batch = in_second_session("replay", f"options.prior={prior}")
    assert isinstance(method.head, LinearHead)
    assert method.head.bias is not None
    with torch.no_grad():
        method.head.weight.zero_()
        method.head.bias.zero_()
    method.losses(batch)["cross_entropy"].backward()
    assert method.head.bias.grad is not None
    assert (method.head.bias.grad.abs().max().item() < 1e-7) == vanishes


def test_class_log_frequencies_by_hand() -> None:
    found = class_log_frequencies(torch.tensor([2, 0, 2, 2]), 4)
    assert found.tolist() == pytest.approx([0.0, 0.0, math.log(3), 0.0])


@pytest.mark.parametrize("name", [*HOSTS, "meta_dr"])
def test_inference_does_not_see_the_prior(name: str) -> None:
    method, session, batch = in_second_session(name, "options.prior=empirical")
    method.eval()
    features = method.session_features(session)
    method.exemplars(session, features)
    answered = method.answer(features)
    plain = method.classifier.probabilities(features)
    assert method.classifier.log_prior is not None
    method.classifier.log_prior = 50 * torch.eye(3)[1]
    again = method.answer(features)
    assert all(torch.equal(a, b) for a, b in zip(answered, again, strict=True))
    assert torch.equal(plain, method.classifier.probabilities(features))
    assert "log_prior" not in method.classifier.lasting()
    if name != "icarl":  # which answers by the nearest mean
        logits = logits_of(method, batch)
        torch.testing.assert_close(plain.double(), logits.softmax(1), rtol=1e-4, atol=1e-6)


def test_a_prior_of_a_softmax_is_refused_where_there_is_none() -> None:
    params = small_params(
        "method=icarl", "memory.size=20", "options.form=binary", "options.prior=empirical"
    )
    with pytest.raises(UserError, match=r"^options.prior=empirical .*; take one of them back$"):
        make_method(params, CPU)


@pytest.mark.parametrize("name", ["ucir", "geodl"])
def test_the_scale_starts_where_it_should_and_goes_on_from_there(name: str) -> None:
    method = make_method(small_params(f"method={name}", "options.scale=10.0"), CPU)
    assert isinstance(method.head, CosineHead)
    method.begin(small_session(1, [], [0, 1], []))
    assert float(method.head.scale.detach()) == 10
    with torch.no_grad():
        method.head.scale.fill_(7.5)
    method.begin(small_session(2, [0, 1], [1, 2], [0, 1], domain=1))
    assert float(method.head.scale.detach()) == 7.5
    assert method.head.scale.requires_grad
