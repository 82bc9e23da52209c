"""A user's own images in folders: ``<path>/<domain>/<class>/<image>``.

Fetching freezes them: every image is decoded once to see that it is whole, and its bytes go into
one zip, so that DVC handles a file and not a folder of thousands. A label is the rank of the name
of the class.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from dacr.data.archives import open_zip
from dacr.data.files import user_path
from dacr.data.sources.base import Sample, Source
from dacr.data.sources.options import Options, TestFraction, held_out, parse_options
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError

NAMES = ("folder",)
ARCHIVE = "images.zip"
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}


class FolderOptions(Options):
    """Where the images are, how many are for testing, and what becomes of broken ones."""

    path: Path
    test_fraction: TestFraction = 0.2
    broken: Literal["skip", "refuse"] = "refuse"


def find_images(root: Path) -> list[str]:
    """The paths ``domain/class/image`` below ``root``, in order."""
    found = [path.relative_to(root) for path in root.glob("*/*/*")]
    images = [path for path in found if path.suffix.lower() in SUFFIXES]
    return sorted(path.as_posix() for path in images if not str(path).startswith("."))


def fault_of(path: Path) -> str | None:
    """Why an image cannot be decoded, if it cannot."""
    try:
        with Image.open(path) as image:
            image.draft("RGB", (8, 8))  # a JPEG is read to its end, but not at its full size
            image.load()
    except Exception as error:  # Pillow's plugins raise many kinds
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _pack(root: Path, images: list[str], target: Path) -> None:
    """One zip with the images' own bytes; without times, so that it depends on nothing else."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for image in images:
            archive.writestr(zipfile.ZipInfo(image), (root / image).read_bytes())


class FolderSource(Source):
    name = "folder"

    def __init__(self, options: FolderOptions) -> None:
        self._options = options

    def fetch(self, folder: Path) -> None:
        root = user_path(self._options.path)
        images = find_images(root)
        if not images:
            raise UserError(
                f"{root} holds no images as domain/class/image.jpg ({', '.join(sorted(SUFFIXES))})"
            )
        with ThreadPoolExecutor() as pool:
            faults = pool.map(fault_of, (root / image for image in images))
            found = zip(images, faults, strict=True)
            broken = {image: fault for image, fault in found if fault is not None}
        self._tell_broken(broken)
        whole = [image for image in images if image not in broken]
        if not whole:
            raise UserError(f"{root} holds no image that can be decoded")
        _pack(root, whole, folder / ARCHIVE)
        facts = {"source": self.name, "kind": "own images", "images": len(whole)}
        write_origin(folder, {**facts, "broken": sorted(broken)})

    def _tell_broken(self, broken: Mapping[str, str]) -> None:
        if broken and self._options.broken == "refuse":
            some = "; ".join(f"{image}: {fault}" for image, fault in list(broken.items())[:5])
            raise UserError(
                f"{len(broken)} broken images ({some}{'; …' if len(broken) > 5 else ''}); mend or"
                " remove them, or set data.source_options.folder.broken=skip"
            )
        for image, fault in broken.items():
            print(f"skipped {image}: {fault}")

    def class_names(self, folder: Path) -> list[str]:
        with open_zip(folder / ARCHIVE) as archive:
            return sorted({name.split("/")[1] for name in archive.namelist()})

    def read(self, folder: Path) -> Iterator[Sample]:
        labels = {name: label for label, name in enumerate(self.class_names(folder))}
        with open_zip(folder / ARCHIVE) as archive:
            images = archive.namelist()
            pairs = {image: tuple(image.split("/")[:2]) for image in images}
            test = held_out(pairs, self._options.test_fraction)
            for image in images:
                domain, name = pairs[image]
                part: Literal["train", "test"] = "test" if image in test else "train"
                yield Sample(archive.read(image), labels[name], domain, part, image)


def make_source(name: str, options: Mapping[str, Any]) -> FolderSource:
    return FolderSource(parse_options(FolderOptions, name, options))
