"""Scenarios in the forms of libraries that may not be installed."""

from __future__ import annotations

from typing import Any

from dacr.scenarios.exports.writing import require_library, stream_of
from dacr.scenarios.stream import Scenario


def avalanche_benchmark(scenario: Scenario, domains: bool = False) -> Any:
    require_library("avalanche")
    from dacr.scenarios.exports.avalanche_benchmark import benchmark

    return benchmark(stream_of(scenario, domains))


def continuum_scenarios(scenario: Scenario, transformations: Any = None) -> tuple[Any, Any, Any]:
    require_library("continuum")
    from dacr.scenarios.exports.continuum_scenarios import scenarios

    return scenarios(stream_of(scenario), transformations)
