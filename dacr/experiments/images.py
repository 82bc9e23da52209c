"""Which images an experiment was measured on: results on different images are never compared.

A benchmark of one name may hold other images elsewhere: a mirror's samples, another release. A
record carries a digest of them, which is known once the benchmark is built. A record that is older
than these digests counts as one of the images whose counts and origins are its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dacr.config import parse_yaml
from dacr.experiments.records import Record
from dacr.runtime.hashes import file_md5

SUMMARY = "data/benchmark/benchmark.json"
DIGEST = "images"
"""The key of a record's data; records from before it have none."""
LIMITS = ("data.per_pair", "data.validation")
"""The parameters by which the seed chooses among the images of a benchmark."""

Lot = tuple[object, ...]


def is_restricted(per_pair: object, validation: object) -> bool:
    """Whether every seed builds a benchmark of other images."""
    return per_pair is not None or bool(validation)


def images_digest(summary: Mapping[str, Any], restricted: bool) -> str | None:
    """Of a built benchmark (``benchmark.json``): 12 digits.

    Of its pixels; of the files that they come from where the seed chose among them.
    """
    content = summary["origins"] if restricted else summary.get("pixels_sha256")
    if content is None:
        return None
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Images:
    """The images of a record or of a benchmark that was built."""

    lot: Lot
    """What must have the same images: a benchmark with the same parameters of its data."""
    digest: str | None
    facts: str
    """Counts and origins, all that an old record knows of them."""

    @classmethod
    def of(cls, record: Record) -> Images:
        setting, data = record.setting, record.data
        restricted = is_restricted(setting.get("per_pair"), setting.get("validation"))
        chosen = sorted(
            (key, value)
            for key, value in record.overrides.items()
            if key.startswith("data.") and key not in LIMITS
        )
        lot = (record.benchmark, restricted, *chosen)
        return cls(lot, data.get(DIGEST), _facts(data, restricted))


def _facts(data: Mapping[str, Any], restricted: bool) -> str:
    told = {key: data[key] for key in ("classes", "domains", "image_size", "origins")}
    if not restricted:
        told["counts"] = data["counts"]
    return json.dumps(told, sort_keys=True)


def facts_of(summary: Mapping[str, Any], restricted: bool) -> dict[str, Any]:
    """What a record keeps of the benchmark that it was measured on."""
    known = {
        "classes": summary["classes"],
        "domains": summary["domains"],
        "counts": {part: summary["counts"][part] for part in ("train", "test")},
        "image_size": summary["image_size"],
        "origins": {name: own["kind"] for name, own in summary["origins"].items()},
    }
    digest = images_digest(summary, restricted)
    return known if digest is None else known | {DIGEST: digest}


def measured_on(record: Record, digest: str | None) -> bool:
    """Whether nothing says that a record is of other images."""
    return record.data.get(DIGEST, digest) == digest


class TodaysImages:
    """Of each benchmark the images that count: those built here, else those of the last record."""

    def __init__(self, records: Iterable[Record], built: Images | None = None) -> None:
        told = sorted(records, key=lambda record: record.started)
        known = [own for own in map(Images.of, told) if own.digest]
        known += [built] if built else []
        self._today = {own.lot: own.digest for own in known}
        self._of_facts: dict[tuple[Lot, str], set[str | None]] = {}
        for own in known:
            self._of_facts.setdefault((own.lot, own.facts), set()).add(own.digest)

    def include(self, record: Record) -> bool:
        """Whether a record is of today's images, or nothing tells otherwise."""
        own = Images.of(record)
        if own.lot not in self._today:
            return True
        digest = self._today[own.lot]
        if own.digest:
            return own.digest == digest
        return self._of_facts.get((own.lot, own.facts)) == {digest}


@dataclass(frozen=True)
class Built:
    """The benchmark in data/."""

    name: str
    images: Images
    """As those of a record without other choices of its data than limits."""
    data: Mapping[str, Any]
    """The parameters that it was built with, without limits."""


def unlimited(data: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a benchmark's data that the seed has no part in."""
    return {key: value for key, value in data.items() if f"data.{key}" not in LIMITS}


def built_here(lock: Path = Path("dvc.lock"), summary: Path = Path(SUMMARY)) -> Built | None:
    """As DVC recorded it with its parameters; None where it did not, or for other bytes."""
    try:
        stage = parse_yaml(lock.read_text(encoding="utf-8"))["stages"]["build"]
        data = stage["params"]["params.yaml"]["data"]
        recorded = {out["path"]: out["md5"] for out in stage["outs"]}
        if recorded[SUMMARY] != file_md5(summary):
            return None
        content = json.loads(summary.read_text(encoding="utf-8"))
        restricted = is_restricted(data["per_pair"], data["validation"])
        own, name = facts_of(content, restricted), str(data["benchmark"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if DIGEST not in own:
        return None
    images = Images((name, restricted), own[DIGEST], _facts(own, restricted))
    return Built(name, images, unlimited(data))
