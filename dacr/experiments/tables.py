"""The paper as data: ``conf/paper.yaml``, and ``conf/paper/<name>.yaml`` per table or figure.

A table is splits × rows. A row is a method, or any set of overrides; a grid makes a row of each
value of one parameter, and may have other values on other benchmarks; ``along`` runs every row at
every value of further parameters. Rows of a table without splits name their own.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from dacr.config import Section, explain
from dacr.errors import UserError

CONF = Path("conf")
ADVICE = "the other tables in conf/paper/ show how"
# In C where PyYAML was built with it: six times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Detail = Literal[
    "accuracy_by_session",
    "purity_by_session",
    "components_by_session",
    "accuracy_by_arrival",
    "embedding",
]
Value = bool | int | float | str | list[int] | None
Overrides = dict[str, Value]
Key = Annotated[str, BeforeValidator(lambda key: key if isinstance(key, str) else f"{key:g}")]
"""Of a row: those of a grid are numbers in YAML and text everywhere else."""
Numbers = dict[str, dict[str, dict[str, dict[Key, float]]]]
"""metric → benchmark → split → row → value"""


Hosts = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda host: (host,) if isinstance(host, str) else tuple(host or ())),
]
"""The rows that a row is a gain over, the published one first: the better of them counts."""
Size = int | float | str | None


class Expected(Section):
    """What a metric of a row should be, by whom, and how far off it may be."""

    metric: str
    value: float
    within: float = Field(gt=0)
    source: str


class Place(Section):
    """Which row of a table with ``along`` it is, at which value of which parameter."""

    row: str
    label: str
    parameter: str
    size: Size


class Row(Section):
    """One line of a table: how it is called, what it runs, and which rows it is a gain over."""

    label: str
    overrides: Overrides
    hosts: Hosts = Field(default=(), alias="host")
    benchmark: str | None = None
    """Of a row that is not on the table's."""
    split: str | None = None
    """Of a row of a table without splits."""
    expected: Expected | None = None
    place: Place | None = None

    @property
    def method(self) -> str:
        return str(self.overrides["method"])


class Axis(Section):
    """The values of one parameter, which may be others on other benchmarks."""

    parameter: str
    symbol: str
    values: dict[str, list[Size]]

    @field_validator("values")
    @classmethod
    def _has_a_default(cls, values: dict[str, list[Size]]) -> dict[str, list[Size]]:
        if "default" not in values:
            raise ValueError("needs values for `default`")
        return values

    def of(self, benchmark: str) -> list[Size]:
        return self.values.get(benchmark, self.values["default"])

    def words(self, size: Size) -> str:
        return f"{self.symbol} = {size_text(size)}"


def size_text(size: Size) -> str:
    """A limit that is none lets all through."""
    if size is None:
        return "all"
    return size if isinstance(size, str) else f"{size:g}"


class Grid(Axis):
    """Rows of one method, one for each value of a parameter."""

    method: str
    hosts: Hosts = Field(default=(), alias="host")


class Table(Section):
    """One table or figure of the paper, or a study of one's own in the same form."""

    name: str
    title: str
    source: str | None = None
    """Where the paper has it."""
    splits: list[str] = Field(default_factory=list)
    metrics: list[str] = Field(min_length=1)
    """Charts and claims are about the first two."""
    details: list[Detail] = Field(default_factory=list)
    terminal: list[Detail] = Field(default_factory=list)
    """The details that the terminal shows as well."""
    rows: Literal["methods"] | list[str] | dict[str, Row] = Field(default_factory=dict)
    grid: Grid | None = None
    along: list[Axis] = Field(default_factory=list)
    """Every row is run at every value of each of these parameters."""
    benchmark: str | None = None
    """Of a table that is about one benchmark alone; its rows may name others."""
    overrides: Overrides = Field(default_factory=dict)
    """Of all rows."""
    benchmark_overrides: dict[str, Overrides] = Field(default_factory=dict)
    seeds: Annotated[int, Field(ge=1)] | Annotated[list[int], Field(min_length=1)] = 1
    """So many of conf/paper.yaml, or these."""
    gain: str = ""
    """What its gains are over, where rows have other hosts than methods have."""
    notes: list[str] = Field(default_factory=list)
    paper: Numbers = Field(default_factory=dict)
    spread: Numbers = Field(default_factory=dict)
    arrival: dict[str, dict[str, dict[str, dict[str, list[float]]]]] = Field(default_factory=dict)
    """benchmark → split → row → class → accuracy of its domains, the oldest first"""

    @model_validator(mode="after")
    def _rows_know_their_split(self) -> Self:
        own = list(self.rows.values()) if isinstance(self.rows, dict) else []
        if self.splits and any(row.split for row in own):
            raise ValueError("has splits, so that no row may name its own")
        if not self.splits and not (own and self.benchmark and all(r.split for r in own)):
            raise ValueError("needs splits, or a benchmark and rows that each name their split")
        if self.grid and self.along:
            raise ValueError("has a grid, which cannot go along other parameters")
        return self

    @property
    def claims(self) -> list[str]:
        """The metrics that charts and claims are about."""
        return self.metrics[:2]

    @property
    def held_out(self) -> bool:
        """Whether its numbers are of held-out training images, to choose settings by."""
        return bool(self.overrides.get("data.validation"))

    def common_overrides(self, benchmark: str) -> Overrides:
        """Of all rows, and no row's own."""
        return self.overrides | self.benchmark_overrides.get(benchmark, {})

    def varied(self, method: str) -> set[str]:
        """The parameters whose value makes a row of this method."""
        if self.grid:
            return {self.grid.parameter} if method == self.grid.method else set()
        return {axis.parameter for axis in self.along}

    def number(self, metric: str, benchmark: str, split: str, row: str) -> float | None:
        return self.column(metric, benchmark, split).get(row)

    def deviation(self, metric: str, benchmark: str, split: str, row: str) -> float | None:
        return self.spread.get(metric, {}).get(benchmark, {}).get(split, {}).get(row)

    def column(self, metric: str, benchmark: str, split: str) -> dict[str, float]:
        """The paper's values of every row."""
        return self.paper.get(metric, {}).get(benchmark, {}).get(split, {})

    def has_numbers_of(self, benchmark: str) -> bool:
        return benchmark in self.arrival or any(benchmark in own for own in self.paper.values())


