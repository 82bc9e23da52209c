"""Published data sets: every file verified, or a sample of the set from a mirror.

``conf/sources.yaml`` says where each set comes from and how many images it has. What was really
fetched is written beside the data as ``ORIGIN.json``, so that no report can take a sample for the
published set.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from dacr.data.archives import read_npz
from dacr.data.download import Unreachable, fetch_file, forget_kept, mirror_folder
from dacr.data.files import Fingerprint, RemoteFile, copy_in
from dacr.data.mirror_samples import check_digits
from dacr.data.sources.base import PARTS, Part, Sample, Source
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError

TABLE = Path(__file__).resolve().parents[3] / "conf" / "sources.yaml"
SAMPLE = "mirror sample, not the official split"
WHOLE = "published set"

Release = tuple[RemoteFile, ...]


class Published(BaseModel):
    """What ``conf/sources.yaml`` knows of a source: its counts, and sets of files that hold it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    counts: dict[Part, int] | None
    releases: tuple[Release, ...]


def parse_published(entry: Mapping[str, Any]) -> Published:
    """One entry of the table, in which a release maps names of files to what is known of them."""
    releases = [
        [{"name": name, **facts} for name, facts in release.items()]
        for release in entry["releases"]
    ]
    return Published.model_validate({**entry, "releases": releases})


@cache
def published_sources() -> dict[str, Published]:
    """The whole of ``conf/sources.yaml``, checked."""
    try:
        table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
        return {name: parse_published(entry) for name, entry in table["sources"].items()}
    except FileNotFoundError:
        raise UserError(f"{TABLE} is missing; restore it with `git restore`") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{TABLE.name} is not UTF-8 ({error.reason} at byte {error.start:,}); save it as"
            " UTF-8, or restore it with `git restore conf/sources.yaml`"
        ) from None
    except (yaml.YAMLError, ValidationError, TypeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{TABLE.name} is not a table of sources: {reason}") from None


class Upstream(Source):
    """A published data set; ``published`` replaces its entry in ``conf/sources.yaml``."""

    def __init__(self, published: Published | None = None) -> None:
        self._published = published

    @property
    def published(self) -> Published:
        """What ``conf/sources.yaml`` knows of the source."""
        if self._published:
            return self._published
        known = published_sources()
        if self.name not in known:
            raise UserError(
                f"{TABLE.name} has no entry '{self.name}'; add it there, or restore the table with"
                " `git restore conf/sources.yaml`"
            )
        return known[self.name]

    @property
    def sample_name(self) -> str:
        """What a sample of this set is called in a mirror."""
        return f"{self.name}.npz"

    @abstractmethod
    def counts(self, folder: Path) -> dict[Part, int]:
        """How many images of each part ``folder`` holds."""

    def check_sample(self, path: Path) -> None:
        """Refuse a sample that is not as docs/data.md says, before it is taken for data."""

    def fetch(self, folder: Path) -> None:
        self._fetch(folder)
        forget_kept(file for release in self.published.releases for file in release)

    def _fetch(self, folder: Path) -> None:
        mirror = mirror_folder()
        sample = mirror / self.sample_name if mirror else None
        mirrored = mirror and any(_all_in(mirror, release) for release in self.published.releases)
        if sample and sample.is_file() and not mirrored:
            self.check_sample(sample)
            copy_in(sample, folder / sample.name)
            files = {sample.name: _record(Fingerprint.of(sample), None)}
            self._describe(folder, SAMPLE, files)
            return
        files = self._fetch_first_release(folder)
        counts = self.counts(folder)
        if self.published.counts not in (None, counts):
            raise UserError(
                f"{self.name}: {', '.join(files)} hold {_tell(counts)}, and the published set"
                f" {_tell(self.published.counts)}; it is another data set (see docs/data.md)"
            )
        self._describe(folder, WHOLE, files)

    def _fetch_first_release(self, folder: Path) -> dict[str, Any]:
        mirror = mirror_folder()
        releases = list(self.published.releases)
        if mirror is not None:
            releases.sort(key=lambda release: not _all_in(mirror, release))
        failures = []
        for release in releases:
            files = {}
            try:
                for file in release:
                    files[file.name] = _record(fetch_file(file, folder), file.checksum)
                return files
            except Unreachable as failure:
                failures.append(str(failure))
                for name in files:
                    (folder / name).unlink()
        if not failures:
            raise UserError(
                f"{self.name} has no public address here; put {self.sample_name} in a folder and"
                " name that by DACR_MIRROR or fetch.mirror (see docs/data.md)"
            )
        raise Unreachable(" — or ".join(failures))

    def _describe(self, folder: Path, kind: str, files: dict[str, Any]) -> None:
        counts = {"counts": self.counts(folder), "published_counts": self.published.counts}
        write_origin(folder, {"source": self.name, "kind": kind, "files": files, **counts})


def _all_in(mirror: Path, release: Release) -> bool:
    return all((mirror / file.name).is_file() for file in release)


def _record(fingerprint: Fingerprint, checked: str | None) -> dict[str, Any]:
    """A file for ``ORIGIN.json``; without a published checksum its first use is what is trusted."""
    return {"size": fingerprint.size, "sha256": fingerprint.sha256, "checked_against": checked}


def _tell(counts: Mapping[Part, int] | None) -> str:
    return " / ".join(f"{(counts or {}).get(part, 0):,}" for part in PARTS) + " (train / test)"


class UpstreamDigits(Upstream):
    """Ten digits as arrays; the source is one domain."""

    def check_sample(self, path: Path) -> None:
        check_digits(path)

    def published_arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        """Images (N×H×W or N×H×W×3) and labels of the published files, where there are any."""
        raise UserError(f"{folder} holds no {part} images of {self.name}; fetch it again")

    def arrays(self, folder: Path, part: Part) -> tuple[NDArray[Any], NDArray[Any]]:
        """Images and labels of whatever was fetched, checked against each other."""
        sample = folder / self.sample_name
        if sample.exists():
            images, labels = read_npz(sample, [f"{part}_x", f"{part}_y"]).values()
        else:
            images, labels = self.published_arrays(folder, part)
        labels = labels.reshape(-1)
        if images.dtype != "uint8" or images.ndim not in (3, 4) or len(images) != len(labels):
            raise UserError(
                f"{self.name}: {part} images are {images.dtype} {images.shape} with {len(labels):,}"
                " labels; these are not the published files"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() <= 9):
            raise UserError(f"{self.name}: {part} labels are not the digits 0 to 9")
        return images, labels

    def counts(self, folder: Path) -> dict[Part, int]:
        return {part: len(self.arrays(folder, part)[1]) for part in PARTS}

    def read(self, folder: Path) -> Iterator[Sample]:
        for part in PARTS:
            images, labels = self.arrays(folder, part)
            for i, (image, label) in enumerate(zip(images, labels, strict=True)):
                source_id = f"{self.name}/{part}/{i:06d}"
                yield Sample(image.copy(order="C"), int(label), self.name, part, source_id)
