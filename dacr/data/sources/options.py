"""What a user may set for a source in ``data.source_options``, and what follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dacr.errors import UserError

TestFraction = Annotated[float, Field(gt=0, lt=1)]


class Options(BaseModel):
    """The options of one source: immutable, and closed to names that do not exist."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Chosen = TypeVar("Chosen", bound=Options)


def parse_options(model: type[Chosen], name: str, options: Mapping[str, Any]) -> Chosen:
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["data.source_options", name, *map(str, first["loc"])])
        raise UserError(f"{where}: {first['msg']}; see docs/data.md") from None


def held_out(pairs: Mapping[str, Hashable], fraction: float) -> set[str]:
    """The ids that become the test part: the same fraction of every class-domain pair.

    Within a pair the ids with the smallest hash are held out, so that the choice depends on the
    names alone. A pair with two images or more has at least one in each part.
    """
    members: dict[Hashable, list[str]] = {}
    for identity, pair in pairs.items():
        members.setdefault(pair, []).append(identity)
    return {identity for ids in members.values() for identity in _smallest(ids, fraction)}


def by_hash(ids: Iterable[str]) -> list[str]:
    """In the order of their SHA-256: as good as random, and the same everywhere."""
    return sorted(ids, key=lambda identity: hashlib.sha256(identity.encode()).digest())


def _smallest(ids: Iterable[str], fraction: float) -> list[str]:
    ordered = by_hash(ids)
    count = min(max(round(fraction * len(ordered)), 1), len(ordered) - 1)
    return ordered[:count]
