"""DomainNet (Peng et al., 2019), cleaned version: six domains, of whose 345 classes 100 are chosen.

A source is one domain, ``domainnet_<domain>``: its zip, which is never unpacked, and the official
lists of all six. The choice of classes needs the counts of all domains; with the lists beside every
zip each source knows it alone, and DVC's cache stores them once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import add
from pathlib import Path
from statistics import harmonic_mean
from typing import Any, Literal, Self

from pydantic import Field

from dacr.data.archives import open_zip, refuse_unsafe_name
from dacr.data.sources.base import PARTS, Part, Sample
from dacr.data.sources.options import Options, parse_options
from dacr.data.sources.upstream import Published, Upstream
from dacr.errors import UserError

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
NAMES = tuple(f"domainnet_{domain}" for domain in DOMAINS)
PAPER = {"train_images": 132_673, "smallest_pair": 52}  # Sec. 4.1, for 100 classes

Rule = Literal[
    "first_with_50",
    "smallest_domain",
    "total",
    "smallest_domain_with_test",
    "total_with_test",
    "geometric_mean",
    "harmonic_mean",
    "smallest_share",
]
Numbers = Sequence[int]
"""Images of a class, one number for each domain."""

ENOUGH = 50

RULES: Mapping[Rule, Callable[[Numbers, Numbers], tuple[float, ...]]] = {
    "first_with_50": lambda train, test: (min(*train, ENOUGH),),
    "smallest_domain": lambda train, test: (min(train), sum(train)),
    "total": lambda train, test: (sum(train),),
    "smallest_domain_with_test": lambda train, test: (min(map(add, train, test)), sum(train)),
    "total_with_test": lambda train, test: (sum(train) + sum(test), sum(train)),
    "geometric_mean": lambda train, test: (prod(train), sum(train)),  # its sixth power
    "harmonic_mean": lambda train, test: (harmonic_mean(train), sum(train)),
    "smallest_share": lambda train, test: (min(train) / max(sum(train), 1), sum(train)),
}
"""What a class is ranked by, of its training and its test images; then by its name.

``total`` is the literal reading of 'most images'; ``smallest_domain`` is what the paper's reason
asks for ('some domains contain only few images'). ``first_with_50`` takes the first classes of the
alphabet that have 50 training images in every domain, which comes nearest to the paper's figures
(docs/data.md). The others lie between, or count test images too.
"""


class DomainNetOptions(Options):
    """Which classes are kept: the first ``classes`` by ``class_rule``."""

    class_rule: Rule = "first_with_50"
    classes: int = Field(default=100, ge=1)


@dataclass(frozen=True)
class Listed:
    """A line of an official list: ``clipart/aircraft_carrier/clipart_001_000001.jpg 0``."""

    path: str
    name: str


def read_list(path: Path) -> list[Listed]:
    """An official list, in its order."""
    listed = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        image, _, label = line.strip().rpartition(" ")
        parts = image.split("/")
        if len(parts) != 3 or not label.isdigit():
            raise UserError(f"{path}:{number} is not 'domain/class/image label'; fetch it again")
        refuse_unsafe_name(path, image)
        listed.append(Listed(image, parts[1]))
    return listed


@dataclass(frozen=True)
class ListedImages:
    """How many images the official lists have of each class, by domain."""

    train: Mapping[str, Mapping[str, int]]
    test: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, folder: Path) -> Self:
        counts: dict[Part, dict[str, Counter[str]]] = {part: {} for part in PARTS}
        for part in PARTS:
            for domain in DOMAINS:
                for listed in read_list(folder / f"{domain}_{part}.txt"):
                    counts[part].setdefault(listed.name, Counter())[domain] += 1
        return cls(**counts)

    def numbers(self, name: str, part: Part) -> list[int]:
        own = getattr(self, part).get(name, {})
        return [own.get(domain, 0) for domain in DOMAINS]


def choose_classes(images: ListedImages, rule: Rule, n: int) -> list[str]:
    """The first ``n`` classes by ``rule``, in alphabetical order."""
    if n > len(images.train):
        raise UserError(f"{n} classes were asked for and DomainNet has {len(images.train)}")

    def rank(name: str) -> tuple[float, ...]:
        train, test = (images.numbers(name, part) for part in PARTS)
        return tuple(-value for value in RULES[rule](train, test))

    alphabet = sorted(images.train, key=lambda name: (name.casefold(), name))
    chosen = set(sorted(alphabet, key=rank)[:n])
    return [name for name in alphabet if name in chosen]


def choice_figures(images: ListedImages, n: int) -> dict[str, dict[str, int]]:
    """What each rule keeps, beside what the paper says it kept."""
    figures: dict[str, dict[str, int]] = {"paper": PAPER}
    for rule in RULES:
        chosen = choose_classes(images, rule, n)
        kept = [number for name in chosen for number in images.numbers(name, "train")]
        figures[rule] = {"train_images": sum(kept), "smallest_pair": min(kept)}
    return figures


class DomainNet(Upstream):
    """One domain, restricted to the chosen classes; a label is the rank of the class's name."""

    def __init__(
        self, name: str, options: DomainNetOptions, published: Published | None = None
    ) -> None:
        super().__init__(published)
        self.name, self._options = name, options
        self._domain = name.removeprefix("domainnet_")

    def counts(self, folder: Path) -> dict[Part, int]:
        """The lengths of the domain's own lists, all of whose images must be in the zip."""
        lists = {part: read_list(folder / f"{self._domain}_{part}.txt") for part in PARTS}
        listed = {image.path for images in lists.values() for image in images}
        with open_zip(folder / f"{self._domain}.zip", listed):
            return {part: len(images) for part, images in lists.items()}

    def class_names(self, folder: Path) -> list[str]:
        options = self._options
        return choose_classes(ListedImages.of(folder), options.class_rule, options.classes)

    def size(self, folder: Path) -> int:
        kept = set(self.class_names(folder))
        lists = (read_list(folder / f"{self._domain}_{part}.txt") for part in PARTS)
        return sum(image.name in kept for images in lists for image in images)

    def facts(self, folder: Path) -> dict[str, Any]:
        figures = choice_figures(ListedImages.of(folder), self._options.classes)
        chosen = {"class_rule": self._options.class_rule, "class_choice": figures}
        return super().facts(folder) | chosen

    def read(self, folder: Path) -> Iterator[Sample]:
        labels = {name: label for label, name in enumerate(self.class_names(folder))}
        with open_zip(folder / f"{self._domain}.zip") as archive:
            for part in PARTS:
                for image in read_list(folder / f"{self._domain}_{part}.txt"):
                    if image.name in labels:
                        content, label = archive.read(image.path), labels[image.name]
                        yield Sample(content, label, self._domain, part, image.path)


def make_source(name: str, options: Mapping[str, Any]) -> DomainNet:
    return DomainNet(name, parse_options(DomainNetOptions, name, options))
