"""A published set of which a benchmark may take a fixed sample, so that it runs on a CPU.

The sample is a rule and no file: of each class-domain pair the images whose ids have the smallest
SHA-256. The published files are checked by their checksums, so that everybody has the same images.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from dacr.data.sources.base import PARTS, Part, Sample
from dacr.data.sources.options import Options, by_hash
from dacr.data.sources.upstream import WHOLE, Published, Upstream
from dacr.errors import UserError

FIXED = "fixed sample of the published set"


class SampleSize(Options):
    """Images of each class-domain pair."""

    train: PositiveInt
    test: PositiveInt


class SampleOptions(Options):
    """How much of the published set is read; null: all. The sample of a mirror is read whole."""

    sample: SampleSize | None = None


def fixed_sample(samples: Iterable[Sample], size: SampleSize) -> dict[str, Part]:
    """The ids that are taken, with their parts."""
    pairs: dict[tuple[Part, int, str], list[str]] = {}
    for sample in samples:
        pairs.setdefault((sample.part, sample.label, sample.domain), []).append(sample.source_id)
    taken: dict[str, Part] = {}
    for (part, label, domain), ids in pairs.items():
        number = getattr(size, part)
        if len(ids) < number:
            raise UserError(
                f"class {label} of {domain} has {len(ids):,} {part} images, fewer than the"
                f" {number:,} of the sample; correct data.read_options"
            )
        taken |= dict.fromkeys(by_hash(ids)[:number], part)
    return taken


class Sampled(Upstream):
    """Reads a fixed sample of the published files where the options say so."""

    def __init__(
        self, published: Published | None = None, options: SampleOptions | None = None
    ) -> None:
        super().__init__(published)
        self._size = options.sample if options else None
        self._taken: dict[Path, dict[str, Part]] = {}

    @abstractmethod
    def read_all(self, folder: Path) -> Iterator[Sample]:
        """Every sample that was fetched to ``folder``, in a fixed order."""

    def taken(self, folder: Path) -> dict[str, Part] | None:
        """The ids of the fixed sample; None where everything is read."""
        if self._size is None or super().facts(folder).get("kind") != WHOLE:
            return None
        if folder not in self._taken:
            self._taken[folder] = fixed_sample(self.read_all(folder), self._size)
        return self._taken[folder]

    def read(self, folder: Path) -> Iterator[Sample]:
        taken = self.taken(folder)
        for sample in self.read_all(folder):
            if taken is None or sample.source_id in taken:
                yield sample

    def size(self, folder: Path) -> int | None:
        taken = self.taken(folder)
        return super().size(folder) if taken is None else len(taken)

    def facts(self, folder: Path) -> dict[str, Any]:
        facts, taken = super().facts(folder), self.taken(folder)
        if taken is None:
            return facts
        counts = Counter(taken.values())
        return facts | {"kind": FIXED, "counts": {part: counts[part] for part in PARTS}}
