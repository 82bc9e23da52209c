"""How fast a device is: assumed for those that `devices` in conf/paper.yaml names, or measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import Field, ValidationError

from dacr.config import Section
from dacr.errors import UserError
from dacr.experiments.records import write_text
from dacr.experiments.tables import Paper

HERE = "here"
"""The name of the device that ``dacr doctor`` measured."""


class Device(Protocol):
    @property
    def words(self) -> str:
        """The device, and where its rate comes from."""
        ...

    @property
    def memory(self) -> float | None:
        """In GB."""
        ...

    def rate(self, backbone: str, precision: str) -> float:
        """Sustained FLOP/s in training."""
        ...


class Assumed:
    """A device of conf/paper.yaml."""

    def __init__(self, paper: Paper, name: str) -> None:
        self._name, self._own = name, paper.devices.names[name]
        self._shares = paper.devices.shares
        self.memory: float | None = self._own.memory

    @property
    def words(self) -> str:
        return f"one {self._own.label}, at an assumed rate"

    def rate(self, backbone: str, precision: str) -> float:
        if precision not in self._own.tflops:
            known = ", ".join(self._own.tflops)
            raise UserError(f"{self._name} has no {precision}; train.precision may be {known}")
        return self._own.tflops[precision] * 1e12 * self._shares.get(backbone, 1.0)


class Measured(Section):
    """What ``dacr doctor`` found on this machine."""

    label: str
    rates: dict[str, float] = Field(min_length=1)
    """FLOP/s in training, by backbone."""
    memory: float | None = None

    @property
    def words(self) -> str:
        return f"{self.label}, at the rate that `dacr doctor` measured"

    def rate(self, backbone: str, precision: str) -> float:
        if backbone not in self.rates:
            raise UserError(
                f"`dacr doctor` measured {', '.join(self.rates)} here, not {backbone}; "
                "name another device"
            )
        return self.rates[backbone]


def _file() -> Path:
    return Path(os.environ.get("DVC_ROOT", ".")) / ".dacr" / "device.json"


def write_measured(label: str, rates: Mapping[str, float], memory: float | None) -> Path:
    found = Measured(label=label, rates=dict(rates), memory=memory)
    write_text(_file(), found.model_dump_json(indent=1) + "\n")
    return _file()


def read_measured() -> Measured:
    try:
        return Measured.model_validate_json(_file().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        raise UserError(f"{_file()} is missing or damaged; `dacr doctor` writes it") from None


def device_called(name: str, paper: Paper) -> Device:
    if name == HERE:
        return read_measured()
    if name not in paper.devices.names:
        known = ", ".join([*paper.devices.names, HERE])
        raise UserError(f"unknown device {name!r}; choose from {known}")
    return Assumed(paper, name)
