"""Every address of a source asked for the beginning of its file, before anything is downloaded."""

from __future__ import annotations

import http.client
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dacr.data.download import fault_of_offer
from dacr.data.files import Fingerprint, RemoteFile
from dacr.data.pace import LEAST, Clock
from dacr.data.sources.upstream import Published, Release
from dacr.data.web import Interrupted, Refused, Site, blocks, without_secrets

FIRST = 1_000_000  # bytes of each file that are asked for
TELLING = 100_000  # bytes below which a rate says nothing


class Range(NamedTuple):
    """What a server says that it sends: bytes ``first`` to ``last`` of ``total``."""

    first: int
    last: int
    total: int | None


@dataclass(frozen=True)
class Finding:
    """What one address said about one file; ``fault`` is why it would not be taken from there."""

    file: RemoteFile
    address: str
    alive: bool = False
    size: int | None = None
    ranges: bool | None = None
    rate: float | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Prospect:
    """What the addresses of one release promise."""

    release: Release
    findings: tuple[Finding, ...]

    def best(self, file: RemoteFile) -> Finding | None:
        """Where fetch will take the file from: the first address that is not slow, if any is."""
        good = [own for own in self.findings if own.file == file and own.fault is None]
        fast = [own for own in good if own.rate is None or own.rate >= LEAST]
        return next(iter(fast or sorted(good, key=lambda own: -(own.rate or 0))), None)

    @property
    def missing(self) -> list[RemoteFile]:
        return [file for file in self.release.files if self.best(file) is None]

    @property
    def size(self) -> int:
        """Bytes to download, where the addresses or the table know them."""
        best = (self.best(file) for file in self.release.files)
        return sum(own.size or own.file.size or 0 for own in best if own)

    @property
    def seconds(self) -> float:
        """At the rates that were measured."""
        best = [own for file in self.release.files if (own := self.best(file)) and own.rate]
        return sum((own.size or own.file.size or 0) / (own.rate or 1) for own in best)


def prospect_of(release: Release, findings: list[Finding]) -> Prospect:
    return Prospect(release, tuple(own for own in findings if own.file in release.files))


def addresses_of(published: Published) -> Iterator[tuple[RemoteFile, str]]:
    """Every file with every address, each once."""
    for file in dict.fromkeys(published.files):
        for address in file.addresses:
            yield file, address


def examine(file: RemoteFile, address: str, timeout: float, clock: Clock) -> Finding:
    """Ask ``address`` for the first megabyte of ``file``, and for one byte from its middle."""
    site = Site(address, timeout)
    try:
        with site.ask({"Range": f"bytes=0-{FIRST - 1}"}) as answer:
            given = _given(answer)
            began = clock()
            content = _beginning(answer, given)
            seconds = clock() - began
            fault = fault_of_offer(file, given.total, answer.chunked)
        partial = answer.status == http.client.PARTIAL_CONTENT
        ranges = partial and _gives_middle(site, given.total or file.size)
    except (Refused, Interrupted) as error:
        alive = isinstance(error, _Wrong)
        return Finding(file, address, alive, fault=without_secrets(str(error), address))
    if fault is None and len(content) == given.total:
        other = Fingerprint.read(io.BytesIO(content)).fault(file)
        fault = other and f"sends another file ({other})"
    rate = len(content) / max(seconds, 1e-6) if len(content) >= TELLING else None
    return Finding(file, address, True, given.total, ranges, rate, fault)


class _Wrong(Refused):
    """The address answers, and its answer makes no sense."""


def _given(answer: http.client.HTTPResponse) -> Range:
    if answer.status != http.client.PARTIAL_CONTENT:
        return Range(0, FIRST - 1 if answer.length is None else answer.length - 1, answer.length)
    given = _content_range(answer)
    if given is None or given.first != 0:
        raise _Wrong("sends another range than the one asked for")
    return given


def _content_range(answer: http.client.HTTPResponse) -> Range | None:
    text = answer.headers.get("Content-Range", "")
    given = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", text)
    if given is None:
        return None
    return Range(int(given[1]), int(given[2]), None if given[3] == "*" else int(given[3]))


def _beginning(answer: http.client.HTTPResponse, given: Range) -> bytes:
    """The first megabyte, or less where the server promises less; then the line is hung up."""
    promised = min(FIRST, given.last + 1)
    content = bytearray()
    for block in blocks(answer):
        content += block
        if len(content) >= promised:
            break
    if len(content) < promised and not (given.total is None and given.last == FIRST - 1):
        raise _Wrong(f"breaks off after {len(content):,} bytes")
    return bytes(content[:promised])


def _gives_middle(site: Site, size: int | None) -> bool:
    """Whether a download that was interrupted could go on there."""
    middle = (size or FIRST) // 2
    try:
        with site.ask({"Range": f"bytes={middle}-{middle}"}) as answer:
            given = _content_range(answer)
            return answer.status == http.client.PARTIAL_CONTENT and bool(
                given and given.first == middle
            )
    except (Refused, Interrupted):
        return False
