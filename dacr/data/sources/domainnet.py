"""DomainNet (Peng et al., 2019), cleaned version: six domains, of whose 345 classes 100 are chosen.

A source is one domain, ``domainnet_<domain>``: its zip, which is never unpacked, its official
lists, and the training lists of the other five. The choice of classes needs the counts of all
domains; with the lists beside every zip each source knows it alone, and DVC's cache stores them
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dacr.data.archives import open_zip, refuse_unsafe_name
from dacr.data.sources.base import PARTS, Part, Sample
from dacr.data.sources.options import Options, parse_options
from dacr.data.sources.upstream import Published, Upstream
from dacr.errors import UserError

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
NAMES = tuple(f"domainnet_{domain}" for domain in DOMAINS)
PAPER = {"train_images": 132_673, "smallest_pair": 52}  # Sec. 4.1, for 100 classes

Rule = Literal["smallest_domain", "total"]
RULES: tuple[Rule, ...] = ("smallest_domain", "total")
Counts = Mapping[str, Mapping[str, int]]  # class → domain → training images


class DomainNetOptions(Options):
    """Which classes are kept: the ``classes`` that have most images by ``class_rule``."""

    class_rule: Rule = "smallest_domain"
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


def training_counts(folder: Path) -> dict[str, Counter[str]]:
    """Training images of every class in every domain, by the official lists."""
    counts: dict[str, Counter[str]] = {}
    for domain in DOMAINS:
        for listed in read_list(folder / f"{domain}_train.txt"):
            counts.setdefault(listed.name, Counter())[domain] += 1
    return counts


def choose_classes(counts: Counts, rule: Rule, n: int) -> list[str]:
    """The ``n`` classes with most training images, in alphabetical order.

    ``smallest_domain`` ranks a class by the domain in which it has fewest images, as the paper's
    reason asks ('some domains contain only few images'); ``total`` by all its images, the literal
    reading. Ties go to the class with more images in all, then to the alphabetically first.
    """
    if n > len(counts):
        raise UserError(f"{n} classes were asked for and DomainNet has {len(counts)}")

    def rank(name: str) -> tuple[int, int, str]:
        images = [counts[name].get(domain, 0) for domain in DOMAINS]
        return (-min(images) if rule == "smallest_domain" else 0, -sum(images), name)

    return sorted(sorted(counts, key=rank)[:n], key=lambda name: (name.casefold(), name))


def choice_figures(counts: Counts, n: int) -> dict[str, dict[str, int]]:
    """What each rule keeps, beside what the paper says it kept."""
    figures: dict[str, dict[str, int]] = {"paper": PAPER}
    for rule in RULES:
        kept = [
            counts[name].get(domain, 0)
            for name in choose_classes(counts, rule, n)
            for domain in DOMAINS
        ]
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
        return choose_classes(training_counts(folder), options.class_rule, options.classes)

    def size(self, folder: Path) -> int:
        kept = set(self.class_names(folder))
        lists = (read_list(folder / f"{self._domain}_{part}.txt") for part in PARTS)
        return sum(image.name in kept for images in lists for image in images)

    def facts(self, folder: Path) -> dict[str, Any]:
        figures = choice_figures(training_counts(folder), self._options.classes)
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
