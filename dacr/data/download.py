"""Bring a published file here: resumed after an interruption, verified, and whole or not at all.

A file is first looked for in the mirror, then at its addresses in their order. It grows as
``.part`` in a scratch folder that DVC does not clear, and is renamed into place only when its size
and checksum are right. Until its whole source is there it keeps a second name, ``.whole``, in that
folder.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from dacr.data.files import Fingerprint, RemoteFile, copy_in, land, user_path
from dacr.data.pace import LEAST, Clock, Crawls, Pace, in_words
from dacr.data.web import (
    Interrupted,
    OutOfRange,
    Refused,
    Site,
    blocks,
    host_of,
    without_secrets,
)
from dacr.errors import UserError
from dacr.runtime.progress import MEGABYTES, AmountProgress

MIRROR = "DACR_MIRROR"
ATTEMPTS = 4  # fruitless ones in a row, at one address
MOST_REQUESTS = 200  # also of an address that goes on a little each time
LONGEST_PAUSE = 60.0
TIMEOUT = 60.0


class Unreachable(UserError):
    """None of a file's addresses gave it."""


def scratch_folder() -> Path:
    """Where parts wait: beside the outs, since DVC empties these before a stage runs."""
    folder = Path(os.environ.get("DVC_ROOT", ".")) / ".dacr" / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def choose_mirror(parameter: str | None) -> None:
    """Take the parameter ``fetch.mirror`` for ``DACR_MIRROR`` where the latter is not set.

    What this machine says goes before what came with an experiment, perhaps from another machine.
    """
    if parameter and not os.environ.get(MIRROR):
        os.environ[MIRROR] = parameter


def mirror_folder() -> Path | None:
    """The mirror, which is asked before any address; a relative one starts at the project."""
    value = os.environ.get(MIRROR)
    if not value:
        return None
    folder = user_path(Path(value))
    if not folder.is_dir():
        raise UserError(f"the mirror {value} is not a folder; correct {MIRROR} or fetch.mirror")
    return folder


class _Part:
    """The bytes that have come so far, and what the server called the version they are of."""

    def __init__(self, file: RemoteFile) -> None:
        # Without the addresses: a new one goes on from the part that an old one left.
        checksums = " ".join(file.checksum) or None
        key = hashlib.sha256(f"{file.size} {checksums}".encode()).hexdigest()[:12]
        self.path = scratch_folder() / f"{key}-{file.name}.part"
        self.lock = FileLock(self.path.with_suffix(".lock"))
        self._note = self.path.with_suffix(".json")
        self._whole = self.path.with_suffix(".whole")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self, address: str) -> str | None:
        """The validator under which ``address`` gave these bytes."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return note["version"] if note["address"] == address else None

    def describe(self, address: str, version: str | None) -> None:
        note = {"address": address, "version": version}
        self._note.write_text(json.dumps(note), encoding="utf-8")

    def keep(self, landed: Path) -> None:
        """Give a finished file a second name here: DVC empties the outs of a stage that broke off.

        Only a checksum can tell later whether it is unchanged. Where the outs are on another file
        system nothing is kept.
        """
        self._whole.unlink(missing_ok=True)
        with suppress(OSError):
            os.link(landed, self._whole)

    def take(self, file: RemoteFile, target: Path) -> Fingerprint | None:
        """Bring back what an earlier run kept, if it still is the published file.

        While an out has the file too, it is copied, so that what becomes of one out does not touch
        another.
        """
        if not self._whole.exists():
            return None
        fingerprint = Fingerprint.of(self._whole)
        if fingerprint.fault(file) is not None:
            self.forget()
            return None
        (land if self._whole.stat().st_nlink == 1 else copy_in)(self._whole, target)
        return fingerprint

    def forget(self) -> None:
        self._whole.unlink(missing_ok=True)

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _version(headers: http.client.HTTPMessage) -> str | None:
    """What ``If-Range`` may be asked with: a strong ETag, or the time of the last change."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


