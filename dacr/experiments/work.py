"""The work of an experiment, counted before it runs: passes, FLOPs, GPU memory and disk.

A pass is one image through one extractor. The parts of a method say how many they ask for
(`dacr.methods.parts.scale`); the schedule and the sizes of the memory say for how many images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dacr.config import Data, Params, load_params
from dacr.data.augmentation import make_augmentation
from dacr.data.benchmark import SUMMARY, open_summary
from dacr.data.restriction import limit_of
from dacr.data.shares import images_by_session
from dacr.data.splits import make_schedule
from dacr.data.streams import Pair
from dacr.errors import UserError
from dacr.experiments.records import Record
from dacr.experiments.tables import CONF, read_yaml
from dacr.learning.memory import class_quota
from dacr.methods import parts_of
from dacr.methods.parts.method import Parts
from dacr.methods.parts.scale import Scale
from dacr.model.flops import activation_bytes, forward_flops, weight_bytes
from dacr.sessions.places import BENCHMARK

BACKWARD = 2
"""What going backward through a network costs, in passes."""
PARTS = ("train", "test")


@dataclass(frozen=True)
class Passes:
    trained: int
    """Images forward and backward through the extractor that is trained."""
    frozen: int
    """Images forward through any extractor without gradient."""

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.trained + other.trained, self.frozen + other.frozen)

    @property
    def forward(self) -> int:
        """All of it in forward passes."""
        return (1 + BACKWARD) * self.trained + self.frozen


def passes_of(parts: Parts, scale: Scale) -> Passes:
    """Of one session: learning it, the features of D̃_t afterwards, and all predictions."""
    representation, classifier = parts.representation, parts.classifier
    extractors = representation.extractors(scale.index)
    steps = parts.method.losses_per_step * (scale.trained + classifier.retrained(scale))
    teachers = representation.teachers(scale, classifier.needs_old_features)
    frozen = (
        scale.teacher(teachers, steps)
        + classifier.teacher_passes(scale, extractors)
        + representation.session_passes(scale, classifier.session_views(scale))
        + representation.feature_passes(scale, classifier.looked_at(scale))
        + extractors * (scale.images + scale.test)
    )
    return Passes(steps, frozen)


# -- how many images --------------------------------------------------------------------------


@dataclass(frozen=True)
class Images:
    """The number of images of each class-domain pair."""

    train: dict[Pair, int]
    test: dict[Pair, int]


def images_of(data: Data, records: Iterable[Record]) -> Images:
    """From the benchmark in data/ if it is this one, an earlier experiment, or what is published.

    The last two know totals only: classes are taken to be equally large there.
    """
    found = _built(data) or _measured(data, records) or _published(data)
    if found is None:
        raise UserError(
            f"nobody knows how many images {data.benchmark} has; "
            f"`dvc exp run -S benchmark={data.benchmark}` builds it"
        )
    return found


def _built(data: Data) -> Images | None:
    if not (BENCHMARK / SUMMARY).exists() or load_params().data != data:
        return None
    pairs = open_summary(BENCHMARK / SUMMARY)["counts"]["pairs"]
    train, test = (
        {(own["class"], own["domain"]): int(own[part]) for own in pairs} for part in PARTS
    )
    return Images(train, test)


def _measured(data: Data, records: Iterable[Record]) -> Images | None:
    like = (data.benchmark, data.per_pair, data.validation)
    for record in records:
        setting = record.setting
        if (record.benchmark, setting.get("per_pair"), setting.get("validation")) == like:
            counts = record.data["counts"]
            train, test = (_spread([1.0] * len(data.domains), counts[part], data) for part in PARTS)
            return Images(train, test)
    return None


def _published(data: Data) -> Images | None:
    """By `counts` in conf/sources.yaml and `data.paper`, less what the parameters leave out."""
    sources = read_yaml(CONF / "sources.yaml")["sources"]
    counts = [
        own
        for name in data.sources
        if (own := _sampled(data, name) or sources.get(name, {}).get("counts"))
    ]
    if len(counts) < len(data.sources):
        return None
    train, test = ([float(own[part]) for own in counts] for part in PARTS)
    paper = data.paper or {}
    total = paper.get("train", sum(train))
    tested = paper.get("test", sum(test) * total / sum(train))
    found = Images(_spread(train, total, data), _spread(test, tested, data))
    return _restricted(found, data)


def _sampled(data: Data, source: str) -> dict[str, int] | None:
    """What a fixed sample of the published files has (dacr/data/sources/sampled.py)."""
    sample = data.read_options.get(source, {}).get("sample")
    pairs = data.classes * len(data.domains) // len(data.sources)
    return {part: sample[part] * pairs for part in PARTS} if sample else None


def _spread(sources: list[float], total: float, data: Data) -> dict[Pair, int]:
    """``total`` images over all pairs; a source that is a domain has its share of them."""
    domains = len(data.domains)
    shares = sources if len(sources) == domains else [1.0] * domains
    return {
        (c, z): round(total * share / sum(shares) / data.classes)
        for z, share in enumerate(shares)
        for c in range(data.classes)
    }


def _restricted(images: Images, data: Data) -> Images:
    train, test = dict(images.train), dict(images.test)
    limit = limit_of(data)
    for pair, number in images.train.items():
        if data.validation:
            test[pair] = max(1, round(number * data.validation))
            train[pair] = number - test[pair]
        if limit and (most := limit(data.domains[pair[1]])) is not None:
            train[pair] = min(train[pair], most)
    return Images(train, test)


# -- sessions ---------------------------------------------------------------------------------


def scales(params: Params, images: Images) -> Iterator[Scale]:
    """All sessions: what each brings, with the memory that the one before it left."""
    data = params.data
    classes = data.class_names or [str(number) for number in range(data.classes)]
    schedule = make_schedule(params.schedule, classes, data.domains)
    options = parts_of(params.method).options(params)
    augmented = make_augmentation(params.augmentation).random
    memory: Counter[int] = Counter()
    seen: set[Pair] = set()
    brought = images_by_session(schedule, images.train)
    for index in range(1, len(params.schedule.sessions) + 1):
        support = memory.copy()
        for pair, number in brought[index].items():
            support[pair[0]] += number
            seen.add(pair)
        test = sum(images.test[pair] for pair in seen)
        held = [number for number in support.values() if number]
        yield Scale(
            index=index,
            images=sum(held),
            balanced=len(held) * min(held),
            test=test,
            params=params,
            options=options,
            augmented=augmented,
        )
        quota = class_quota(params.memory.size, len(support))
        memory = Counter({row: min(quota, number) for row, number in support.items()})


# -- an experiment ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What an experiment takes, whatever device it runs on."""

    backbone: str
    precision: str
    flops: float
    memory: float
    """Bytes on the GPU in the last session, about: networks, optimiser, activations, images."""
    disk: float
    """Bytes in DVC's cache, about: each extractor of each session once."""


