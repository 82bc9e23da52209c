"""The paper as data: ``conf/paper.yaml``, and ``conf/paper/<name>.yaml`` per table or figure.

A table is splits × rows. A row is a method, or any set of overrides; a grid makes a row of each
value of one parameter, and may have other values on other benchmarks.
"""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator

from dacr.config import Section, explain
from dacr.errors import UserError

CONF = Path("conf")
ADVICE = "the other tables in conf/paper/ show how"
Detail = Literal[
    "accuracy_by_session",
    "purity_by_session",
    "components_by_session",
    "accuracy_by_arrival",
    "embedding",
]
Value = bool | int | float | str | list[int]
Overrides = dict[str, Value]
Key = Annotated[str, BeforeValidator(lambda key: key if isinstance(key, str) else f"{key:g}")]
"""Of a row: those of a grid are numbers in YAML and text everywhere else."""
Numbers = dict[str, dict[str, dict[str, dict[Key, float]]]]
"""metric → benchmark → split → row → value"""


class Row(Section):
    """One line of a table: how it is called, what it runs, and which row it is a gain over."""

    label: str
    overrides: Overrides
    host: str | None = None

    @property
    def method(self) -> str:
        return str(self.overrides["method"])


class Grid(Section):
    """Rows made from the values of one parameter."""

    parameter: str
    symbol: str
    method: str
    host: str | None = None
    values: dict[str, list[int | float]]

    @field_validator("values")
    @classmethod
    def _has_a_default(cls, values: dict[str, list[int | float]]) -> dict[str, list[int | float]]:
        if "default" not in values:
            raise ValueError("needs values for `default`")
        return values

    def of(self, benchmark: str) -> list[int | float]:
        return self.values.get(benchmark, self.values["default"])


class Table(Section):
    """One table or figure of the paper, or a study of one's own in the same form."""

    name: str
    title: str
    source: str | None = None
    """Where the paper has it."""
    splits: list[str] = Field(min_length=1)
    metrics: list[str] = Field(min_length=1)
    """The first is the one that charts show."""
    details: list[Detail] = Field(default_factory=list)
    terminal: list[Detail] = Field(default_factory=list)
    """The details that the terminal shows as well."""
    rows: Literal["methods"] | list[str] | dict[str, Row] = Field(default_factory=dict)
    grid: Grid | None = None
    benchmark_overrides: dict[str, Overrides] = Field(default_factory=dict)
    seeds: int = Field(default=1, ge=1)
    gain: str = "over the host"
    notes: list[str] = Field(default_factory=list)
    paper: Numbers = Field(default_factory=dict)
    spread: Numbers = Field(default_factory=dict)
    arrival: dict[str, dict[str, dict[str, dict[str, list[float]]]]] = Field(default_factory=dict)
    """benchmark → split → row → class → accuracy of its domains, the oldest first"""

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
    """How the paper calls a method, and the method that it is "ours" on, if it is."""

    label: str
    host: str | None = None


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

    @cached_property
    def method_rows(self) -> dict[str, Row]:
        return {
            name: Row(label=own.label, overrides={"method": name}, host=own.host)
            for name, own in self.methods.items()
        }

    def rows(self, table: Table, benchmark: str) -> dict[str, Row]:
        """The rows of ``table`` on ``benchmark`` by key, in the order in which they are shown."""
        if table.rows == "methods":
            rows = dict(self.method_rows)
        elif isinstance(table.rows, list):
            rows = {name: self.method_rows[name] for name in table.rows}
        else:
            rows = dict(table.rows)
        if table.grid:
            rows |= grid_rows(table.grid, benchmark)
        return rows

    def reference(self, table: Table, benchmark: str) -> str | None:
        """The benchmark of the paper whose numbers stand beside those of ``benchmark``."""
        candidates = [benchmark, *self.beside.get(benchmark, [])]
        return next((name for name in candidates if table.has_numbers_of(name)), None)

    def benchmark_name(self, benchmark: str) -> str:
        return self.benchmarks.get(benchmark, benchmark)


def grid_rows(grid: Grid, benchmark: str) -> dict[str, Row]:
    return {
        f"{value:g}": Row(
            label=f"{grid.symbol} = {value:g}",
            overrides={"method": grid.method, grid.parameter: value},
            host=grid.host,
        )
        for value in grid.of(benchmark)
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
    return yaml.safe_load(text)


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
        if row.host is not None and row.host not in rows:
            raise UserError(f"{file}: {row.host!r}, the host of {key}, is no row of the table")
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
