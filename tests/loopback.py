"""A real HTTP server on loopback that can be slow, cut off, forgetful, wrong, or gone."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Page:
    """What is served at one path, and how badly."""

    data: bytes = b""
    ranges: bool = True
    versioned: bool = True
    length: bool = True
    chunked: bool = False
    content_type: str = "application/octet-stream"
    most: int | None = None  # bytes of one range
    stubborn: bool = False  # a range always begins at 0
    lies_by: int = 0  # a range says that it begins so many bytes later
    unknown_size: bool = False  # a range says '*' in place of it
    zeros: int = 0  # with ``chunked``: so many follow the data …
    sent: int = 0  # … and so many were sent before the client hung up
    cuts: list[int] = field(default_factory=list)  # bytes sent before each of the next answers ends
    statuses: list[int] = field(default_factory=list)  # of the next answers
    redirect: str | None = None
    stall: float = 0.0  # seconds of silence before a cut answer ends
    drip: float = 0.0  # seconds between blocks
    needs_query: dict[str, str] = field(default_factory=dict)
    needs_cookie: str | None = None
    gives_cookie: str | None = None

    @property
    def version(self) -> str:
        return f'"{hashlib.sha256(self.data).hexdigest()[:16]}"'


@dataclass
class Request:
    path: str
    start: int | None
    if_range: str | None
    last: int | None = None


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, Page] = {}
        self.requests: list[Request] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many tests are about."""

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def serve(self, path: str, data: bytes = b"", **how: object) -> str:
        self.pages[path] = Page(data, **how)
        return self.address(path)

    @property
    def starts(self) -> list[int | None]:
        """Where each request asked to begin."""
        return [request.start for request in self.requests]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = self.headers.get("Range")
        first, _, last = (asked or "").removeprefix("bytes=").partition("-")
        start, self.last = (int(number) if number else None for number in (first, last))
        request = Request(url.path, start, self.headers.get("If-Range"), self.last)
        self.server.requests.append(request)
        page = self.server.pages.get(url.path)
        self.close_connection = True
        if page is None or page.needs_query.items() - dict(parse_qsl(url.query)).items():
            self.send_error(404)
        elif page.needs_cookie and page.needs_cookie not in self.headers.get("Cookie", ""):
            self.send_error(403)
        elif page.statuses:
            self.send_error(page.statuses.pop(0))
        elif page.redirect:
            self.send_response(302)
            self.send_header("Location", page.redirect)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.wants_part(page, start) and start >= len(page.data):
            self.send_error(416)
        else:
            self.give(page, start)

    def wants_part(self, page: Page, start: int | None) -> bool:
        return (
            start is not None and page.ranges and self.headers["If-Range"] in (None, page.version)
        )

    def give(self, page: Page, start: int | None) -> None:
        partial = self.wants_part(page, start) or page.stubborn
        start = 0 if page.stubborn else start
        end = None if self.last is None else self.last + 1
        body = page.data[start:end][: page.most] if partial else page.data
        self.send_response(206 if partial else 200)
        self.send_header("Content-Type", page.content_type)
        if partial:
            last, size = start + len(body) - 1, "*" if page.unknown_size else len(page.data)
            self.send_header("Content-Range", f"bytes {start + page.lies_by}-{last}/{size}")
        if page.versioned:
            self.send_header("ETag", page.version)
        if page.gives_cookie:
            self.send_header("Set-Cookie", page.gives_cookie)
        if page.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif page.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.send_body(page, body)

    def send_body(self, page: Page, body: bytes) -> None:
        cut = page.cuts.pop(0) if page.cuts else None
        sent = body if cut is None else body[:cut]
        for i in range(0, len(sent), 1 << 14):
            block = sent[i : i + (1 << 14)]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if page.chunked else block)
            self.wfile.flush()
            time.sleep(page.drip)
        while page.sent < page.zeros:
            self.wfile.write(b"%x\r\n%b\r\n" % (1 << 16, bytes(1 << 16)))
            page.sent += 1 << 16
        if cut is not None:
            time.sleep(page.stall)
        elif page.chunked:
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def running_server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
