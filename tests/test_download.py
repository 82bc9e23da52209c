"""A download gives the right bytes or a clear error, whatever the server does."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dacr.data import download, pace
from dacr.data.download import Unreachable, fetch_file
from dacr.data.files import Fingerprint, RemoteFile, land
from dacr.errors import UserError
from tests.loopback import Server

DATA = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
MD5 = f"md5:{hashlib.md5(DATA).hexdigest()}"
SHA256 = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
GONE = "http://127.0.0.1:9/file.bin"  # the discard port: nobody listens


@pytest.fixture(autouse=True)
def root(tmp_path: Path, own_downloads: None) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path


def published(
    *addresses: str, size: int | None = None, checksum: str | list[str] | None = MD5
) -> RemoteFile:
    return RemoteFile(name="file.bin", addresses=addresses, size=size, checksum=checksum)


def fetch(file: RemoteFile, root: Path, timeout: float = 10.0) -> list[float]:
    """Fetch to ``raw``; return the pauses that were made."""
    pauses: list[float] = []
    fetch_file(file, root / "raw", pause=pauses.append, timeout=timeout)
    return pauses


def fetched(root: Path) -> bytes:
    return (root / "raw" / "file.bin").read_bytes()


def landed(root: Path) -> list[str]:
    return [path.name for path in (root / "raw").iterdir()]


def parts(root: Path) -> list[Path]:
    return list((root / "root" / ".dacr" / "downloads").glob("*.part"))


@pytest.mark.parametrize("checksum", [MD5, SHA256, None])
def test_a_whole_file_lands_and_leaves_no_part(
    server: Server, root: Path, checksum: str | None
) -> None:
    address = server.serve("/file.bin", DATA)
    pauses: list[float] = []
    fingerprint = fetch_file(
        published(address, size=len(DATA), checksum=checksum), root / "raw", pause=pauses.append
    )
    assert fetched(root) == DATA
    assert fingerprint == Fingerprint(len(DATA), MD5[4:], SHA256[7:])
    assert landed(root) == ["file.bin"]
    assert parts(root) == []
    assert pauses == []


def test_an_interrupted_download_goes_on_where_it_stopped(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, cuts=[100_000, 50_000])
    pauses = fetch(published(address), root)
    assert fetched(root) == DATA
    assert server.starts == [None, 100_000, 150_000]
    assert server.requests[1].if_range is not None
    assert len(pauses) == 2


def test_a_download_that_goes_on_a_little_each_time_is_not_given_up(
    server: Server, root: Path
) -> None:
    address = server.serve("/file.bin", DATA, cuts=[30_000] * 8)
    assert fetch(published(address), root) == [2.0] * 8
    assert fetched(root) == DATA


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, cuts=[120_000, 0, 0, 0])
    with pytest.raises(Unreachable, match="broke off after 120,000 of 300,000 bytes"):
        fetch(published(address), root)
    assert landed(root) == []
    fetch(published(address), root)
    assert fetched(root) == DATA
    assert server.starts[-1] == 120_000


def test_a_server_without_ranges_is_asked_from_the_beginning(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, ranges=False, cuts=[200_000])
    fetch(published(address), root)
    assert fetched(root) == DATA


def test_a_file_that_changed_meanwhile_is_not_glued_to_its_old_half(
    server: Server, root: Path
) -> None:
    address = server.serve("/file.bin", DATA, cuts=[100_000, 0, 0, 0])
    with pytest.raises(Unreachable):
        fetch(published(address, checksum=None), root)
    server.serve("/file.bin", OTHER)
    fetch(published(address, checksum=None), root)
    assert fetched(root) == OTHER


def test_without_version_and_checksum_nothing_is_resumed(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, versioned=False, cuts=[100_000])
    fetch(published(address, checksum=None), root)
    assert fetched(root) == DATA
    assert server.starts == [None, None]


def test_a_half_file_of_one_mirror_is_finished_by_the_next(server: Server, root: Path) -> None:
    first = server.serve("/first", DATA, cuts=[100_000, 0, 0, 0])
    second = server.serve("/second", DATA)
    fetch(published(first, second), root)
    assert fetched(root) == DATA
    assert server.requests[-1].path == "/second"
    assert server.requests[-1].start == 100_000


def test_without_a_checksum_no_mirror_goes_on_from_the_half_of_another(
    server: Server, root: Path
) -> None:
    first = server.serve("/first", DATA, cuts=[100_000, 0, 0, 0])
    second = server.serve("/second", DATA)
    fetch(published(first, second, checksum=None), root)
    assert fetched(root) == DATA
    assert server.requests[-1].start is None


def test_a_wrong_half_of_one_mirror_does_not_spoil_the_next(server: Server, root: Path) -> None:
    first = server.serve("/first", OTHER, cuts=[100_000, 0, 0, 0])
    second = server.serve("/second", DATA)
    fetch(published(first, second), root)
    assert fetched(root) == DATA


def test_wrong_content_is_refused_and_the_next_mirror_asked(server: Server, root: Path) -> None:
    wrong, right = server.serve("/wrong", OTHER), server.serve("/right", DATA)
    assert fetch(published(wrong, right), root) == []
    assert fetched(root) == DATA


def test_wrong_content_everywhere_is_an_error_that_names_both_sums(
    server: Server, root: Path
) -> None:
    file = published(server.serve("/file.bin", OTHER))
    other = hashlib.md5(OTHER).hexdigest()
    with pytest.raises(Unreachable, match=f"another file .md5 {other} instead of {MD5[4:]}") as e:
        fetch(file, root)
    assert "\n" not in str(e.value)
    assert "DACR_MIRROR" in str(e.value)
    assert landed(root) == []
    assert parts(root) == []


def test_wrong_content_that_always_breaks_off_is_given_up(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", OTHER, cuts=[100_000, 300_000] * 50)
    with pytest.raises(Unreachable, match="another file"):
        fetch(published(address), root)
    assert len(server.requests) == 4


@pytest.mark.parametrize("wrong", [0, 1])
def test_of_two_checksums_both_must_be_right(server: Server, root: Path, wrong: int) -> None:
    sums = [MD5, SHA256]
    file = published(server.serve("/file.bin", DATA), checksum=sums)
    fetch(file, root)
    sums[wrong] = sums[wrong][:-1] + ("0" if sums[wrong][-1] != "0" else "1")
    with pytest.raises(Unreachable, match=f"another file .{sums[wrong][:3]}.* instead of"):
        fetch(published(server.serve("/file.bin", DATA), checksum=sums), root)


def test_a_wrong_size_is_refused_before_it_is_downloaded(server: Server, root: Path) -> None:
    file = published(server.serve("/file.bin", DATA), size=len(DATA) + 1)
    with pytest.raises(Unreachable, match="offers 300,000 bytes instead of 300,001"):
        fetch(file, root)
    assert parts(root) == []


def test_a_passing_fault_is_waited_out_ever_longer(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, statuses=[503, 429, 500])
    assert fetch(published(address), root) == [2.0, 4.0, 8.0]
    assert fetched(root) == DATA


def test_a_lasting_fault_is_not_waited_for(server: Server, root: Path) -> None:
    right = server.serve("/right", DATA)
    assert fetch(published(server.address("/gone"), right), root) == []
    assert fetched(root) == DATA


def test_when_all_are_gone_each_address_says_why(server: Server, root: Path) -> None:
    with pytest.raises(Unreachable) as e:
        fetch(published(GONE, server.address("/gone")), root)
    message = str(e.value)
    assert "\n" not in message
    assert "127.0.0.1:9: " in message
    assert "refused" in message
    assert f"127.0.0.1:{server.server_port}: HTTP 404" in message


def test_redirects_are_followed(server: Server, root: Path) -> None:
    server.serve("/file.bin", DATA)
    fetch(published(server.serve("/old", redirect="/file.bin")), root)
    assert fetched(root) == DATA


def test_a_redirect_to_a_local_file_is_refused(server: Server, root: Path) -> None:
    secret = root / "secret"
    secret.write_bytes(DATA)
    with pytest.raises(Unreachable):
        fetch(published(server.serve("/old", redirect=f"file://{secret}")), root)


@pytest.mark.parametrize(
    "redirect",
    ["http://[oops/x", f"http://{'a' * 70}.example/x", "ftp://127.0.0.1:9/x"],
)
def test_a_redirect_to_nowhere_is_one_line_and_the_next_mirror_is_asked(
    server: Server, root: Path, redirect: str
) -> None:
    wrong, right = server.serve("/old", redirect=redirect), server.serve("/right", DATA)
    with pytest.raises(Unreachable, match="leads to") as error:
        fetch(published(wrong), root)
    assert "\n" not in str(error.value)
    fetch(published(wrong, right), root)
    assert fetched(root) == DATA


def test_ftp_is_not_even_called(server: Server, root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ftp:
        ftp.settimeout(0.2)
        address = f"ftp://127.0.0.1:{ftp.getsockname()[1]}/x"
        with pytest.raises(Unreachable, match="leads to ftp:// addresses"):
            fetch(published(server.serve("/old", redirect=address)), root)
        with pytest.raises(TimeoutError):
            ftp.accept()


@pytest.mark.parametrize("unknown_size", [False, True])
@pytest.mark.parametrize("checksum", [MD5, None])
def test_a_server_that_gives_less_than_was_asked_for_is_asked_on(
    server: Server, root: Path, checksum: str | None, unknown_size: bool
) -> None:
    how = {"cuts": [100_000], "most": 50_000, "unknown_size": unknown_size}
    address = server.serve("/file.bin", DATA, **how)
    fetch(published(address, size=len(DATA), checksum=checksum), root)
    assert fetched(root) == DATA
    assert server.starts == [None, *range(100_000, 300_000, 50_000)]


def test_a_short_range_does_not_pass_for_the_whole_where_nothing_is_known(
    server: Server, root: Path
) -> None:
    address = server.serve("/file.bin", DATA, cuts=[100_000], most=50_000)
    fetch(published(address, checksum=None), root)
    assert fetched(root) == DATA


def test_a_server_that_always_gives_the_same_range_is_left_soon(server: Server, root: Path) -> None:
    wrong = server.serve("/wrong", DATA, stubborn=True, most=50_000)
    with pytest.raises(Unreachable, match="sends another range than the one asked for"):
        fetch(published(wrong), root)
    assert len(server.requests) == 4
    fetch(published(wrong, server.serve("/right", DATA)), root)
    assert fetched(root) == DATA


def test_a_body_without_end_is_left_when_it_is_too_long(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, chunked=True, zeros=256 << 20)
    with pytest.raises(Unreachable, match=r"another file \(.* bytes instead of 300,000\)"):
        fetch(published(address, size=len(DATA)), root)
    assert server.pages["/file.bin"].sent < 64 << 20  # what the buffers on the way hold


def test_a_new_address_goes_on_from_the_part_of_a_dead_one(server: Server, root: Path) -> None:
    dead = server.serve("/dead", DATA, cuts=[200_000, 0, 0, 0])
    with pytest.raises(Unreachable):
        fetch(published(dead), root)
    alive = server.serve("/alive", DATA)
    fetch(published(alive, dead), root)
    assert fetched(root) == DATA
    assert (server.requests[-1].path, server.requests[-1].start) == ("/alive", 200_000)


def test_a_silent_server_is_left_and_asked_again(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, cuts=[100_000], stall=6.0)
    pauses = fetch(published(address), root, timeout=3.0)
    assert fetched(root) == DATA
    assert pauses == [2.0]


def test_a_slow_server_is_given_time(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, drip=0.15)  # 19 times
    assert fetch(published(address), root, timeout=2.0) == []
    assert fetched(root) == DATA


BIG = random.Random(3).randbytes(6_000_000)
BIG_MD5 = f"md5:{hashlib.md5(BIG).hexdigest()}"


class SlowClock:
    """A clock by which each block of some addresses takes long, without anybody waiting.

    Blocks have any size up to a megabyte, and the file six: seconds that differ by powers of ten
    make rates that differ for sure.
    """

    def __init__(self, server: Server, seconds: dict[str, float]) -> None:
        self._server, self._seconds, self._now = server, seconds, 0.0

    def __call__(self) -> float:
        path = self._server.requests[-1].path if self._server.requests else ""
        self._now += self._seconds.get(path, 0.0)
        return self._now


def fetch_by_clock(file: RemoteFile, root: Path, server: Server, **seconds: float) -> None:
    clock = SlowClock(server, {f"/{name}": each for name, each in seconds.items()})
    fetch_file(file, root / "raw", pause=lambda _: None, clock=clock)


def test_a_crawling_address_is_left_and_the_next_one_goes_on_from_its_part(
    server: Server, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = server.serve("/first", BIG), server.serve("/second", BIG)
    file = published(first, second, checksum=BIG_MD5)
    fetch_by_clock(file, root, server, first=60.0)
    assert fetched(root) == BIG
    asked = [(request.path, request.start) for request in server.requests]
    assert [path for path, _ in asked] == ["/first", "/second"]
    assert asked[1][1] is not None
    assert asked[1][1] > 0
    host = f"127.0.0.1:{server.server_port}"
    line = rf"file\.bin: {host} sends \d+ kB/s, less than 200 kB/s: left for now"
    (told,) = (line for line in capsys.readouterr().out.splitlines() if "left" in line)
    assert re.fullmatch(line, told)


def test_an_address_that_is_silent_for_long_is_left_as_a_crawling_one(
    server: Server, root: Path
) -> None:
    silent, second = server.serve("/silent", BIG, cuts=[0, 0, 0]), server.serve("/second", BIG)
    fetch_by_clock(published(silent, second, checksum=BIG_MD5), root, server, silent=60.0)
    assert fetched(root) == BIG
    assert [request.path for request in server.requests] == ["/silent", "/second"]


def test_when_all_crawl_the_fastest_one_goes_on(
    server: Server, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("first", "second", "third")
    file = published(*(server.serve(f"/{name}", BIG) for name in names), checksum=BIG_MD5)
    fetch_by_clock(file, root, server, first=1e9, second=25.0, third=1e6)
    assert fetched(root) == BIG
    assert [request.path for request in server.requests] == [
        *("/first", "/second", "/third"),
        "/second",
    ]
    assert "file.bin: no address is faster; 127.0.0.1" in capsys.readouterr().out


def test_a_crawling_address_that_dies_leaves_it_to_the_next_crawling_one(
    server: Server, root: Path
) -> None:
    first, second = server.serve("/first", BIG), server.serve("/second", BIG)
    file = published(first, second, checksum=BIG_MD5)
    clock = SlowClock(server, {"/first": 1e6, "/second": 25.0})

    def dying() -> float:
        paths = [request.path for request in server.requests]
        if paths[-1:] == ["/second"]:
            server.pages["/second"].statuses = [404]  # of its next answer
        return clock()

    fetch_file(file, root / "raw", pause=lambda _: None, clock=dying)
    assert fetched(root) == BIG
    assert [request.path for request in server.requests] == [
        *("/first", "/second"),
        *("/second", "/first"),
    ]


@pytest.mark.parametrize("case", ["one address", "no checksum", "the other one is dead"])
def test_an_address_is_not_left_for_nothing(server: Server, root: Path, case: str) -> None:
    slow, dead = server.serve("/slow", BIG), server.address("/dead")
    addresses = {"one address": [slow], "no checksum": [slow, slow]}.get(case, [dead, slow])
    file = published(*addresses, checksum=None if case == "no checksum" else BIG_MD5)
    fetch_by_clock(file, root, server, slow=60.0)
    assert fetched(root) == BIG
    assert [request.path for request in server.requests].count("/slow") == 1


def test_what_is_nearly_there_is_waited_for(server: Server, root: Path) -> None:
    """300 kB in two blocks or three, a second each after the window: less than another window."""
    first, second = server.serve("/first", DATA, drip=0.01), server.serve("/second", DATA)
    fetch_by_clock(published(first, second, size=len(DATA)), root, server, first=1.5)
    assert {request.path for request in server.requests} == {"/first"}


@given(
    st.lists(st.tuples(st.floats(0.01, 30), st.integers(0, 10_000_000)), max_size=30),
    st.integers(0, 10**9),
)
def test_a_pace_is_refused_only_after_a_slow_window(
    steps: list[tuple[float, int]], left: int
) -> None:
    now = [0.0]
    watched = pace.Pace(lambda: now[0])
    since, came = 0.0, 0
    for seconds, amount in steps:
        now[0] += seconds
        came += amount
        passed = now[0] - since
        slow = passed >= pace.WINDOW and came / passed < pace.LEAST
        if slow and left > came / passed * pace.WINDOW:
            with pytest.raises(pace.Crawls):
                watched.step(amount, left)
            return
        watched.step(amount, left)
        if passed >= pace.WINDOW:
            since, came = now[0], 0


@pytest.mark.parametrize("checksum", [MD5, None])
def test_chunks_that_break_off_are_noticed(
    server: Server, root: Path, checksum: str | None
) -> None:
    address = server.serve("/file.bin", DATA, chunked=True, cuts=[100_000])
    fetch(published(address, checksum=checksum), root)
    assert fetched(root) == DATA
    assert len(server.requests) == 2


def test_a_file_of_unknown_length_is_taken_only_with_a_checksum(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, length=False)
    with pytest.raises(Unreachable, match="does not say how long"):
        fetch(published(address, checksum=None), root)
    fetch(published(address), root)
    assert fetched(root) == DATA


def test_half_a_file_of_unknown_length_is_refused(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, length=False, cuts=[100_000])
    with pytest.raises(Unreachable, match="another file"):
        fetch(published(address), root)
    assert landed(root) == []


FORM = """<!DOCTYPE html><html><head><title>Google Drive - Virus scan warning</title></head><body>
<form action="/search" method="get"><input type="hidden" name="q" value="x"></form>
<form id="download-form" action="/download?source=page" method="get">
<input type="submit" value="Download anyway"/><input type="hidden" name="id" value="F1"/>
<input type="hidden" name="confirm" value="t"/><input type="hidden" name="uuid" value="a&amp;b"/>
</form></body></html>"""


def test_googles_confirmation_page_is_confirmed(server: Server, root: Path) -> None:
    asked = server.serve(
        "/uc", FORM.encode(), content_type="text/html; charset=utf-8", gives_cookie="NID=7"
    )
    query = {"id": "F1", "confirm": "t", "uuid": "a&b", "source": "page"}
    page = {"needs_query": query, "needs_cookie": "NID=7", "cuts": [100_000]}
    server.serve("/download", DATA, **page)
    fetch(published(f"{asked}?id=F1", checksum=None), root)
    assert fetched(root) == DATA
    assert server.requests[-1].start == 100_000


def test_any_other_page_is_refused_by_its_title(server: Server, root: Path) -> None:
    page = b"<html><head><title>Quota\n exceeded</title></head><form action='/x'></form></html>"
    file = published(server.serve("/uc", page, content_type="text/html"), checksum=None)
    with pytest.raises(Unreachable, match=r"sends a web page \(Quota exceeded\)"):
        fetch(file, root)


@pytest.mark.parametrize(
    "page",
    [
        b"<html><![oops[ x ]]><title>Nope</title></html>",
        b'<form action="http://[oops/x"><input type="hidden" name="confirm" value="t"></form>',
        b'<form action="file:///x"><input type="hidden" name="confirm" value="t"></form>',
    ],
)
def test_a_page_of_nonsense_is_refused_and_the_next_mirror_asked(
    server: Server, root: Path, page: bytes
) -> None:
    wrong = server.serve("/uc", page, content_type="text/html")
    with pytest.raises(Unreachable, match=r"a web page that makes no sense|leads to file://"):
        fetch(published(wrong), root)
    fetch(published(wrong, server.serve("/right", DATA)), root)
    assert fetched(root) == DATA


def test_a_page_after_the_confirmation_is_refused(server: Server, root: Path) -> None:
    asked = server.serve("/uc", FORM.encode(), content_type="text/html")
    server.serve("/download", b"<html>quota</html>", content_type="text/html")
    with pytest.raises(Unreachable, match="even after its confirmation"):
        fetch(published(asked, checksum=None), root)


@pytest.mark.parametrize("garbage", [OTHER[:1000], OTHER, OTHER + b"x"])
@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_spoilt_part_is_thrown_away(
    server: Server, root: Path, garbage: bytes, size: int | None
) -> None:
    address = server.serve("/file.bin", DATA, cuts=[100_000, 0, 0, 0])
    file = published(address, size=size)
    with pytest.raises(Unreachable):
        fetch(file, root)
    (part,) = parts(root)
    part.write_bytes(garbage)
    pauses = fetch(file, root)
    assert pauses == [] or size is None
    assert fetched(root) == DATA


def test_a_killed_download_leaves_nothing_half_and_goes_on(server: Server, root: Path) -> None:
    address = server.serve("/file.bin", DATA, drip=0.05)
    file = published(address)
    script = (
        "import sys; from pathlib import Path; from dacr.data.download import *;"
        "fetch_file(RemoteFile.model_validate_json(sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", script, file.model_dump_json(), str(root / "raw")]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1])
    begun = root / "root/.dacr/downloads"
    while not any(part.stat().st_size for part in begun.glob("*.part")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert landed(root) == []
    server.pages["/file.bin"].drip = 0
    fetch(file, root)
    assert fetched(root) == DATA


def test_two_downloads_of_one_file_do_not_mix(server: Server, root: Path) -> None:
    file = published(server.serve("/file.bin", DATA, drip=0.005))
    folders = [root / "raw", root / "raw2"]
    folders[1].mkdir()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda folder: fetch_file(file, folder), folders))
    assert [(folder / "file.bin").read_bytes() for folder in folders] == [DATA, DATA]


def kept(root: Path) -> list[Path]:
    return list((root / "root" / ".dacr" / "downloads").glob("*.whole"))


def test_a_finished_file_is_there_again_after_its_folder_was_emptied(
    server: Server, root: Path
) -> None:
    """As DVC empties an out before it runs the stage again."""
    file = published(server.serve("/file.bin", DATA))
    for _ in range(3):
        fetch(file, root)
        assert fetched(root) == DATA
        (root / "raw" / "file.bin").unlink()
    assert len(server.requests) == 1
    download.forget_kept([file])
    assert kept(root) == []


def test_a_kept_file_takes_no_second_room(server: Server, root: Path) -> None:
    file = published(server.serve("/file.bin", DATA))
    for _ in range(2):
        fetch(file, root)
        (whole,) = kept(root)
        assert whole.samefile(root / "raw" / "file.bin")
        (root / "raw" / "file.bin").unlink()


def test_two_outs_never_share_a_file(server: Server, root: Path) -> None:
    """DVC may make one of them read-only, or the link to its cache."""
    file = published(server.serve("/file.bin", DATA))
    (root / "raw2").mkdir()
    first, second = root / "raw" / "file.bin", root / "raw2" / "file.bin"
    fetch_file(file, first.parent)
    fetch_file(file, second.parent)
    assert second.read_bytes() == DATA
    assert not second.samefile(first)
    assert len(server.requests) == 1


def test_a_kept_file_that_was_changed_is_fetched_again(server: Server, root: Path) -> None:
    file = published(server.serve("/file.bin", DATA))
    fetch(file, root)
    (root / "raw" / "file.bin").write_bytes(OTHER)  # by whoever edits data/raw
    fetch(file, root)
    assert fetched(root) == DATA
    assert len(server.requests) == 2


def test_without_a_checksum_no_kept_file_is_believed(server: Server, root: Path) -> None:
    file = published(server.serve("/file.bin", DATA), size=len(DATA), checksum=None)
    for _ in range(2):
        fetch(file, root)
    assert len(server.requests) == 2


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cuts=st.lists(st.integers(0, 300_000), max_size=6),
    ranges=st.booleans(),
    versioned=st.booleans(),
    chunked=st.booleans(),
    checked=st.booleans(),
)
def test_however_it_breaks_off_the_bytes_are_right_or_absent(
    server: Server,
    *,
    cuts: list[int],
    ranges: bool,
    versioned: bool,
    chunked: bool,
    checked: bool,
) -> None:
    how = {"cuts": cuts, "ranges": ranges, "versioned": versioned, "chunked": chunked}
    file = published(server.serve("/file.bin", DATA, **how), checksum=MD5 if checked else None)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file.bin"
        download.forget_kept([file])  # of the example before
        try:
            fetch_file(file, Path(folder), pause=lambda _: None)
        except Unreachable:
            assert not target.exists()
        else:
            assert target.read_bytes() == DATA


def test_the_mirror_is_asked_first(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = root / "mirror"
    mirror.mkdir()
    (mirror / "file.bin").write_bytes(DATA)
    monkeypatch.setenv("DACR_MIRROR", str(mirror))
    fetch(published(server.serve("/file.bin", DATA)), root)
    assert fetched(root) == DATA
    assert server.requests == []


def test_a_wrong_file_in_the_mirror_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file.bin").write_bytes(OTHER)
    monkeypatch.setenv("DACR_MIRROR", str(root))
    with pytest.raises(UserError, match=r"file\.bin is not the published file .*replace or remove"):
        fetch(published(GONE), root)
    assert landed(root) == []


def test_a_mirror_that_is_no_folder_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DACR_MIRROR", str(root / "nowhere"))
    with pytest.raises(UserError, match="is not a folder"):
        fetch(published(GONE), root)


def test_a_full_disk_is_told_before_the_download(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = download.shutil.disk_usage(root)._replace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"file\.bin needs .* free some space"):
        fetch(published(server.serve("/file.bin", DATA)), root)


def test_a_file_lands_on_another_file_system(root: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == root.stat().st_dev:
        pytest.skip("needs a second file system, /dev/shm")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        source = Path(folder) / "part"
        source.write_bytes(DATA)
        land(source, root / "raw" / "file.bin")
        assert not source.exists()
    assert fetched(root) == DATA
    assert landed(root) == ["file.bin"]


def test_progress_is_plain_lines_outside_a_terminal(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = iter(range(0, 10_000, 6))
    monkeypatch.setattr(download.time, "monotonic", lambda: next(ticks))
    big = DATA * 8
    checksum = f"md5:{hashlib.md5(big).hexdigest()}"
    fetch(published(server.serve("/file.bin", big), checksum=checksum), root)
    assert capsys.readouterr().out.splitlines()[-1] == "file.bin: 2 of 2 MB, 0 per second"


@pytest.mark.parametrize(
    "facts",
    [
        {"addresses": ["ftp://host/file"]},
        {"addresses": ["file:///etc/passwd"]},
        {"addresses": ["http://[::1/file"]},
        {"checksum": "md5:123"},
        {"checksum": "crc:00000000000000000000000000000000"},
        {"name": "../file"},
        {"extra": 1},
    ],
)
def test_the_table_takes_only_what_can_be_checked(facts: dict[str, object]) -> None:
    good = {"name": "file", "addresses": [GONE], "size": None, "checksum": None}
    RemoteFile.model_validate(good)
    with pytest.raises(ValueError, match="1 validation error"):
        RemoteFile.model_validate(good | facts)


def test_the_scratch_folder_is_outside_the_outs(root: Path) -> None:
    assert download.scratch_folder() == root / "root" / ".dacr" / "downloads"
