"""What ``dacr fetch --check`` finds out about addresses, of which some lie in every way."""

from __future__ import annotations

import hashlib
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dacr import __main__ as command
from dacr.cli import fetch as cli
from dacr.data.checking import FIRST, Finding, examine, prospect_of
from dacr.data.files import RemoteFile
from dacr.data.sources import upstream
from dacr.data.sources.upstream import Published, Release, parse_published
from dacr.errors import UserError
from tests.loopback import Server
from tests.test_download import FORM

DATA = random.Random(1).randbytes(3_000_000)
SHORT = random.Random(2).randbytes(3_000)


pytestmark = pytest.mark.usefixtures("own_downloads")


def remote(*addresses: str, data: bytes = DATA, **facts: object) -> RemoteFile:
    checksum = f"md5:{hashlib.md5(data).hexdigest()}"
    known = {"size": len(data), "checksum": checksum} | facts
    return RemoteFile(name="file.bin", addresses=addresses, **known)


def half_seconds() -> Callable[[], float]:
    """A clock by which every first megabyte takes half a second."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    return clock


def ask(file: RemoteFile, timeout: float = 10.0) -> Finding:
    return examine(file, file.addresses[0], timeout, half_seconds())


def test_a_good_address_is_found_good_by_its_first_megabyte(server: Server) -> None:
    file = remote(server.serve("/file.bin", DATA))
    assert ask(file) == Finding(file, file.addresses[0], True, len(DATA), True, 2e6, None)
    asked = [(request.start, request.last) for request in server.requests]
    assert asked == [(0, FIRST - 1), (1_500_000, 1_500_000)]


def test_a_server_without_ranges_is_hung_up_after_a_megabyte(server: Server) -> None:
    page = {"ranges": False, "chunked": True, "zeros": 256 << 20}
    finding = ask(remote(server.serve("/file.bin", DATA, **page), size=None))
    assert (finding.alive, finding.ranges, finding.fault) == (True, False, None)
    assert server.pages["/file.bin"].sent < 64 << 20  # what the buffers on the way hold


HTML = {"content_type": "text/html"}
LIES: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "gone": ({"statuses": [404]}, {}, "HTTP 404 Not Found"),
    "busy": ({"statuses": [503]}, {}, "HTTP 503"),
    "another size": ({"data": DATA[:-1]}, {}, "offers 2,999,999 bytes instead of 3,000,000"),
    "too small": ({}, {"size": None, "at_least": 10**7}, "bytes, fewer than 10,000,000"),
    "a page": ({"data": b"<title>Quota exceeded</title>", **HTML}, {}, r"page \(Quota exceeded\)"),
    "another range": ({"lies_by": 1}, {}, "another range"),
    "a redirect to a file": ({"redirect": "file:///etc/passwd"}, {}, "file:.* not allowed"),
    "a redirect to nowhere": ({"redirect": "http://[oops/x"}, {}, "leads to a wrong address"),
    "breaks off": ({"cuts": [1000]}, {}, "breaks off after 1,000 bytes"),
    "breaks off in chunks": ({"cuts": [1000], "chunked": True}, {}, "^breaks off$"),
    "no length": (
        {"length": False, "ranges": False},
        {"size": None, "checksum": None},
        "does not say how long",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_is_told(server: Server, lie: str) -> None:
    page, facts, fault = LIES[lie]
    found = ask(remote(server.serve("/file.bin", **{"data": DATA} | page), **facts))
    assert found.fault is not None
    assert re.search(fault, found.fault)
    assert "\n" not in found.fault


@pytest.mark.parametrize("lie", ["silent", "not listening"])
def test_no_answer_is_told(server: Server, lie: str) -> None:
    address = server.serve("/file.bin", DATA, cuts=[0], stall=2.0)
    found = ask(remote(address if lie == "silent" else "http://127.0.0.1:9/x"), timeout=0.5)
    assert found.fault
    assert found.rate is None


def test_a_server_that_always_begins_at_0_cannot_go_on(server: Server) -> None:
    found = ask(remote(server.serve("/file.bin", DATA, stubborn=True)))
    assert (found.alive, found.ranges, found.fault) == (True, False, None)


def test_a_server_that_gives_less_than_asked_for_is_good(server: Server) -> None:
    found = ask(remote(server.serve("/file.bin", DATA, most=200_000)))
    assert (found.size, found.ranges, found.rate) == (len(DATA), True, 400_000)


def test_a_short_file_is_compared_by_its_checksum(server: Server) -> None:
    right = remote(server.serve("/file.bin", SHORT), data=SHORT)
    assert ask(right).fault is None
    wrong = remote(server.serve("/file.bin", SHORT[::-1]), data=SHORT)
    assert "sends another file (md5" in (ask(wrong).fault or "")


def test_googles_confirmation_is_confirmed(server: Server) -> None:
    asked = server.serve("/uc", FORM.encode(), content_type="text/html")
    server.serve("/download", DATA, needs_query={"confirm": "t"})
    found = ask(remote(asked))
    assert (found.alive, found.size, found.fault) == (True, len(DATA), None)


def test_a_password_is_not_shown(server: Server) -> None:
    address = server.address("/gone?token=secret").replace("127.", "user:word@127.")
    file = remote(address)
    finding = examine(file, address, 5.0, half_seconds())
    row = " ".join(cli.tell("mnist", finding))
    assert "word" not in row
    assert "secret" not in row


# Releases ----------------------------------------------------------------------------------------


def prospect(release: Release, **rates: float) -> object:
    (file,) = release.files
    findings = [
        Finding(file, address, True, 10_000_000, True, rates[address[-1]])
        for address in file.addresses
    ]
    return prospect_of(release, findings)


def test_the_first_address_that_is_not_slow_is_taken(server: Server) -> None:
    file = remote("http://host/a", "http://host/b", "http://host/c", size=10_000_000)
    release = Release(files=(file,))
    taken = prospect(release, a=1e5, b=1e6, c=9e6)
    assert taken.best(file).address == "http://host/b"
    assert (taken.size, taken.seconds) == (10_000_000, 10.0)
    slow = prospect(release, a=1e4, b=1e5, c=5e4)
    assert slow.best(file).address == "http://host/b"


# The command -------------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Published]:
    """In place of conf/sources.yaml."""
    known: dict[str, Published] = {}
    monkeypatch.setattr(upstream, "published_sources", lambda: known)
    return known


def entry(server: Server, name: str, data: bytes = DATA, **page: object) -> dict[str, object]:
    address = server.serve(f"/{name}", data, **page)
    checksum = f"md5:{hashlib.md5(data).hexdigest()}"
    return {name: {"addresses": [address], "size": len(data), "checksum": checksum}}


def check(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dacr", "fetch", "--check", *words])
    with pytest.raises(SystemExit) as end:
        command.main()
    return int(end.value.code or 0)


def test_a_benchmark_is_told_in_a_table(
    server: Server,
    table: dict[str, Published],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, dead = entry(server, "good.mat"), entry(server, "dead.mat", statuses=[404])
    whole = parse_published({"counts": None, "releases": [{"files": good}]})
    second = {"files": good, "warning": "not confirmed"}
    spare = parse_published({"counts": None, "releases": [{"files": dead}, second]})
    table |= {"mnist": whole, "svhn": whole, "mnist_m": spare, "usps": spare}
    assert check(monkeypatch, "idigits_cpu") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == list(cli.HEADER)
    rows = [line.split() for line in told if "127.0.0.1" in line]
    assert [row[:2] for row in rows] == [["mnist", "good.mat"], ["mnist_m", "dead.mat"]]
    assert rows[0][3:6] == ["yes", "3,000,000", "yes"]
    assert rows[1][3] == "no"
    assert told[-2].endswith("(release 2 of 2: good.mat); not confirmed")
    assert told[-1].startswith("idigits_cpu: 12 MB, about ")


def test_a_source_that_cannot_be_had_ends_the_command_badly(
    server: Server,
    table: dict[str, Published],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    half = entry(server, "good.mat") | entry(server, "bad.mat", statuses=[404])
    table["cifar100"] = parse_published({"counts": None, "releases": [{"files": half}]})
    assert check(monkeypatch, "icifar20") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "NOT READY  cifar100: no good address for bad.mat; see docs/data.md"


def test_what_a_mirror_or_this_machine_has_is_not_asked_for(
    server: Server,
    table: dict[str, Published],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = entry(server, "good.mat")
    table["cifar100"] = parse_published({"counts": None, "releases": [{"files": files}]})
    (tmp_path / "cifar100.npz").write_bytes(b"")
    monkeypatch.setenv("DACR_MIRROR", str(tmp_path))
    assert check(monkeypatch, "icifar20_cpu") == 0
    assert check(monkeypatch, "idigits_mini") == 0
    told = capsys.readouterr().out
    assert "ready      cifar100: the mirror has it" in told
    assert "ready      street: is made from what is on this machine" in told
    assert server.requests == []


def test_an_unknown_benchmark_is_one_line() -> None:
    arguments = command.parse(["fetch", "--check", "idigit"])
    with pytest.raises(UserError, match=r"no benchmark 'idigit'; the known ones are .*icifar20,"):
        arguments.run(arguments)


def test_without_check_nothing_is_done() -> None:
    with pytest.raises(SystemExit):
        command.parse(["fetch", "idigits"])
