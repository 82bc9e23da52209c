"""A user's own images in folders: ``<path>/<domain>/<class>/<image>``.

Fetching freezes them into one zip, so that DVC handles a file and not a folder of thousands. Every
image is decoded once to see that it is whole. Its own bytes go into the zip, or a PNG of what is
seen where the build would see other pixels than `dacr predict` does. What is left out is said. A
label is the rank of the name of the class.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal

from PIL import Image, UnidentifiedImageError

from dacr.data.archives import open_zip, refuse_unsafe_name
from dacr.data.files import user_path
from dacr.data.pictures import (
    FORMATS,
    OTHER_SUFFIXES,
    SUFFIXES,
    may_be_spoilt,
    redrawn,
    strict_decoding,
)
from dacr.data.sources.base import Sample, Source
from dacr.data.sources.options import Options, TestFraction, held_out, parse_options
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError
from dacr.names import one_form

NAMES = ("folder",)
ANY_NUMBER = True
ARCHIVE = "images.zip"


class FolderOptions(Options):
    """Where the images are, how many are for testing, and what becomes of broken ones."""

    path: Path
    test_fraction: TestFraction = 0.2
    broken: Literal["skip", "refuse"] = "refuse"


class FolderSource(Source):
    def __init__(self, name: str, options: FolderOptions) -> None:
        self.name = name
        self._options = options

    def fetch(self, folder: Path) -> None:
        freeze(self._options, folder)

    def class_names(self, folder: Path) -> list[str]:
        with open_zip(folder / ARCHIVE) as archive:
            return sorted({_pair(name)[1] for name in archive.namelist()})

    def read(self, folder: Path) -> Iterator[Sample]:
        labels = {name: label for label, name in enumerate(self.class_names(folder))}
        with open_zip(folder / ARCHIVE) as archive:
            images = archive.namelist()
            pairs = {image: _pair(image) for image in images}
            test = held_out(pairs, self._options.test_fraction)
            for image in images:
                domain, name = pairs[image]
                part: Literal["train", "test"] = "test" if image in test else "train"
                yield Sample(archive.read(image), labels[name], domain, part, image)


def _pair(image: str) -> tuple[str, str]:
    """The domain and the class of an image; one folder may spell ``é`` otherwise than another."""
    domain, name, _ = image.split("/")
    return one_form(domain), one_form(name)


def make_source(name: str, options: Mapping[str, Any]) -> FolderSource:
    return FolderSource(name, parse_options(FolderOptions, name, options))


# -- freezing ---------------------------------------------------------------------------------


def freeze(options: FolderOptions, folder: Path) -> None:
    """Bring the images that ``options`` name to ``folder``, in one zip."""
    root = user_path(options.path)
    images, left_out = find_images(root)
    _tell_left_out(left_out)
    if not images:
        raise UserError(
            f"{root} holds no images as domain/class/image.jpg ({', '.join(sorted(SUFFIXES))})"
        )
    findings = examine(root, images)
    broken = {image: found.fault for image, found in findings.items() if found.fault}
    _tell_broken(broken, refuse=options.broken == "refuse")
    whole = {image: found for image, found in findings.items() if not found.fault}
    if not whole:
        raise UserError(f"{root} holds no image that can be decoded")
    _pack(root, whole, folder / ARCHIVE)
    spoilt = sum(found.spoilt for found in whole.values())
    if spoilt:
        print(f"{spoilt:,} images are stored as they are seen: upright, of 8 bits, on white")
    facts = {"source": "folder", "kind": "own images", "images": len(whole), "redrawn": spoilt}
    named = sorted(_shown(image) for image in broken)
    write_origin(folder, {**facts, "broken": named, "left_out": left_out})


def find_images(root: Path) -> tuple[list[str], dict[str, int]]:
    """The paths ``domain/class/image`` below ``root`` in order, and how many are left out, why."""
    in_place = {path for path in root.glob("*/*/*") if not path.is_dir()}
    images, left_out = [], Counter[str]()
    for path in in_place.union(path for path in root.rglob("*") if path.is_file()):
        reason = _reason_to_leave_out(path.relative_to(root))
        if reason is None:
            images.append(path.relative_to(root).as_posix())
        elif reason:
            left_out[reason] += 1
    return sorted(images), dict(sorted(left_out.items()))


def _reason_to_leave_out(path: Path) -> str | None:
    """Why a file is no image of the benchmark; None for one that is, empty for what is no image."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES | OTHER_SUFFIXES:
        return ""
    if any(part.startswith(".") for part in path.parts):
        return "hidden"
    if len(path.parts) != 3:
        return "not at domain/class/image"
    return None if suffix in SUFFIXES else f"{suffix} is not taken"


@dataclass(frozen=True)
class Finding:
    """What decoding an image told: why it cannot be used, or that the build would spoil it."""

    fault: str | None = None
    spoilt: bool = False


def examine(root: Path, images: list[str]) -> dict[str, Finding]:
    """Decode every image once."""
    with strict_decoding(), ThreadPoolExecutor() as pool:
        findings = pool.map(lambda image: _examine(root, image), images)
        return dict(zip(images, findings, strict=True))


def _examine(root: Path, image: str) -> Finding:
    try:
        image.encode()
        refuse_unsafe_name(root, image)
        if not S_ISREG((root / image).stat().st_mode):
            return Finding("not a regular file: a pipe, a socket or a device")
        with Image.open(root / image, formats=FORMATS) as picture:
            if 0 in picture.size:
                return Finding(f"it has no pixels: {picture.height}×{picture.width}")
            if may_be_spoilt(picture):
                return Finding(spoilt=redrawn(picture) is not None)
            picture.draft("RGB", (8, 8))  # a JPEG is read to its end, but not at its full size
            picture.load()
    except UnicodeEncodeError:
        return Finding("its name is not UTF-8; rename it")
    except UserError:
        return Finding("its name, or that of a folder, has a \\ or begins like a drive; rename it")
    except UnidentifiedImageError:
        return Finding(f"not an image ({', '.join(FORMATS)} are read)")
    except Exception as error:  # Pillow's plugins raise many kinds
        return Finding(" ".join(str(error).split()) or type(error).__name__)
    return Finding()


def _pack(root: Path, images: Mapping[str, Finding], target: Path) -> None:
    """One zip, without times, so that it depends on nothing but names and contents."""
    with strict_decoding(), zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for image, finding in images.items():
            content = _redraw(root / image) if finding.spoilt else (root / image).read_bytes()
            archive.writestr(zipfile.ZipInfo(image), content)


def _redraw(path: Path) -> bytes:
    with Image.open(path, formats=FORMATS) as picture:
        return redrawn(picture) or path.read_bytes()


def _shown(name: str) -> str:
    """A name that can be printed, also one that is not UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()


def _tell_left_out(left_out: Mapping[str, int]) -> None:
    for reason, count in left_out.items():
        print(f"left out {count:,} images: {reason}")


def _tell_broken(broken: Mapping[str, str], refuse: bool) -> None:
    if broken and refuse:
        some = "; ".join(f"{_shown(image)}: {fault}" for image, fault in list(broken.items())[:5])
        raise UserError(
            f"{len(broken)} broken images ({some}{'; …' if len(broken) > 5 else ''}); mend or"
            " remove them, or set data.source_options.folder.broken=skip"
        )
    for image, fault in broken.items():
        print(f"skipped {_shown(image)}: {fault}")
