"""A folder of one's own images: training sees what prediction sees, and nothing is lost unsaid."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dacr.data.any_image import read_image
from dacr.data.fetching import fetch_source
from dacr.data.packing import pack_image
from dacr.data.sources import Source, get_source
from dacr.errors import UserError

SIDE = 12


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two domains of two classes with two plain images each."""
    for domain in ("photo", "sketch"):
        for name in ("cat", "dog"):
            folder = tmp_path / "own" / domain / name
            folder.mkdir(parents=True)
            for number in (0, 1):
                Image.fromarray(colours(number)).save(folder / f"{number}.png")
    return tmp_path / "own"


def fetched(path: Path, raw: Path, **options: object) -> Source:
    chosen = {"folder": {"path": str(path), **options}}
    fetch_source("folder", chosen, raw)
    return get_source("folder", chosen)


def colours(seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (SIDE, 2 * SIDE, 3), np.uint8)


def picture(mode: str) -> Image.Image:
    plain = Image.fromarray(colours())
    match mode:
        case "I;16":
            return Image.fromarray(np.asarray(plain.convert("L")).astype(np.uint16) * 200)
        case "RGBA" | "LA":
            plain = plain.convert(mode.removesuffix("A"))
            plain.putalpha(Image.fromarray(colours(1)[..., 0]))
            return plain
    return plain.convert(mode)


def turned() -> dict[str, Any]:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    return {"exif": exif}


FILES: list[tuple[str, str, dict[str, Any], bool]] = [  # name, mode, how saved, stored anew
    ("deep.png", "I;16", {}, True),
    ("rgba.png", "RGBA", {}, True),
    ("la.png", "LA", {}, True),
    ("rgba.webp", "RGBA", {"lossless": True}, True),
    ("palette.png", "P", {"transparency": picture("P").getpixel((0, 0))}, True),
    ("colour.png", "RGB", {"transparency": tuple(int(v) for v in colours()[0, 0])}, True),
    ("turned.jpg", "RGB", turned(), True),
    ("turned.png", "RGB", turned(), True),
    ("turned.webp", "RGB", turned(), True),
    ("plain.png", "RGB", {}, False),
    ("plain.jpg", "RGB", {}, False),
    ("grey.jpg", "L", {}, False),
    ("cmyk.jpg", "CMYK", {}, False),
    ("plain.webp", "RGB", {}, False),
    ("two.bmp", "1", {}, False),
    ("two.png", "1", {}, False),
    ("grey.png", "L", {}, False),
    ("palette.bmp", "P", {}, False),
]


@pytest.mark.parametrize(("name", "mode", "how", "anew"), FILES, ids=[file[0] for file in FILES])
def test_the_build_sees_what_predict_sees(
    own: Path, raw: Path, name: str, mode: str, how: dict[str, Any], anew: bool
) -> None:
    path = own / "photo" / "cat" / name
    picture(mode).save(path, **how)
    samples = {sample.source_id: sample for sample in fetched(own, raw).read(raw)}
    stored = samples[f"photo/cat/{name}"].image
    assert isinstance(stored, bytes)
    for size in (SIDE, 8):
        np.testing.assert_array_equal(pack_image(stored, size), read_image(str(path), size))
    assert (stored == path.read_bytes()) is not anew
    assert len(samples) == 9


def test_an_alpha_that_hides_nothing_leaves_the_bytes_alone(own: Path, raw: Path) -> None:
    path = own / "photo" / "cat" / "opaque.png"
    Image.fromarray(colours()).convert("RGBA").save(path)
    source = fetched(own, raw)
    with zipfile.ZipFile(raw / "images.zip") as archive:
        assert archive.read("photo/cat/opaque.png") == path.read_bytes()
    assert source.facts(raw)["redrawn"] == 0


