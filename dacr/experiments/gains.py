"""What a gain rests on: the differences of paired experiments, and what chance alone would do.

Two experiments are a pair if they share benchmark, split and seed, and differ in the row alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

CONFIDENCE = 0.95
FEWEST_PAIRS = 6
"""Of a two-sided signed-rank test: with five pairs its smallest p is 1/16, which tells nothing."""

Values = Mapping[int, float]
"""seed → value"""


def deviation(values: Sequence[float]) -> float | None:
    """With n − 1; None with fewer than two."""
    return stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Gain:
    """The differences of a row from another one, seed by seed."""

    over: str
    """The key of the other row."""
    by_seed: Values

    @property
    def seeds(self) -> int:
        return len(self.by_seed)

    @property
    def mean(self) -> float:
        return fmean(self.by_seed.values())

    @property
    def deviation(self) -> float | None:
        return deviation([*self.by_seed.values()])

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean: Student's t for paired differences, with n − 1 degrees of freedom."""
        if self.deviation is None:
            return None
        from scipy.stats import t  # takes a second to load

        reach = float(t.ppf((1 + CONFIDENCE) / 2, self.seeds - 1))
        reach *= self.deviation / self.seeds**0.5
        return self.mean - reach, self.mean + reach

    @property
    def significant(self) -> bool | None:
        """Whether the interval leaves 0 out; None where there is no interval."""
        if self.interval is None:
            return None
        low, high = self.interval
        return not low <= 0 <= high


def gain_over(own: Values, hosts: Mapping[str, Values]) -> Gain | None:
    """The gain over the better of the hosts; None where none of them has a seed of ours."""
    pairs = {name: own.keys() & host.keys() for name, host in hosts.items()}
    pairs = {name: seeds for name, seeds in pairs.items() if seeds}
    if not pairs:
        return None
    # Hosts are compared on the same seeds; where they share none, each on its own.
    shared = frozenset[int].intersection(*map(frozenset, pairs.values()))
    means = {
        name: fmean(hosts[name][seed] for seed in (shared or seeds))
        for name, seeds in pairs.items()
    }
    best = max(means, key=means.__getitem__)
    return Gain(best, {seed: own[seed] - hosts[best][seed] for seed in sorted(pairs[best])})


@dataclass(frozen=True)
class RankTest:
    """Wilcoxon's signed-rank test of differences: are they above or below 0 by chance?"""

    pairs: int
    median: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < 1 - CONFIDENCE


def rank_test(differences: Sequence[float]) -> RankTest | None:
    """Two-sided; None with too few differences that are not 0."""
    if sum(value != 0 for value in differences) < FEWEST_PAIRS:
        return None
    from scipy.stats import wilcoxon

    p = float(wilcoxon(differences).pvalue)
    return RankTest(len(differences), median(differences), p)
