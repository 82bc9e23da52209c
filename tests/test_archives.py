"""Archives are hostile until proved otherwise: what is asked for comes out, or one clear line."""

from __future__ import annotations

import builtins
import gzip
import io
import os
import pickle
import resource
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy.io import savemat

from dacr.data import archives
from dacr.data.archives import (
    open_zip,
    read_gzip,
    read_npz,
    read_plain_pickle,
    read_tar_gz,
    read_tensors,
    refuse_large_matlab,
)
from dacr.errors import UserError
from tests import python2_pickle

BOMB = 80 << 20  # unpacked bytes; 1,000 times more than packed


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def member(name: str, kind: bytes = tarfile.REGTYPE, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, setting in attributes.items():
        setattr(info, key, setting)
    return info


def make_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


GOOD = (member("data/good"), b"good")


def test_only_the_named_members_come_out(tmp_path: Path) -> None:
    path = make_tar(
        tmp_path / "a.tar.gz",
        (member("data", tarfile.DIRTYPE), b""),
        GOOD,
        (member("./data/also"), b"also"),
        (member("data/rest"), b"rest"),
    )
    assert read_tar_gz(path, ["data/good", "data/also"]) == {
        "data/good": b"good",
        "data/also": b"also",
    }
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar.gz"]


HOSTILE_MEMBERS = [
    member("../../evil"),
    member("data/../../evil"),
    member("/etc/cron.d/evil"),
    member("C:/evil"),
    member("data\\..\\evil"),
    member("data/link", tarfile.SYMTYPE, linkname="/etc/passwd"),
    member("data/hard", tarfile.LNKTYPE, linkname="data/good"),
    member("data/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
    member("data/disk", tarfile.BLKTYPE, devmajor=8),
    member("data/pipe", tarfile.FIFOTYPE),
]


@pytest.mark.parametrize("hostile", HOSTILE_MEMBERS, ids=lambda info: info.name)
@pytest.mark.parametrize("first", [True, False])
def test_a_hostile_member_refuses_the_whole_tar(
    tmp_path: Path, hostile: tarfile.TarInfo, first: bool
) -> None:
    members = [(hostile, b""), GOOD] if first else [GOOD, (hostile, b"")]
    path = make_tar(tmp_path / "a.tar.gz", *members)
    with pytest.raises(UserError, match="refused") as error:
        read_tar_gz(path, ["data/good"])
    assert repr(hostile.name) in one_line(error)


def test_a_named_member_that_is_a_link_is_refused(tmp_path: Path) -> None:
    link = member("data/good", tarfile.SYMTYPE, linkname="/etc/passwd")
    with pytest.raises(UserError, match="link or device"):
        read_tar_gz(make_tar(tmp_path / "a.tar.gz", (link, b"")), ["data/good"])


def test_a_wrong_checksum_behind_the_last_member_is_noticed(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "a.tar.gz", GOOD)
    padded = gzip.decompress(path.read_bytes()) + bytes(100_000)
    whole = gzip.compress(padded)
    path.write_bytes(whole)
    assert read_tar_gz(path, ["data/good"]) == {"data/good": b"good"}
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    with pytest.raises(UserError, match="CRC check failed"):
        read_tar_gz(path, ["data/good"])


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"does not hold 'data/x' and 1 more"):
        read_tar_gz(make_tar(tmp_path / "a.tar.gz", GOOD), ["data/good", "data/y", "data/x"])


def test_bombs_are_refused_while_they_unpack(tmp_path: Path) -> None:
    bomb = make_tar(tmp_path / "a.tar.gz", (member("data/bomb"), bytes(BOMB)), GOOD)
    with pytest.raises(UserError, match="over 100 times"):
        read_tar_gz(bomb, ["data/good"])
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(bytes(BOMB), compresslevel=1))
    with pytest.raises(UserError, match="over 100 times"):
        read_gzip(packed)


