"""Typed parameters: ``params.yaml`` is read once, checked as a whole, and never changed.

``params.yaml`` is composed from ``conf/`` by Hydra (``dvc exp run -S …`` or ``make params``). A
wrong name, type or range, or sections that do not belong together, is one line before any work.
It is read by the YAML library that DVC reads it with, so that a stage runs with the very values
that DVC compares and writes to ``dvc.lock``.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from functools import lru_cache, reduce
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from dacr.errors import UserError
from dacr.names import one_form

RECOMPOSE = 'recompose it with `make params ARGS="benchmark=… split=… method=…"`'


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
"""The kinds of values. None is converted: DVC compares what stands in the file, so ``'10'``, ``10``
and ``10.0`` would be three experiments for DVC and one for the stages."""

HUGE, TINY = 1_000_000, 1e-6
"""The largest weight and the smallest divisor. Beyond them a loss of 32 bits overflows at any
learning rate; within them a lower rate cures a loss that is not finite."""
Weight = Annotated[Number, Field(ge=0, le=HUGE)]
Level = Annotated[Number, Field(ge=-HUGE, le=HUGE)]
Divisor = Annotated[Number, Field(ge=TINY, le=HUGE)]

MOST_THREADS = 1024
"""More than a machine has cores; OpenMP ends a process that it cannot start the threads for."""
MOST_COMPONENTS = 10_000
"""The paper has 30; with so many, the means of 100 classes and 512 features fill 2 GB."""


class Section(BaseModel):
    """A part of the parameters: immutable, and closed to names that do not exist."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class OnlyGiven(Section):
    """A section that is written without the keys it was not given: other choices have others."""

    @model_serializer(mode="wrap")
    def _given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = write(self)
        return {key: value for key, value in content.items() if key in self.model_fields_set}


DuplicatePolicy = Literal["warn", "refuse", "drop"]


class Data(Section):
    """What the benchmark is made of (Sec. 4.1): its sources, classes and domains."""

    benchmark: str
    sources: list[str] = Field(min_length=1)
    """Their names, in the order of their images: a further one comes last and moves no image."""
    source_options: dict[str, dict[str, Any]] = {}
    """What a source needs to fetch; a change fetches again."""
    read_options: dict[str, dict[str, Any]] = {}
    """What a source needs besides to read what it fetched."""
    classes: Whole = Field(ge=1, le=HUGE)
    class_names: list[str] | None = None
    domains: list[str] = Field(min_length=1)
    image_size: Whole = Field(ge=8, le=512)
    paper: dict[str, Whole] | None = None
    """The paper's own counts, to stand beside ours."""
    per_pair: PositiveInt | dict[str, PositiveInt] | None = None
    """At most so many training images of each class-domain pair; by domain: of pairs with it."""
    validation: Number = Field(default=0.0, ge=0.0, lt=1.0)
    duplicates: DuplicatePolicy = "warn"
    """What becomes of images that are both to train and to test, or have two labels."""

    @model_validator(mode="after")
    def _names_match(self) -> Self:
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise ValueError(f"has {len(self.class_names)} class_names for {self.classes} classes")
        for kind, names in (("class_names", self.class_names or []), ("domains", self.domains)):
            if twice := [name for name, n in Counter(map(one_form, names)).items() if n > 1]:
                raise ValueError(f"names {twice[0]!r} twice in {kind}")
        limited = self.per_pair if isinstance(self.per_pair, dict) else {}
        known = {one_form(domain) for domain in self.domains}
        if unknown := sorted(name for name in limited if one_form(name) not in known):
            raise ValueError(
                f"limits per_pair of {', '.join(unknown)}, but its domains are "
                f"{', '.join(self.domains)}"
            )
        return self


class Facts(OnlyGiven):
    """The benchmark's figures that splits and methods are composed from; no stage reads them."""

    nc_sessions: Whole = Field(ge=1)
    ncd_new_classes: list[Whole] = Field(min_length=1)
    domain_order: Literal["listed", "shuffled"]
    vil_groups: Whole | None = Field(default=None, ge=1)
    mixed_sessions: Whole | None = Field(default=None, ge=1)
    """Of the splits uil and repeat. (Experiments of older versions have neither.)"""
    lambda_base: Weight
    """The weight of UCIR's less-forget loss."""
    geodesic_lambda: Weight | None = None
    """The weight of GeoDL's loss. (Experiments of older versions have none.)"""
    lambda_epochs: Weight
    warmup_epochs: Whole = Field(ge=0)
    second_stage_epochs: Whole = Field(ge=0)
    second_stage_temperature: Divisor
    """These three are DER's; the epochs make up for balanced sets of few batches."""
    fine_tune_epochs: Whole = Field(ge=0)
    """The second stage of UCIR and GeoDL."""


