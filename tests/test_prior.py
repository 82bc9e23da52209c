"""The priors of L_inter: by hand, against a slow count, and what training with them is for."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dacr.learning.prior import empirical_log_prior, uniform_log_prior
from dacr.methods import make_method
from dacr.methods.parts.departures import Ours
from dacr.model.heads import MixtureHead, class_log_scores
from tests.learning import small_params, small_session

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
