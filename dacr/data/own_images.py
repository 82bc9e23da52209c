"""A user's folder of images, frozen: ``<path>/<domain>/<class>/<image>`` → one zip.

Every image is decoded once to see that it is whole. Its own bytes go into the zip, or a PNG of what
is seen where the build would see other pixels than `dacr predict` does. What is left out is said.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from dacr.data.archives import refuse_unsafe_name
from dacr.data.files import user_path
from dacr.data.pictures import FORMATS, may_be_spoilt, redrawn, strict_decoding
from dacr.data.sources.folder import ARCHIVE, SUFFIXES, FolderOptions
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError

OTHER_SUFFIXES = {".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}


def freeze(options: FolderOptions, folder: Path) -> None:
    """Bring the images that ``options`` name to ``folder``, as the source ``folder`` reads them."""
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
        with Image.open(root / image, formats=FORMATS) as picture:
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