class Link(Section):
    """One session of the chain: its number and the name of the one before."""

    index: Whole = Field(ge=1)
    prev: str


class Schedule(OnlyGiven):
    """The rule that spreads the class-domain pairs over sessions, and the resulting chain."""

    split: str
    rule: Literal["nc", "nd", "ncd", "vil", "uil", "blurry", "repeat", "table"]
    seed: Whole = Field(ge=0, lt=2**32)
    domain_order: Literal["listed", "shuffled"] = "listed"
    domains_per_session: Whole | list[Whole] | None = None
    """How many new domains of each class a session brings (rule nd)."""
    new_classes: list[Whole] | None = None
    class_groups: Whole | None = None
    """Groups of classes; a session is one of them in one domain (rule vil)."""
    leak: Number | None = Field(default=None, gt=0, lt=1)
    """The share of a class's images that leaves its session (rule blurry) …"""
    leaks_into: Whole | None = None
    """… for so many other sessions."""
    disjoint: Number | None = Field(default=None, ge=0, le=1)
    """The share of the classes that do not leak."""
    times: Whole | None = None
    """In how many sessions each pair comes (rule repeat)."""
    table: str | None = None
    sessions: dict[str, Link] = Field(min_length=1)
    last: str


class Augmentation(Section):
    """How an image enters the network (Appendix A)."""

    name: Literal["none", "crop_flip_jitter", "resized_crop_flip"]
    input_size: Whole = Field(ge=8, le=512)
    mean: tuple[Level, Level, Level]
    std: tuple[Divisor, Divisor, Divisor]
    views: Whole | None = Field(default=None, ge=1)
    """Random training views of an image in a session; None: a new one in every epoch."""


class Model(Section):
    """The feature extractor F (Sec. 4.2)."""

    backbone: str


class Train(Section):
    """SGD as in Sec. 4.2."""

    epochs: Whole = Field(ge=1, le=HUGE)
    batch_size: Whole = Field(ge=2, le=HUGE)
    lr: Number = Field(gt=0, le=HUGE)
    schedule: Literal["multistep", "cosine"]
    milestones: list[Whole] = []
    gamma: Number = Field(default=0.1, gt=0, le=1)
    momentum: Number = Field(ge=0, lt=1)
    weight_decay: Weight
    precision: Literal["fp32", "tf32", "bf16"]
    """Of the extractors: 32 bits, Ampere's TF32 (fewer bits of mantissa), or bfloat16."""
    compile: Flag = False
    """``torch.compile`` for the extractors: faster where launching kernels takes longer than
    running them. It changes the last bits."""
    threads: Whole = Field(ge=1, le=MOST_THREADS)
    portable: Flag = False
    """The same bits on every x86-64 processor with AVX2 (dacr/runtime/portable.py)."""


class Loss(Section):
    """The coefficients of L_overall = L_inter + λ·L_intra + β·L_dis + η·L_reg (Eq. 14)."""

    lambda_: Weight = Field(alias="lambda")
    lambda_epochs: Weight
    beta: Weight
    eta: Weight
    distillation: Literal["new_old", "old_new"]


class Mixture(Section):
    """The class representation: a vMF mixture that grows by m components per session."""

    components: Whole = Field(ge=1, le=MOST_COMPONENTS)
    kappa: Number = Field(gt=0, le=HUGE)
    kappa_learnable: Flag
    initialisation: Literal["random_vector", "random_sample", "mean_perturbed", "anchored"]
    perturbation: Weight
    prior: Literal["uniform", "empirical"]
    candidates: Literal["all", "same_age"]
    inference: Literal["nearest_component", "posterior"]
    normalisation: Literal["whole", "blocks"]


class Reduction(Section):
    """Hierarchical merging of components nearer than δ."""

    enabled: Flag
    delta: Weight
    distance: Literal["euclidean", "cosine", "angle"]
    merged_mean: Literal["features", "learned"]
    every_group: Flag
    """Whether components that were not merged get the mean of their features, too (Eq. 4)."""
    drop_inherited: Flag
    """Whether an inherited component is dropped when no exemplar of it is left."""