class _Download:
    """One file from one address; with ``pace`` it raises ``Crawls`` where that is too slow."""

    def __init__(
        self, file: RemoteFile, address: str, part: _Part, timeout: float, pace: Pace | None
    ) -> None:
        self._file, self._address, self._part, self._pace = file, address, part, pace
        self._site = Site(address, timeout)
        self._misled = False

    def run(self, pause: Callable[[float], None]) -> Fingerprint:
        """Ask until the whole, right file is there; raise ``Refused`` when that is hopeless."""
        fruitless, distrusted = 0, False
        for _ in range(MOST_REQUESTS):
            before = self._part.size
            try:
                resumed = self._advance()
            except Interrupted as interruption:
                fruitless = 1 if self._part.size > before else fruitless + 1
                if fruitless == ATTEMPTS:
                    raise Refused(str(interruption)) from None
                self._watch(0, self._file.size)
                pause(min(2.0**fruitless, LONGEST_PAUSE))
                continue
            fingerprint = Fingerprint.of(self._part.path)
            fault = fingerprint.fault(self._file)
            if fault is None:
                return fingerprint
            self._part.discard()
            if distrusted or not resumed:
                raise Refused(f"sends another file ({fault})")
            distrusted = True  # perhaps only the part was wrong: once more, from the beginning
        raise Refused(f"broke off {MOST_REQUESTS} times")

    def _watch(self, came: int, total: int | None) -> None:
        if self._pace is not None:
            self._pace.step(came, None if total is None else total - self._part.size)

    def _advance(self) -> bool:
        """Bring the rest of the file; say whether bytes of an earlier answer were kept."""
        start, headers = self._resume_point()
        if start and start == self._file.size:
            return True
        try:
            with self._site.ask(headers) as answer:
                return self._receive(answer, start)
        except OutOfRange:
            self._part.discard()
            raise

    def _resume_point(self) -> tuple[int, dict[str, str]]:
        """Go on where the part ends, unless nothing could prove that the ends fit together."""
        start, version = self._part.size, self._part.version(self._address)
        if not self._file.checksum and version is None:
            start = 0
        if start == 0 or start > (self._file.size or start):
            self._part.discard()
            return 0, {}
        asked = {"Range": f"bytes={start}-"}
        return start, asked | ({"If-Range": version} if version else {})

    def _receive(self, answer: http.client.HTTPResponse, start: int) -> bool:
        if answer.status == http.client.PARTIAL_CONTENT:
            total = self._whole_size(answer, start)
        else:
            start, total = 0, answer.length
        self._refuse_hopeless(answer, total, start)
        self._part.describe(self._address, _version(answer.headers))
        progress = AmountProgress(self._file.name, total or self._file.size, MEGABYTES, start)
        try:
            with self._part.path.open("ab" if start else "wb") as part:
                for block in blocks(answer):
                    part.write(block)
                    progress.step(len(block))
                    if part.tell() > (total or self._file.size or part.tell()):
                        break  # it may never end, and its size is wrong already
                    self._watch(len(block), total)
        finally:
            progress.close()
        if total is not None and self._part.size < total:
            raise Interrupted(f"broke off after {self._part.size:,} of {total:,} bytes")
        return start > 0

    def _whole_size(self, answer: http.client.HTTPResponse, start: int) -> int | None:
        """How long the file is of which a range came: servers may give less than was asked for."""
        given = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
        if given is None or int(given[1]) != start:
            self._part.discard()
            kind = Refused if self._misled else Interrupted  # for once the part may be to blame
            self._misled = True
            raise kind("sends another range than the one asked for")
        return self._file.size if given[2] == "*" else int(given[2])

    def _refuse_hopeless(
        self, answer: http.client.HTTPResponse, total: int | None, start: int
    ) -> None:
        fault = fault_of_offer(self._file, total, answer.chunked)
        if fault is not None:
            raise Refused(fault)
        size = total or self._file.size or 0
        needed, free = size - start, shutil.disk_usage(self._part.path.parent).free
        if needed > free:
            room = f"needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"
            raise UserError(f"{self._file.name} {room}; free some space and run this again")


