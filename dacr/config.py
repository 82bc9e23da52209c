"""Typed parameters: ``params.yaml`` is read once, checked as a whole, and never changed.

``params.yaml`` is composed from ``conf/`` by Hydra (``dvc exp run -S …`` or ``make params``). A
wrong name, type or range, or sections that do not belong together, is one line before any work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

import yaml
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

RECOMPOSE = 'recompose it with `make params ARGS="benchmark=… split=… method=…"`'


class Section(BaseModel):
    """A part of the parameters: immutable, and closed to names that do not exist."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class OnlyGiven(Section):
    """A section that is written without the keys it was not given: other choices have others."""

    @model_serializer(mode="wrap")
    def _given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = write(self)
        return {key: value for key, value in content.items() if key in self.model_fields_set}


class Data(Section):
    """What the benchmark is made of (Sec. 4.1): its sources, classes and domains."""

    benchmark: str
    sources: list[str] = Field(min_length=1)
    """Their names, in the order of their images: a further one comes last and moves no image."""
    source_options: dict[str, dict[str, Any]] = {}
    """What a source needs to fetch; a change fetches again."""
    read_options: dict[str, dict[str, Any]] = {}
    """What a source needs besides to read what it fetched."""
    classes: int = Field(ge=1)
    class_names: list[str] | None = None
    domains: list[str] = Field(min_length=1)
    image_size: int = Field(ge=8, le=512)
    paper: dict[str, int] | None = None
    """The paper's own counts, to stand beside ours."""
    per_pair: PositiveInt | dict[str, PositiveInt] | None = None
    """At most so many training images of each class-domain pair; by domain: of pairs with it."""
    validation: float = Field(default=0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _names_match(self) -> Self:
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise ValueError(f"has {len(self.class_names)} class_names for {self.classes} classes")
        limited = self.per_pair if isinstance(self.per_pair, dict) else {}
        if unknown := sorted(limited.keys() - set(self.domains)):
            raise ValueError(
                f"limits per_pair of {', '.join(unknown)}, but its domains are "
                f"{', '.join(self.domains)}"
            )
        return self


class Facts(OnlyGiven):
    """The benchmark's figures that splits and methods are composed from; no stage reads them."""

    nc_sessions: int = Field(ge=1)
    ncd_new_classes: list[int] = Field(min_length=1)
    domain_order: Literal["listed", "shuffled"]
    vil_groups: int | None = Field(default=None, ge=1)
    mixed_sessions: int | None = Field(default=None, ge=1)
    """Of the splits uil and repeat. (Experiments of older versions have neither.)"""
    lambda_base: float = Field(ge=0)
    lambda_epochs: float = Field(ge=0)
    warmup_epochs: int = Field(ge=0)
    second_stage_epochs: int = Field(ge=0)
    second_stage_temperature: float = Field(gt=0)
    """These three are DER's; the epochs make up for balanced sets of few batches."""
    fine_tune_epochs: int = Field(ge=0)
    """The second stage of UCIR and GeoDL."""


class Link(Section):
    """One session of the chain: its number and the name of the one before."""

    index: int = Field(ge=1)
    prev: str


class Schedule(OnlyGiven):
    """The rule that spreads the class-domain pairs over sessions, and the resulting chain."""

    split: str
    rule: Literal["nc", "nd", "ncd", "vil", "uil", "blurry", "repeat", "table"]
    seed: int = Field(ge=0, lt=2**32)
    domain_order: Literal["listed", "shuffled"] = "listed"
    domains_per_session: int | list[int] | None = None
    """How many new domains of each class a session brings (rule nd)."""
    new_classes: list[int] | None = None
    class_groups: int | None = None
    """Groups of classes; a session is one of them in one domain (rule vil)."""
    leak: float | None = Field(default=None, gt=0, lt=1)
    """The share of a class's images that leaves its session (rule blurry) …"""
    leaks_into: int | None = None
    """… for so many other sessions."""
    disjoint: float | None = Field(default=None, ge=0, le=1)
    """The share of the classes that do not leak."""
    times: int | None = None
    """In how many sessions each pair comes (rule repeat)."""
    table: str | None = None
    sessions: dict[str, Link] = Field(min_length=1)
    last: str


class Augmentation(Section):
    """How an image enters the network (Appendix A)."""

    name: Literal["none", "crop_flip_jitter", "resized_crop_flip"]
    input_size: int = Field(ge=8, le=512)
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    views: int | None = Field(default=None, ge=1)
    """Random training views of an image in a session; None: a new one in every epoch."""


class Model(Section):
    """The feature extractor F (Sec. 4.2)."""

    backbone: str


class Train(Section):
    """SGD as in Sec. 4.2."""

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=2)
    lr: float = Field(gt=0)
    schedule: Literal["multistep", "cosine"]
    milestones: list[int] = []
    gamma: float = Field(default=0.1, gt=0, le=1)
    momentum: float = Field(ge=0, lt=1)
    weight_decay: float = Field(ge=0)
    precision: Literal["fp32", "tf32", "bf16"]
    """Of the extractors: 32 bits, Ampere's TF32 (fewer bits of mantissa), or bfloat16."""
    compile: bool = False
    """``torch.compile`` for the extractors: faster where launching kernels takes longer than
    running them. It changes the last bits."""
    threads: int = Field(ge=1)
    portable: bool = False
    """The same bits on every x86-64 processor with AVX2 (dacr/runtime/portable.py)."""


class Loss(Section):
    """The coefficients of L_overall = L_inter + λ·L_intra + β·L_dis + η·L_reg (Eq. 14)."""

    lambda_: float = Field(alias="lambda", ge=0)
    lambda_epochs: float = Field(ge=0)
    beta: float = Field(ge=0)
    eta: float = Field(ge=0)
    distillation: Literal["new_old", "old_new"]


class Mixture(Section):
    """The class representation: a vMF mixture that grows by m components per session."""

    components: int = Field(ge=1)
    kappa: float = Field(gt=0)
    kappa_learnable: bool
    initialisation: Literal["random_vector", "random_sample", "mean_perturbed", "anchored"]
    perturbation: float = Field(ge=0)
    prior: Literal["uniform", "empirical"]
    candidates: Literal["all", "same_age"]
    inference: Literal["nearest_component", "posterior"]
    normalisation: Literal["whole", "blocks"]


class Reduction(Section):
    """Hierarchical merging of components nearer than δ."""

    enabled: bool
    delta: float = Field(ge=0)
    distance: Literal["euclidean", "cosine", "angle"]
    merged_mean: Literal["features", "learned"]
    every_group: bool
    """Whether components that were not merged get the mean of their features, too (Eq. 4)."""
    drop_inherited: bool
    """Whether an inherited component is dropped when no exemplar of it is left."""


class Memory(Section):
    """The exemplar memory M: its size B and how exemplars are chosen (Sec. 3.4)."""

    size: int = Field(ge=0)
    strategy: Literal["random", "herding", "bilevel"]
    inside: Literal["random", "herding"]


class Fetch(Section):
    """How sources are brought here. Only ``fetch`` reads it: what came decides about the rest."""

    mirror: str | None = None


class Params(Section):
    """Everything that can change a result."""

    seed: int = Field(ge=0)
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


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check ``params.yaml``."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; compose it with `make params`") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not valid YAML ({reason}); {RECOMPOSE}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold parameters; {RECOMPOSE}")
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise UserError(explain(error, str(path))) from None
