"""A scenario: sessions in their order, each with the images to train on and to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from dacr.data.benchmark import Benchmark
from dacr.data.session_table import read_schedule, read_session, session_file
from dacr.data.splits import SCHEDULE
from dacr.errors import UserError

Transform = Callable[[Image.Image], Any]


class Images(Dataset[tuple[Any, ...]]):
    """Labelled images: ``(image, label)``, and with domains ``(image, label, domain)``.

    An image is a float tensor [3, height, width] in [0, 1]. A ``transform`` gets the PIL image
    instead, as in torchvision's data sets, and what it returns is the image.
    """

    def __init__(
        self,
        images: NDArray[np.uint8],
        table: pd.DataFrame,
        domains: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self._images, self.transform = images, transform
        self.ids: NDArray[np.int64] = table["id"].to_numpy(np.int64, copy=True)
        """The row of each image in ``images.npy`` of the benchmark."""
        self.labels: NDArray[np.int64] = table["label"].to_numpy(np.int64, copy=True)
        self.domains: NDArray[np.int64] | None = (
            table["domain"].to_numpy(np.int64, copy=True) if domains else None
        )

    @property
    def targets(self) -> list[int]:
        """The labels under the name that torchvision and its users have for them."""
        return [int(label) for label in self.labels]

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """All images at once, in memory: uint8 [N, height, width, 3]."""
        return np.asarray(self._images[self.ids])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        row, label = self._images[self.ids[number]], int(self.labels[number])
        if self.transform:
            image = self.transform(Image.fromarray(np.asarray(row)))
        else:
            image = torch.from_numpy(row.transpose(2, 0, 1) / np.float32(255))
        return (image, label) if self.domains is None else (image, label, int(self.domains[number]))

    def __getstate__(self) -> dict[str, Any]:
        """Workers of a DataLoader get the name of the file, not all of its images."""
        images = self._images
        where = images.filename if isinstance(images, np.memmap) else images
        return self.__dict__ | {"_images": where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not isinstance(self._images, np.ndarray):
            self._images = np.load(self._images, mmap_mode="r")


class Session:
    """What one session brings. It is numbered from 1, as in the paper."""

    def __init__(self, scenario: Scenario, index: int) -> None:
        self._scenario, self.index = scenario, index

    def __repr__(self) -> str:
        return f"<session {self.index} of {len(self._scenario)}, classes {self.classes}>"

    @property
    def classes(self) -> list[int]:
        """The classes in the training images of this session."""
        return self._labels(self._brought)

    @property
    def new_classes(self) -> list[int]:
        """Those of them that no earlier session brought."""
        return self._labels(self._brought[self._brought["new_class"] == 1])

    @property
    def seen_classes(self) -> list[int]:
        """The classes of this session and all before it."""
        schedule = self._scenario.schedule
        return self._labels(schedule[schedule["session"] <= self.index])

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The (class, domain) pairs of the training images; a learner must not know them."""
        return list(self._brought[["class", "domain"]].itertuples(index=False, name=None))

    def train(self, domains: bool = False, transform: Transform | None = None) -> Images:
        """D_t: the training images of this session, without their domains unless asked for."""
        return self._scenario.images(self._part("train"), domains, transform)

    def test(
        self, seen: bool = True, domains: bool = False, transform: Transform | None = None
    ) -> Images:
        """The test images of every pair seen so far; ``seen=False``: of this session's pairs."""
        table = self._part("test")
        if not seen:
            pairs = pd.DataFrame(self.pairs, columns=["label", "domain"])
            table = table.merge(pairs, on=["label", "domain"]).sort_values("id", ignore_index=True)
        return self._scenario.images(table, domains, transform)

    @cached_property
    def table(self) -> pd.DataFrame:
        """All images of the session: id, label, domain, part, pixels."""
        return self._scenario.read_session(self.index)

    @property
    def _brought(self) -> pd.DataFrame:
        schedule = self._scenario.schedule
        return schedule[schedule["session"] == self.index]

    def _labels(self, rows: pd.DataFrame) -> list[int]:
        return sorted({int(label) for label in rows["class"]})

    def _part(self, part: str) -> pd.DataFrame:
        return self.table[self.table["part"] == part].reset_index(drop=True)


class Scenario(Sequence[Session]):
    """The sessions of a benchmark in their order: ``for session in scenario``."""

    def __init__(self, tables: Path, benchmark: Path, split: str) -> None:
        self.folder, self.split = tables, split
        self.schedule = read_schedule(tables / SCHEDULE)
        """Which class-domain pairs each session brings: session, class, domain, new_class."""
        self._refuse_missing()
        opened = Benchmark.open(benchmark)
        self.benchmark, self.classes, self.domains = opened.name, opened.classes, opened.domains
        self.image_size = opened.image_size
        self.pixels: NDArray[np.uint8] = opened.images
        """All images of the benchmark, memory-mapped: [N, height, width, 3]."""
        self.table: pd.DataFrame = opened.index
        """What each of them is: id, label, domain, part, source_id, pixels."""

    def __repr__(self) -> str:
        size = f"{len(self.classes)} classes, {len(self.domains)} domains"
        return f"<{self.benchmark} {self.split}: {len(self)} sessions, {size}>"

    def __len__(self) -> int:
        return int(self.schedule["session"].max())

    @overload
    def __getitem__(self, number: int) -> Session: ...

    @overload
    def __getitem__(self, number: slice) -> list[Session]: ...

    def __getitem__(self, number: int | slice) -> Session | list[Session]:
        """As in a list: the first session is ``scenario[0]``, and its ``index`` is 1."""
        if isinstance(number, slice):
            return [self[place] for place in range(len(self))[number]]
        return Session(self, range(1, len(self) + 1)[number])

    def __iter__(self) -> Iterator[Session]:
        return (self[place] for place in range(len(self)))

    def images(
        self, table: pd.DataFrame, domains: bool = False, transform: Transform | None = None
    ) -> Images:
        """The images of any table with the columns id, label and domain."""
        return Images(self.pixels, table, domains, transform)

    def read_session(self, index: int) -> pd.DataFrame:
        """The table of a session, whose images are those of the benchmark."""
        path = session_file(self.folder, f"{index:02d}")
        table = read_session(path)
        known = self.table["pixels"].reindex(table["id"])
        if not (known.to_numpy() == table["pixels"].to_numpy()).all():
            raise UserError(
                f"{path} lists other images than the benchmark beside it; make both anew "
                "(`dvc repro split`)"
            )
        return table

    def to_avalanche(self, domains: bool = False) -> Any:
        """The same sessions as a benchmark of Avalanche, with the streams train, test and seen."""
        from dacr.scenarios.exports.peers import avalanche_benchmark

        return avalanche_benchmark(self, domains)

    def to_continuum(self, transformations: Any = None) -> tuple[Any, Any, Any]:
        """The same sessions as scenarios of continuum: train, test and seen."""
        from dacr.scenarios.exports.peers import continuum_scenarios

        return continuum_scenarios(self, transformations)

    def _refuse_missing(self) -> None:
        for t in range(1, len(self) + 1):
            if not (path := session_file(self.folder, f"{t:02d}")).is_file():
                raise UserError(f"{path} is missing; run `dvc repro split` in its project")
