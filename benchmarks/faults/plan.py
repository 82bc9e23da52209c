"""The rounds: which fault meets which command. All of it follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

METHODS = ("der_dacr", "ucir_dacr", "icarl", "finetune")
REAL = 0.15
"""The share of rounds in which the command that meets the fault is no fork, but started anew."""


@dataclass(frozen=True)
class Round:
    number: int
    kind: str
    command: str
    method: str
    real: bool
    seed: int

    def draws(self) -> random.Random:
        """What else is chosen: moments as fractions, files, sizes; always in the same order."""
        return random.Random(f"{self.seed}/{self.number}/details")


def rounds(seed: int, count: int, kinds: dict[str, tuple[str, ...]]) -> list[Round]:
    """``count`` rounds; every kind as often as the others, with one of its commands."""
    return [_round(seed, number, kinds) for number in range(1, count + 1)]


def _round(seed: int, number: int, kinds: dict[str, tuple[str, ...]]) -> Round:
    block, place = divmod(number - 1, len(kinds))
    order = sorted(kinds)
    random.Random(f"{seed}/{block}/order").shuffle(order)
    draw = random.Random(f"{seed}/{number}")
    kind = order[place]
    return Round(
        number,
        kind,
        command=draw.choice(kinds[kind]),
        method=draw.choice(METHODS),
        real=draw.random() < REAL,
        seed=seed,
    )