def test_how_many_are_stored_anew_is_said(
    own: Path, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        picture("RGBA").save(own / "photo" / "cat" / f"clear{number}.png")
    assert fetched(own, raw).facts(raw)["redrawn"] == 3
    assert "3 images are stored as they are seen" in capsys.readouterr().out


def test_levels_that_eight_bits_cannot_hold_are_named(own: Path, raw: Path) -> None:
    levels = np.full((4, 4), 1e6, np.float32)
    Image.fromarray(levels).save(own / "photo" / "cat" / "float.png", "TIFF")
    with pytest.raises(UserError, match=r"photo/cat/float\.png: .*more than 16 bits"):
        fetched(own, raw)


def unusable(root: Path) -> dict[str, Path]:
    """Names that a zip or its reader would refuse, by how they are shown."""
    latin = Path(os.fsdecode(os.fsencode(root) + b"/photo/cat/caf\xe9.png"))
    drive = root / "a:" / "cat" / "x.png"
    drive.parent.mkdir(parents=True)
    paths = {"photo/cat/caf\\udce9.png": latin, "a:/cat/x.png": drive}
    return paths | {"photo/cat/a\\b.png": root / "photo/cat/a\\b.png"}


def test_a_name_that_cannot_be_kept_is_refused_or_skipped(
    own: Path, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in unusable(own).values():
        path.write_bytes((own / "photo/cat/0.png").read_bytes())
    with pytest.raises(UserError, match=r"^3 broken images .*not UTF-8; rename it") as error:
        fetched(own, raw)
    str(error.value).encode()
    source = fetched(own, raw, broken="skip")
    told = capsys.readouterr().out
    shown = ["a:/cat/x.png", "photo/cat/a\\b.png", "photo/cat/caf\\udce9.png"]
    for name in shown:
        assert f"skipped {name}: its name" in told
    assert source.facts(raw)["broken"] == shown
    assert {sample.domain for sample in source.read(raw)} == {"photo", "sketch"}


def test_what_is_left_out_is_counted_and_said(
    own: Path, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (own / "photo/cat/0.png").read_bytes()
    places = [
        *("photo/.ipynb_checkpoints/x.png", ".cache/cat/x.png", "photo/cat/.x.png"),
        *("photo/cat/more/x.png", "photo/x.png"),
        *("photo/cat/x.gif", "photo/cat/x.tif", "photo/cat/notes.txt"),
    ]
    for place in places:
        (own / place).parent.mkdir(parents=True, exist_ok=True)
        (own / place).write_bytes(content)
    source = fetched(own, raw)
    assert source.class_names(raw) == ["cat", "dog"]
    assert len(list(source.read(raw))) == 8
    counts = {"hidden": 3, "not at domain/class/image": 2}
    counts |= {".gif is not taken": 1, ".tif is not taken": 1}
    assert source.facts(raw)["left_out"] == counts
    told = capsys.readouterr().out
    for reason, count in counts.items():
        assert f"left out {count} images: {reason}\n" in told


def test_folders_that_are_links_are_followed(own: Path, raw: Path, tmp_path: Path) -> None:
    (own / "photo" / "cat").rename(tmp_path / "elsewhere")
    (own / "photo" / "cat").symlink_to(tmp_path / "elsewhere")
    assert len(list(fetched(own, raw).read(raw))) == 8


def test_what_pillow_would_hand_to_an_interpreter_is_refused(own: Path, raw: Path) -> None:
    Image.fromarray(colours()).save(own / "photo" / "cat" / "x.png", "EPS")
    with pytest.raises(UserError, match=r"photo/cat/x\.png: not an image"):
        fetched(own, raw)


def test_what_is_no_regular_file_counts_as_broken(own: Path, raw: Path, tmp_path: Path) -> None:
    """Without the check this waits for ever: nobody writes into the pipe."""
    os.mkfifo(own / "photo/cat/pipe.png")
    (own / "photo/cat/link.png").symlink_to(own / "photo/cat/0.png")
    with pytest.raises(UserError, match=r"^1 broken images \(photo/cat/pipe\.png: not a regular"):
        fetched(own, raw)
    source = fetched(own, raw, broken="skip")
    assert source.facts(raw)["broken"] == ["photo/cat/pipe.png"]
    assert source.facts(raw)["images"] == 9
    os.mkfifo(tmp_path / "own.npz")
    with pytest.raises(UserError, match="is not a regular file"):
        fetch_source("npz", {"npz": {"path": str(tmp_path / "own.npz")}}, raw)


def test_an_image_without_pixels_is_refused(own: Path, raw: Path, tmp_path: Path) -> None:
    header = b"BM" + (54).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    size = (40).to_bytes(4, "little") + (0).to_bytes(4, "little") + (5).to_bytes(4, "little")
    depth = (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24)
    (own / "photo/cat/flat.bmp").write_bytes(header + size + depth)
    with pytest.raises(UserError, match=r"^1 broken images \(photo/cat/flat\.bmp: "):
        fetched(own, raw)
    for shape in ((3, 0, 8, 3), (3, 8, 0)):
        arrays = {"x": np.zeros(shape, np.uint8), "y": [0, 1, 1], "domain": [0, 0, 0]}
        np.savez(tmp_path / "own.npz", **arrays)
        with pytest.raises(UserError, match="have no pixels"):
            fetch_source("npz", {"npz": {"path": str(tmp_path / "own.npz")}}, raw)
        with pytest.raises(ValueError, match="it has no pixels: "):
            pack_image(arrays["x"][0], 8)


def test_names_that_look_the_same_are_one_class_and_one_domain(own: Path, raw: Path) -> None:
    for domain, name in (("po\u0301", "cafe\u0301"), ("p\u00f3", "caf\u00e9")):
        folder = own / domain / name
        folder.mkdir(parents=True)
        for number in (0, 1):
            Image.fromarray(colours(number)).save(folder / f"{number}.png")
    source = fetched(own, raw)
    assert source.class_names(raw) == ["caf\u00e9", "cat", "dog"]
    named = [sample for sample in source.read(raw) if sample.label == 0]
    assert {sample.domain for sample in named} == {"p\u00f3"}
    assert len({sample.source_id for sample in named}) == 4, "no file is lost"
    assert {sample.part for sample in named} == {"train", "test"}