class MethodName(Section):
    """How tables call a method, and what it is to another method, if it is something."""

    label: str
    host: str | None = None
    """The method that it is the paper's "host w/ ours" of."""
    fair: str | None = None
    """The published host that it is, with everything of ours that is not the paper's method."""
    bound: Literal["lower", "upper"] | None = None
    """What it bounds: the upper one breaks the protocol."""


class Needs(Section):
    """What one experiment asks of a Ray cluster."""

    cpus: float = Field(gt=0)
    gpus: float = Field(ge=0)
    retries: int = Field(ge=0)
    push: str | None = None
    """A git remote of the project, or the address of one: each node sends its experiment there."""

    def sharing(self, jobs_per_gpu: int) -> Needs:
        """The same with so many experiments on a GPU."""
        # Ray counts in ten-thousandths and rounds: six times 0.16667 would be more than one.
        return self.model_copy(update={"gpus": (10_000 // jobs_per_gpu) / 10_000})


class DeviceRates(Section):
    """What a device is assumed to reach."""

    label: str
    memory: float = Field(gt=0)
    """In GB."""
    tflops: dict[Literal["fp32", "tf32", "bf16"], float] = Field(min_length=1)
    """Sustained, by precision, in training a ResNet-18; one that it has not is missing."""


class Devices(Section):
    names: dict[str, DeviceRates] = Field(default_factory=dict)
    shares: dict[str, float] = Field(default_factory=dict)
    """The share of those rates that a narrower backbone reaches."""


class Paper(Section):
    """What all tables share (``conf/paper.yaml``), and the tables themselves."""

    methods: dict[str, MethodName]
    benchmarks: dict[str, str]
    seeds: list[int] = Field(min_length=1)
    ray: Needs
    devices: Devices = Field(default_factory=Devices)
    beside: dict[str, list[str]]
    report: dict[str, list[str]]
    settings: dict[str, dict[str, Any]]
    settings_of_ours: dict[str, Any]
    settings_of_hosts: dict[str, Any] = Field(default_factory=dict)
    tables: dict[str, Table]

    def table(self, name: str) -> Table:
        if name not in self.tables:
            known = ", ".join(self.tables)
            raise UserError(f"there is no table {name!r} in conf/paper/; choose one of {known}")
        return self.tables[name]

    def label(self, method: str) -> str:
        return self.methods[method].label if method in self.methods else method

    def has_ours(self, method: str) -> bool:
        return method in self.methods and self.methods[method].host is not None

    def is_fair(self, method: str) -> bool:
        return method in self.methods and self.methods[method].fair is not None

    def is_bound(self, method: str) -> bool:
        return method in self.methods and self.methods[method].bound is not None

    @property
    def upper_bound(self) -> str | None:
        """The method that all others have their headroom to."""
        return next((name for name, own in self.methods.items() if own.bound == "upper"), None)

    @cached_property
    def method_rows(self) -> dict[str, Row]:
        return {
            name: Row(label=own.label, overrides={"method": name}, host=self._hosts(own))
            for name, own in self.methods.items()
        }

    def _hosts(self, own: MethodName) -> tuple[str, ...]:
        """The published host of a method, and of "host w/ ours" the fair one, too."""
        if own.fair or own.host is None:
            return (own.fair,) if own.fair else ()
        return own.host, *(name for name, other in self.methods.items() if other.fair == own.host)

    def rows(self, table: Table, benchmark: str) -> dict[str, Row]:
        """The rows of ``table`` on ``benchmark`` by key, in the order in which they are shown."""
        if table.rows == "methods":
            rows = dict(self.method_rows)
        elif isinstance(table.rows, list):
            rows = {name: only_hosts(self.method_rows[name], table.rows) for name in table.rows}
        else:
            rows = dict(table.rows)
        if table.grid:
            rows |= grid_rows(table.grid, benchmark)
        return sized_rows(rows, table.along, benchmark) if table.along else rows

    def rows_by_split(self, table: Table, benchmark: str) -> list[tuple[str, str, Row]]:
        """Every cell of ``table``: its split, and the key of its row and the row."""
        rows = self.rows(table, benchmark).items()
        if not table.splits:
            return [(row.split or "", key, row) for key, row in rows]
        return [(split, key, row) for split in table.splits for key, row in rows]

    def reference(self, table: Table, benchmark: str) -> str | None:
        """The benchmark of the paper whose numbers stand beside those of ``benchmark``."""
        candidates = [benchmark, *self.beside.get(benchmark, [])]
        return next((name for name in candidates if table.has_numbers_of(name)), None)

    def benchmark_name(self, benchmark: str) -> str:
        return self.benchmarks.get(benchmark, benchmark)


def only_hosts(row: Row, known: list[str]) -> Row:
    """A table may leave a host out."""
    return row.model_copy(update={"hosts": tuple(host for host in row.hosts if host in known)})


def grid_rows(grid: Grid, benchmark: str) -> dict[str, Row]:
    return {
        size_text(value): Row(
            label=grid.words(value),
            overrides={"method": grid.method, grid.parameter: value},
            host=grid.hosts,
        )
        for value in grid.of(benchmark)
    }


def sized_key(key: str, axis: Axis, size: Size) -> str:
    return f"{key} @ {axis.parameter} = {size_text(size)}"


def sized_rows(rows: dict[str, Row], along: list[Axis], benchmark: str) -> dict[str, Row]:
    """Every row at every value of every axis, its hosts at the same one."""
    return {
        sized_key(key, axis, size): row.model_copy(
            update={
                "label": f"{row.label}, {axis.words(size)}",
                "overrides": row.overrides | {axis.parameter: size},
                "hosts": tuple(sized_key(host, axis, size) for host in row.hosts),
                "place": Place(row=key, label=row.label, parameter=axis.parameter, size=size),
            }
        )
        for axis in along
        for size in axis.of(benchmark)
        for key, row in rows.items()
    }


def read_yaml(path: Path) -> dict[str, Any]:
    """A file of ``conf/``."""
    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read ({reason}); restore it from git") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold a table; restore it from git")
    return content


@cache
def _parsed(text: str) -> Any:
    """All experiments of a table ask for the same few files, and YAML is slow."""
    return yaml.load(text, LOADER)


def load_table(path: Path) -> Table:
    try:
        return Table.model_validate({"name": path.stem, **read_yaml(path)})
    except ValidationError as error:
        raise UserError(explain(error, str(path), ADVICE)) from None


def load_paper(conf: Path = CONF) -> Paper:
    """Everything of ``conf/paper.yaml`` and ``conf/paper/``, checked."""
    tables = {path.stem: load_table(path) for path in sorted((conf / "paper").glob("*.yaml"))}
    path = conf / "paper.yaml"
    try:
        paper = Paper.model_validate({**read_yaml(path), "tables": tables})
    except ValidationError as error:
        raise UserError(explain(error, str(path), ADVICE)) from None
    for name, own in paper.methods.items():
        for other in (own.host, own.fair):
            if other is not None and other not in paper.methods:
                raise UserError(f"{path}: {other!r}, the host of {name}, is no method there")
    for table in tables.values():
        _check_rows(paper, table)
    return paper


def _check_rows(paper: Paper, table: Table) -> None:
    """Numbers of rows that do not exist would never be shown: refuse them."""
    file = f"conf/paper/{table.name}.yaml"
    if isinstance(table.rows, list) and (unknown := set(table.rows) - set(paper.methods)):
        raise UserError(f"{file}: {unknown.pop()!r} is no method of the paper")
    rows = paper.rows(table, "default")
    for key, row in rows.items():
        if "method" not in row.overrides:
            raise UserError(f"{file}: the overrides of row {key} name no method")
        if unknown_hosts := [host for host in row.hosts if host not in rows]:
            host = unknown_hosts[0]
            raise UserError(f"{file}: {host!r}, the host of {key}, is no row of the table")
    numbers: list[tuple[str, dict[str, dict[str, dict[str, Any]]]]]
    numbers = [*table.paper.items(), *table.spread.items(), ("arrival", table.arrival)]
    for what, benchmarks in numbers:
        for benchmark, splits in benchmarks.items():
            known = paper.rows(table, benchmark)
            for split, name in ((split, name) for split, own in splits.items() for name in own):
                if name not in known or split not in table.splits:
                    raise UserError(
                        f"{file}: the paper's {what} of {benchmark}, {split}, {name} belongs to no "
                        "cell of the table"
                    )