def sparse_header(size: int) -> bytes:
    """A member of ``size`` bytes that are one hole, in GNU's format."""
    header = bytearray(member("data/good", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    number = b"%011o\0"
    header[386:410] = number % size + number % 0  # where the only piece begins, and its length
    header[483:495] = number % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def test_a_file_of_holes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gnu.tar.gz"
    path.write_bytes(gzip.compress(sparse_header(BOMB) + bytes(1024)))
    holes = {"major": "0", "minor": "1", "name": "data/good"}
    holes |= {"realsize": f"{BOMB}", "map": f"{BOMB},0"}
    headers = {f"GNU.sparse.{key}": value for key, value in holes.items()}
    pax = make_tar(tmp_path / "pax.tar.gz", (member("x", pax_headers=headers), b""))
    for archive in (path, pax):
        with pytest.raises(UserError, match="sparse file, 'data/good'; it is refused"):
            read_tar_gz(archive, ["data/good"])


def test_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(os.urandom(1000)))
    assert len(read_gzip(path, limit=1000)) == 1000
    with pytest.raises(UserError, match="more than 999 bytes"):
        read_gzip(path, limit=999)
    tar = make_tar(tmp_path / "a.tar.gz", (member("data/good"), os.urandom(100_000)))
    assert len(read_tar_gz(tar, ["data/good"], limit=120_000)["data/good"]) == 100_000
    with pytest.raises(UserError, match="more than 50,000 bytes"):
        read_tar_gz(tar, ["data/good"], limit=50_000)


Read = Callable[[Path], object]


def read_zip(path: Path, name: str) -> bytes:
    with open_zip(path, [name]) as archive:
        return archive.read(name)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.gz", read_gzip),
        ("a.tar.gz", lambda path: read_tar_gz(path, ["data/good"])),
        ("a.zip", lambda path: read_zip(path, "data/good")),
        ("a.npz", lambda path: read_npz(path, ["x"])),
    ],
)
@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "flipped", "missing"])
def test_a_damaged_archive_is_one_line(tmp_path: Path, name: str, read: Read, damage: str) -> None:
    path = tmp_path / name
    noise = os.urandom(5000)
    match name:
        case "a.gz":
            path.write_bytes(gzip.compress(noise))
        case "a.tar.gz":
            make_tar(path, (member("data/good"), noise))
        case "a.zip":
            make_zip(path, {"data/good": noise})
        case "a.npz":
            np.savez_compressed(path, x=np.frombuffer(noise, np.uint8))
    read(path)
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    path.write_bytes(
        {"cut": whole[:middle], "garbage": noise, "empty": b"", "flipped": flipped}.get(damage, b"")
    )
    if damage == "missing":
        path.unlink()
    with pytest.raises(UserError, match=r"is not a readable|is missing|does not hold") as error:
        read(path)
    assert name in one_line(error)


def make_zip(path: Path, members: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "C:\\evil", "a\\..\\..\\evil"]
)
def test_a_path_out_of_a_zip_is_refused(tmp_path: Path, name: str) -> None:
    path = make_zip(tmp_path / "a.zip", {"good": b"good", name: b"evil"})
    with pytest.raises(UserError, match="unsafe path"), open_zip(path):
        pass


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, mode: int) -> None:
    path = make_zip(tmp_path / "a.zip", {"link": b"/etc/passwd"}, mode | 0o777)
    with pytest.raises(UserError, match="link or device, 'link'"), open_zip(path):
        pass


def test_zip_bombs_are_refused_unopened(tmp_path: Path) -> None:
    one = make_zip(tmp_path / "one.zip", {"bomb": bytes(BOMB)})
    many = make_zip(tmp_path / "many.zip", {f"{i}": bytes(4 << 20) for i in range(20)})
    for path in (one, many):
        with pytest.raises(UserError, match="it is a bomb"), open_zip(path):
            pass


def test_a_zip_that_claims_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_ZIP", 1500)
    path = make_zip(tmp_path / "a.zip", {"a": os.urandom(1000), "b": os.urandom(1000)})
    with pytest.raises(UserError, match="more than 1,500 bytes"), open_zip(path):
        pass


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("same", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("same", b"2")
    with pytest.raises(UserError, match="same name"), open_zip(tmp_path / "a.zip"):
        pass


def test_an_npz_of_objects_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="allow_pickle=False"):
        read_npz(tmp_path / "a.npz", ["x"])


def test_an_array_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50,)}
    )
    make_zip(tmp_path / "a.npz", {"x.npy": header.getvalue() + b"few"})
    with pytest.raises(UserError, match=r"larger than memory|not a readable"):
        read_npz(tmp_path / "a.npz", ["x"])


# Pickles -----------------------------------------------------------------------------------------


def test_a_python_2_batch_is_read() -> None:
    batch = {
        "data": np.arange(600, dtype=np.uint8).reshape(2, 300),
        "fine_labels": [3, 7],
        "filenames": ["a.png", "b.png"],
    }
    content = read_plain_pickle(python2_pickle.dumps(batch), "batch")
    assert list(content) == list(batch)
    np.testing.assert_array_equal(content["data"], batch["data"])
    assert content["data"].dtype == np.uint8
    assert content["fine_labels"] == [3, 7]
    assert content["filenames"] == ["a.png", "b.png"]


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.int64, np.dtype(">i4"), np.float32, np.bool_]),
        arrays.array_shapes(min_dims=1, max_dims=3, max_side=4),
    ),
    st.booleans(),
)
def test_any_numeric_array_is_read(array: np.ndarray[Any, Any], fortran: bool) -> None:
    array = np.asfortranarray(array) if fortran else array
    read = read_plain_pickle(python2_pickle.dumps({"a": array}), "batch")["a"]
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("kind", ["V8", "S3", "U2", "M8[s]", "c8", "O"])
def test_an_array_of_anything_but_numbers_is_refused(kind: str) -> None:
    with pytest.raises(
        UserError, match=f"an array of type '{np.dtype(kind).str[1:]}'".replace("[", r"\[")
    ):
        read_plain_pickle(python2_pickle.dumps({"a": np.zeros(2, kind)}), "batch")


