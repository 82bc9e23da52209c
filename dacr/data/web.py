"""One address on the web, asked as often as needed: redirects, cookies, Google's confirmation.

What an address says is not trusted: it may lead to other schemes, to pages in place of files, or
nowhere. Whatever happens is one of two things: ``Refused``, for good, or ``Interrupted``, for now.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.cookiejar import CookieJar
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

from dacr.data.confirmation import ConfirmationPage
from dacr.data.files import BLOCK

TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class Refused(Exception):
    """This address will not give the file, however often it is asked."""


class Interrupted(Exception):
    """This address failed now and may work in a moment."""


class OutOfRange(Interrupted):
    """This address has no such range of the file."""


def host_of(address: str) -> str:
    """What may be shown of an address: not its password."""
    return without_secrets(urlsplit(address).netloc, address)


def without_secrets(text: str, address: str) -> str:
    """What may be shown of a failure at ``address``: not its password, nor tokens in its query."""
    parts = urlsplit(address)
    userinfo, at, _ = parts.netloc.rpartition("@")
    secrets = [f"{userinfo}{at}", userinfo.partition(":")[2], parts.query]
    for secret in filter(None, secrets):
        text = text.replace(secret, "")
    return text


def blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body as it comes: a slow server's bytes are not waited for until a block is full."""
    while True:
        try:
            block = answer.read1(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise Interrupted(_reason(error)) from None
        if not block:
            return
        yield block


class Site:
    """An address and the cookies that it gave."""

    def __init__(self, address: str, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        cookies = HTTPCookieProcessor(CookieJar())
        self._opener: OpenerDirector = build_opener(cookies, _HttpRedirects())

    @contextmanager
    def ask(self, headers: Mapping[str, str]) -> Iterator[http.client.HTTPResponse]:
        """The answer with the file itself, after a confirmation if one is asked for."""
        with self._open(self._address, headers) as answer:
            if not _is_page(answer):
                yield answer
                return
            with self._open(_confirmation(answer), headers) as confirmed:
                if _is_page(confirmed):
                    raise Refused("sends a web page even after its confirmation")
                yield confirmed

    def _open(self, address: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        _refuse_other_schemes(address)
        common = {"User-Agent": "dacr", "Accept-Encoding": "identity"}
        try:
            answer: http.client.HTTPResponse = self._opener.open(
                Request(address, headers=common | dict(headers)), timeout=self._timeout
            )
            return answer
        except HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise OutOfRange("cannot go on from where the last download stopped") from None
            kind = Interrupted if error.code in TRANSIENT else Refused
            raise kind(f"HTTP {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Interrupted(_reason(error)) from None
        except ValueError as error:  # a redirect to what is no address
            raise Refused(f"leads to a wrong address ({_reason(error)})") from None


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


def _refuse_other_schemes(address: str) -> None:
    if urlsplit(address).scheme not in ("http", "https"):
        raise Refused(f"leads to {urlsplit(address).scheme}:// addresses")


def _is_page(answer: http.client.HTTPResponse) -> bool:
    return answer.headers.get_content_type() == "text/html"


def _confirmation(answer: http.client.HTTPResponse) -> str:
    """Google Drive asks before it gives a large file; press its button."""
    try:
        content = answer.read(BLOCK).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(_reason(error)) from None
    try:
        page = ConfirmationPage(content)
        if page.confirmation is None:
            raise Refused(f"sends a web page ({page.title or 'without a title'})")
        target = urlsplit(urljoin(answer.url, page.confirmation.action))
    except (AssertionError, ValueError):  # what HTMLParser and urlsplit say to nonsense
        raise Refused("sends a web page that makes no sense") from None
    query = dict(parse_qsl(target.query)) | page.confirmation.fields
    return target._replace(query=urlencode(query)).geturl()


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "breaks off"
    return " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
