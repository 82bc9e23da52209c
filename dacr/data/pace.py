"""When is an address too slow to wait for? A minimum rate over a window of time."""

from __future__ import annotations

from collections.abc import Callable

LEAST = 200_000  # bytes per second: CIFAR-100 in a quarter of an hour
WINDOW = 20.0  # seconds

Clock = Callable[[], float]


class Crawls(Exception):
    """This address sends, but so slowly that another one should be tried."""

    def __init__(self, rate: float) -> None:
        super().__init__(f"sends {in_words(rate)}")
        self.rate = rate


def in_words(rate: float) -> str:
    return f"{rate / 1e6:,.1f} MB/s" if rate >= 1e6 else f"{rate / 1e3:,.0f} kB/s"


class Pace:
    """Counts what one address sends; interruptions are part of its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began, self._came = clock, clock(), 0

    def step(self, amount: int, left: int | None) -> None:
        """``amount`` bytes came and ``left`` are missing: raise ``Crawls`` after a slow window.

        Not for what will be there within another window anyway.
        """
        self._came += amount
        elapsed = self._clock() - self._began
        if elapsed < WINDOW:
            return
        rate = self._came / elapsed
        if rate < LEAST and (left is None or left > rate * WINDOW):
            raise Crawls(rate)
        self._began, self._came = self._clock(), 0
