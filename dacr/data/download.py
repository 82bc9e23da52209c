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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.cookiejar import CookieJar
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit
from urllib.request import (
    HTTPCookieProcessor,
    HTTPRedirectHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from filelock import FileLock

from dacr.data.confirmation import ConfirmationPage
from dacr.data.files import BLOCK, Fingerprint, RemoteFile, copy_in, land, user_path
from dacr.errors import UserError
from dacr.runtime.progress import MEGABYTES, AmountProgress

MIRROR = "DACR_MIRROR"
ATTEMPTS = 4  # fruitless ones in a row, at one address
MOST_REQUESTS = 200  # also of an address that goes on a little each time
LONGEST_PAUSE = 60.0
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class Unreachable(UserError):
    """None of a file's addresses gave it."""


class _Refused(Exception):
    """This address will not give the file, however often it is asked."""


class _Interrupted(Exception):
    """This address failed now and may work in a moment."""


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
        key = hashlib.sha256(f"{file.size} {file.checksum}".encode()).hexdigest()[:12]
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


def _refuse_other_schemes(address: str) -> None:
    if urlsplit(address).scheme not in ("http", "https"):
        raise _Refused(f"leads to {urlsplit(address).scheme}:// addresses")


class _HttpRedirects(HTTPRedirectHandler):
    """Refuses what urllib would follow: from http to ftp, whose answers have no status."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Request | None:
        _refuse_other_schemes(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Download:
    """One file from one address."""

    def __init__(self, file: RemoteFile, address: str, part: _Part, timeout: float) -> None:
        self._file, self._address, self._part, self._timeout = file, address, part, timeout
        self._misled = False
        cookies = HTTPCookieProcessor(CookieJar())
        self._opener: OpenerDirector = build_opener(cookies, _HttpRedirects())

    def run(self, pause: Callable[[float], None]) -> Fingerprint:
        """Ask until the whole, right file is there; raise ``_Refused`` when that is hopeless."""
        fruitless, distrusted = 0, False
        for _ in range(MOST_REQUESTS):
            before = self._part.size
            try:
                resumed = self._advance()
            except _Interrupted as interruption:
                fruitless = 1 if self._part.size > before else fruitless + 1
                if fruitless == ATTEMPTS:
                    raise _Refused(str(interruption)) from None
                pause(min(2.0**fruitless, LONGEST_PAUSE))
                continue
            fingerprint = Fingerprint.of(self._part.path)
            fault = fingerprint.fault(self._file)
            if fault is None:
                return fingerprint
            self._part.discard()
            if distrusted or not resumed:
                raise _Refused(f"sends another file ({fault})")
            distrusted = True  # perhaps only the part was wrong: once more, from the beginning
        raise _Refused(f"broke off {MOST_REQUESTS} times")

    def _advance(self) -> bool:
        """Bring the rest of the file; say whether bytes of an earlier answer were kept."""
        start, headers = self._resume_point()
        if start and start == self._file.size:
            return True
        with self._open(self._address, headers) as answer:
            if answer.headers.get_content_type() == "text/html":
                with self._open(self._confirmation(answer), headers) as confirmed:
                    return self._receive(confirmed, start)
            return self._receive(answer, start)

    def _resume_point(self) -> tuple[int, dict[str, str]]:
        """Go on where the part ends, unless nothing could prove that the ends fit together."""
        start, version = self._part.size, self._part.version(self._address)
        if self._file.checksum is None and version is None:
            start = 0
        if start == 0 or start > (self._file.size or start):
            self._part.discard()
            return 0, {}
        asked = {"Range": f"bytes={start}-"}
        return start, asked | ({"If-Range": version} if version else {})

    def _open(self, address: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        _refuse_other_schemes(address)
        common = {"User-Agent": "dacr", "Accept-Encoding": "identity"}
        try:
            answer: http.client.HTTPResponse = self._opener.open(
                Request(address, headers=common | headers), timeout=self._timeout
            )
            return answer
        except HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                self._part.discard()
                raise _Interrupted("cannot go on from where the last download stopped") from None
            kind = _Interrupted if error.code in TRANSIENT else _Refused
            raise kind(f"HTTP {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise _Interrupted(_reason(error)) from None
        except ValueError as error:  # a redirect to what is no address
            raise _Refused(f"leads to a wrong address ({_reason(error)})") from None

    def _confirmation(self, answer: http.client.HTTPResponse) -> str:
        """Google Drive asks before it gives a large file; press its button."""
        content = next(self._blocks(answer), b"").decode("utf-8", "replace")
        try:
            page = ConfirmationPage(content)
            if page.confirmation is None:
                raise _Refused(f"sends a web page ({page.title or 'without a title'})")
            target = urlsplit(urljoin(answer.url, page.confirmation.action))
        except (AssertionError, ValueError):  # what HTMLParser and urlsplit say to nonsense
            raise _Refused("sends a web page that makes no sense") from None
        query = dict(parse_qsl(target.query)) | page.confirmation.fields
        return target._replace(query=urlencode(query)).geturl()

    def _receive(self, answer: http.client.HTTPResponse, start: int) -> bool:
        if answer.headers.get_content_type() == "text/html":
            raise _Refused("sends a web page even after its confirmation")
        if answer.status == http.client.PARTIAL_CONTENT:
            total = self._whole_size(answer, start)
        else:
            start, total = 0, answer.length
        self._refuse_hopeless(answer, total, start)
        self._part.describe(self._address, _version(answer.headers))
        progress = AmountProgress(self._file.name, total or self._file.size, MEGABYTES, start)
        try:
            with self._part.path.open("ab" if start else "wb") as part:
                for block in self._blocks(answer):
                    part.write(block)
                    progress.step(len(block))
                    if part.tell() > (total or self._file.size or part.tell()):
                        break  # it may never end, and its size is wrong already
        finally:
            progress.close()
        if total is not None and self._part.size < total:
            raise _Interrupted(f"broke off after {self._part.size:,} of {total:,} bytes")
        return start > 0

    def _whole_size(self, answer: http.client.HTTPResponse, start: int) -> int | None:
        """How long the file is of which a range came: servers may give less than was asked for."""
        given = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
        if given is None or int(given[1]) != start:
            self._part.discard()
            kind = _Refused if self._misled else _Interrupted  # for once the part may be to blame
            self._misled = True
            raise kind("sends another range than the one asked for")
        return self._file.size if given[2] == "*" else int(given[2])

    def _refuse_hopeless(
        self, answer: http.client.HTTPResponse, total: int | None, start: int
    ) -> None:
        size = self._file.size
        if total is not None and size is not None and total != size:
            raise _Refused(f"offers {total:,} bytes instead of {size:,}")
        unknown = total is None and not answer.chunked
        if unknown and size is None and self._file.checksum is None:
            raise _Refused("does not say how long the file is: half of it could pass for all")
        needed, free = (total or size or 0) - start, shutil.disk_usage(self._part.path.parent).free
        if needed > free:
            room = f"needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"
            raise UserError(f"{self._file.name} {room}; free some space and run this again")

    def _blocks(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            try:
                block = answer.read(BLOCK)
            except (OSError, http.client.HTTPException) as error:
                raise _Interrupted(_reason(error)) from None
            if not block:
                return
            yield block


def _without_secrets(text: str, address: str) -> str:
    """What may be shown of a failure at ``address``: not its password, nor tokens in its query."""
    parts = urlsplit(address)
    userinfo, at, _ = parts.netloc.rpartition("@")
    secrets = [f"{userinfo}{at}", userinfo.partition(":")[2], parts.query]
    for secret in filter(None, secrets):
        text = text.replace(secret, "")
    return text


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__


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
    timeout: float = 60.0,
) -> Fingerprint:
    """Bring ``file`` to ``folder``, verified, from the mirror or the first address that works."""
    mirror = mirror_folder()
    if mirror is not None and (mirror / file.name).is_file():
        return _from_mirror(file, mirror / file.name, folder)
    part = _Part(file)
    with part.lock:
        fingerprint = part.take(file, folder / file.name)
        if fingerprint is None:
            fingerprint = _from_addresses(file, part, pause, timeout)
            land(part.path, folder / file.name)
            part.discard()
        if file.checksum is not None:
            part.keep(folder / file.name)
    return fingerprint


def _from_addresses(
    file: RemoteFile, part: _Part, pause: Callable[[float], None], timeout: float
) -> Fingerprint:
    """Fill the part with the whole, right file from the first address that gives it."""
    failures = []
    for address in file.addresses:
        try:
            return _Download(file, address, part, timeout).run(pause)
        except _Refused as refusal:
            failures.append(_without_secrets(f"{urlsplit(address).netloc}: {refusal}", address))
    raise Unreachable(
        f"{file.name} could not be fetched ({'; '.join(failures) or 'it has no address'});"
        " put it in a folder and name that by DACR_MIRROR or fetch.mirror, or see docs/data.md"
    )


def forget_kept(files: Iterable[RemoteFile]) -> None:
    """Let go of finished files when all of their source is in place, and DVC will have them."""
    for file in files:
        part = _Part(file)
        with part.lock:
            part.forget()