def work_of(params: Params, images: Images) -> Work:
    parts, backbone = parts_of(params.method), params.model.backbone
    sessions = list(scales(params, images))
    forward = sum(passes_of(parts, scale).forward for scale in sessions)
    weights = weight_bytes(backbone)
    return Work(
        backbone,
        params.train.precision,
        float(forward * forward_flops(backbone, params.augmentation.input_size)),
        max(_memory(params, parts, scale) for scale in sessions),
        (len(sessions) + 1) * weights,  # and the one before the first session
    )


def _memory(params: Params, parts: Parts, scale: Scale) -> float:
    """All extractors and teachers, gradients and momentum, activations, resident images."""
    weights = weight_bytes(params.model.backbone)
    extractors = parts.representation.extractors(scale.index)
    teachers = parts.representation.teachers(scale, parts.classifier.needs_old_features)
    copies = max(extractors, 1 + teachers)  # DER's frozen extractors are its teacher
    copies += extractors if parts.classifier.teacher_passes(scale, extractors) else 0
    kept = activation_bytes(params.model.backbone, params.augmentation.input_size)
    half = 0.5 if params.train.precision == "bf16" else 1.0
    steps = parts.method.losses_per_step * params.train.batch_size * kept * half
    return (copies + 2) * weights + steps + scale.images * 3 * params.data.image_size**2