def test_an_array_with_fewer_bytes_than_its_shape_claims_is_refused() -> None:
    data = python2_pickle.dumps({"a": np.zeros((2, 3), np.uint8)})
    claimed = data.replace(python2_pickle.value(3), python2_pickle.value(1 << 30))
    assert claimed != data
    with pytest.raises(UserError, match="holds more than plain arrays"):
        read_plain_pickle(claimed, "batch")


class Calls:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def shared_lists() -> list[Any]:
    nested: list[Any] = ["a"]
    for _ in range(60):
        nested = [nested, nested]
    return nested


def endless_list() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "item",
    [
        Calls(os.system, "touch evil"),
        Calls(builtins.eval, "open('evil', 'w')"),
        Calls(np.ndarray, (1 << 45,)),
        Calls(np.load, "evil.npy"),
        np.array([Calls(os.system, "touch evil")], dtype=object),
        np.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]),
        {1, 2},
        (1, 2),
        1j,
        Path("x"),
        endless_list(),
    ],
    ids=lambda item: type(item).__name__,
)
def test_a_pickle_of_anything_else_is_refused(
    item: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"data": item}, protocol=2)
    with pytest.raises(UserError, match="holds more than plain arrays") as error:
        read_plain_pickle(data, "batch")
    one_line(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"\x80\x02}", b"garbage", b"\x80\x02cos\nsystem\n."])
def test_a_damaged_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(UserError, match="holds more than plain arrays"):
        read_plain_pickle(data, "batch")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02Nr" + struct.pack("<I", 200_000_000) + b".",  # remember it as number 200,000,000
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 31) + b".",  # a bytearray of 2 GiB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 31) + b".",  # bytes, as many
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 31) + b".",  # a frame, as long
    ],
    ids=["memo", "bytearray", "bytes", "frame"],
)
def test_a_few_bytes_of_pickle_take_little_memory(data: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(UserError):
        read_plain_pickle(data, "batch")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_lists_that_share_items_do_not_explode() -> None:
    content = read_plain_pickle(pickle.dumps(shared_lists(), protocol=2), "batch")
    for _ in range(60):
        content = content[0]
    assert content == ["a"]


def saved(content: object, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pair_of_tensors_is_read(zipped: bool) -> None:
    images, labels = torch.arange(24, dtype=torch.uint8).reshape(2, 2, 2, 3), torch.tensor([4, 5])
    read = read_tensors(saved((images, labels), zipped), "data.pt")
    np.testing.assert_array_equal(read[0], images.numpy())
    np.testing.assert_array_equal(read[1], [4, 5])


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        (Calls(os.system, "touch evil"), torch.zeros(1)),
        (torch.zeros(1),),
        torch.nn.Linear(1, 1),
        {"a": torch.zeros(1)},
        "text",
    ],
    ids=["code", "single", "module", "dict", "text"],
)
def test_other_torch_files_are_refused(
    content: object, zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = saved(content, zipped)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data.pt is not a pair of plain tensors") as error:
        read_tensors(data, "data.pt")
    assert "weights_only" not in one_line(error)
    assert list(tmp_path.iterdir()) == []


def test_compressed_tensors_are_refused() -> None:
    stored = zipfile.ZipFile(io.BytesIO(saved((torch.zeros(1000), torch.zeros(1)))))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in stored.namelist():
            archive.writestr(name, stored.read(name))
    with pytest.raises(UserError, match=r"data\.pt is not a pair of plain tensors"):
        read_tensors(packed.getvalue(), "data.pt")


@pytest.mark.parametrize(
    ("content", "claimed"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.zeros((50_000, 1), np.uint8)}, "56,144"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.zeros((2, 1), np.uint8)}, "49,154"),
    ],
)
def test_matlab_arrays_larger_than_they_may_be_are_refused(
    content: dict[str, NDArray[np.generic]], claimed: str
) -> None:
    """MATLAB packs its arrays itself: neither many labels nor wide pixels show in the file."""
    file = io.BytesIO()
    savemat(file, content, do_compression=True)
    assert len(file.getvalue()) < 1000
    file.seek(0)
    refuse_large_matlab(file, "a.mat", limit=60_000)
    assert file.tell() == 0  # ready to be read
    with pytest.raises(UserError, match=rf"a\.mat claims {claimed} bytes of arrays; it is refused"):
        refuse_large_matlab(file, "a.mat", limit=40_000)
    with pytest.raises(UserError, match=r"b\.mat is not a MATLAB file"):
        refuse_large_matlab(io.BytesIO(b"no"), "b.mat")