class Memory(Section):
    """The exemplar memory M: its size B and how exemplars are chosen (Sec. 3.4)."""

    size: Whole = Field(ge=0, le=10**9)
    strategy: Literal["random", "herding", "bilevel"]
    inside: Literal["random", "herding"]


class Fetch(Section):
    """How sources are brought here. Only ``fetch`` reads it: what came decides about the rest."""

    mirror: str | None = None


class Params(Section):
    """Everything that can change a result."""

    seed: Whole = Field(ge=0)
    benchmark: str
    split: str
    method: str
    reading: str
    """How "ours" reads the paper; no stage asks for the name."""
    options: dict[str, Any]
    data: Data
    facts: Facts
    schedule: Schedule
    augmentation: Augmentation
    model: Model
    train: Train
    loss: Loss
    mixture: Mixture
    reduction: Reduction
    memory: Memory
    fetch: Fetch

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Sections that were composed for another choice are a hand edit gone wrong."""
        for name in ("options", "data.source_options", "data.read_options"):
            _refuse_overflow(name, reduce(getattr, name.split("."), self))
        if self.schedule.split != self.split:
            raise ValueError(
                f"says split {self.split!r} but its schedule is {self.schedule.split!r}"
            )
        if self.data.benchmark != self.benchmark:
            raise ValueError(
                f"says benchmark {self.benchmark!r} but its data section is {self.data.benchmark!r}"
            )
        chain = {f"{t:02d}": (t, f"{t - 1:02d}") for t in range(1, len(self.schedule.sessions) + 1)}
        if {k: (s.index, s.prev) for k, s in self.schedule.sessions.items()} != chain:
            raise ValueError("has a broken chain in schedule.sessions")
        if self.schedule.last != max(chain):
            raise ValueError("has a schedule.last that is not the last of schedule.sessions")
        return self


def _refuse_overflow(name: str, value: object) -> None:
    """Options are checked by the method or source that they belong to, but not for this."""
    match value:
        case dict():
            for key, own in value.items():
                _refuse_overflow(f"{name}.{key}", own)
        case list():
            for own in value:
                _refuse_overflow(name, own)
        case float() if not abs(value) <= HUGE:  # which NaN is not either
            raise ValueError(f"has {name}: {value}; numbers up to {HUGE:,} work")


def _name(location: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in location)


def explain(error: ValidationError, where: str, advice: str = RECOMPOSE) -> str:
    """The first thing that is wrong, as one line."""
    first = error.errors(include_url=False)[0]
    name = _name(first["loc"])
    match first["type"]:
        case "extra_forbidden":
            return f"{where}: unknown parameter {name!r}; remove it or correct its name"
        case "missing":
            return f"{where}: parameter {name!r} is missing; {advice}"
        case "value_error":
            subject = f"{name} " if name else ""
            return f"{where}: {subject}{first['msg'].removeprefix('Value error, ')}; {advice}"
        case _:
            message = first["msg"][:1].lower() + first["msg"][1:]
            return f"{where}: {name}: {message} (it is {first['input']!r})"


def parse_yaml(content: bytes | str) -> Any:
    """YAML as DVC reads it; a ValueError says in one line why it cannot be read.

    DVC reads YAML 1.2 (ruamel.yaml), in which ``010`` is 10, ``1e-05`` a number, ``on`` and
    ``1:30`` are text, and a key that stands twice is an error. PyYAML reads 1.1: 8, text, true, 90,
    and the last of the two.
    """
    try:
        return deepcopy(_parsed(content))
    except RecursionError:  # by the parser, or by the copy of what it can read
        raise ValueError("it is nested too deeply") from None


@lru_cache(maxsize=64)
def _parsed(content: bytes | str) -> Any:
    """Each text once: without its C parser ruamel.yaml takes a second for a large dvc.lock."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        return YAML(typ="safe").load(content)
    except RecursionError:
        raise  # which parse_yaml tells
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem or error.context}") from None
    except Exception as error:  # ruamel raises also IndexError and KeyError
        if "integer string conversion" in str(error):
            raise ValueError("a number has too many digits") from None
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check ``params.yaml``."""
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; compose it with `make params`") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid YAML ({error}); {RECOMPOSE}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold parameters; {RECOMPOSE}")
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise UserError(explain(error, str(path))) from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; {RECOMPOSE}") from None