def fault_of_offer(file: RemoteFile, total: int | None, chunked: bool) -> str | None:
    """Why a body of ``total`` bytes cannot be the file, which is known before it comes."""
    if total is not None and file.size is not None and total != file.size:
        return f"offers {total:,} bytes instead of {file.size:,}"
    if total is not None and total < (file.at_least or 0):
        return f"offers {total:,} bytes, fewer than {file.at_least:,}"
    if total is None and not chunked and file.size is None and not file.checksum:
        return "does not say how long the file is: half of it could pass for all"
    return None


def _from_mirror(file: RemoteFile, original: Path, folder: Path) -> Fingerprint:
    fingerprint = Fingerprint.of(original)
    fault = fingerprint.fault(file)
    if fault is not None:
        raise UserError(f"{original} is not the published file ({fault}); replace or remove it")
    copy_in(original, folder / file.name)
    return fingerprint


def fetch_file(
    file: RemoteFile,
    folder: Path,
    *,
    pause: Callable[[float], None] = time.sleep,
    timeout: float = TIMEOUT,
    clock: Clock = time.monotonic,
) -> Fingerprint:
    """Bring ``file`` to ``folder``, verified, from the mirror or the first address that works."""
    mirror = mirror_folder()
    if mirror is not None and (mirror / file.name).is_file():
        return _from_mirror(file, mirror / file.name, folder)
    part = _Part(file)
    with part.lock:
        fingerprint = part.take(file, folder / file.name)
        if fingerprint is None:
            fingerprint = _Addresses(file, part, pause, timeout, clock).fill()
            land(part.path, folder / file.name)
            part.discard()
        if file.checksum:
            part.keep(folder / file.name)
    return fingerprint


class _Addresses:
    """All addresses of one file, of which the first that gives it fills the part."""

    def __init__(
        self,
        file: RemoteFile,
        part: _Part,
        pause: Callable[[float], None],
        timeout: float,
        clock: Clock,
    ) -> None:
        self._file, self._part, self._pause = file, part, pause
        self._timeout, self._clock = timeout, clock
        self._failures: list[str] = []
        self._slow: dict[str, float] = {}

    def fill(self) -> Fingerprint:
        """Bring the whole, right file. Slow addresses come last, the fastest of them first."""
        addresses = self._file.addresses
        for number, address in enumerate(addresses, start=1):
            another = number < len(addresses) or self._slow
            # Without a checksum no address can go on from the part of another one.
            patient = not (another and self._file.checksum)
            if fingerprint := self._try(address, patient):
                return fingerprint
        for address in sorted(self._slow, key=lambda slow: -self._slow[slow]):
            rate = in_words(self._slow[address])
            self._say(f"no address is faster; {host_of(address)} goes on ({rate})")
            if fingerprint := self._try(address, patient=True):
                return fingerprint
        raise Unreachable(
            f"{self._file.name} could not be fetched"
            f" ({'; '.join(self._failures) or 'it has no address'});"
            " put it in a folder and name that by DACR_MIRROR or fetch.mirror, or see docs/data.md"
        )

    def _try(self, address: str, patient: bool) -> Fingerprint | None:
        pace = None if patient else Pace(self._clock)
        try:
            return _Download(self._file, address, self._part, self._timeout, pace).run(self._pause)
        except Crawls as crawl:
            self._slow[address] = crawl.rate
            self._say(f"{host_of(address)} {crawl}, less than {in_words(LEAST)}: left for now")
        except Refused as refusal:
            self._failures.append(f"{host_of(address)}: {without_secrets(str(refusal), address)}")
        return None

    def _say(self, text: str) -> None:
        print(f"{self._file.name}: {text}", flush=True)


def forget_kept(files: Iterable[RemoteFile]) -> None:
    """Let go of finished files when all of their source is in place, and DVC will have them."""
    for file in files:
        part = _Part(file)
        with part.lock:
            part.forget()
