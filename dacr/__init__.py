"""dacr: general incremental learning with domain-aware categorical representations.

The packages follow the paper: ``data`` (problem setup) → ``model`` → ``learning`` (adaptation and
memory) → ``methods`` → ``evaluation``. ``dacr.scenario`` opens a benchmark for any other method
(docs/library.md).
"""

from importlib import import_module


def __getattr__(name: str) -> object:
    """``scenario`` is looked up when it is first used: ``import dacr`` loads no torch."""
    if name == "scenario":
        return import_module("dacr.scenarios.opening").scenario
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
