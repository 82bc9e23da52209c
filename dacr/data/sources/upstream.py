"""Published data sets: every file verified, or a sample of the set from a mirror.

``conf/sources.yaml`` says where each set comes from and how many images it has. What was really
fetched is written beside the data as ``ORIGIN.json``, so that no report can take a sample for the
published set.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from dacr.data.download import Unreachable, fetch_file, forget_kept, mirror_folder
from dacr.data.files import Fingerprint, RemoteFile, copy_in
from dacr.data.sources.base import PARTS, Part, Source
from dacr.data.sources.origin import write_origin
from dacr.errors import UserError

TABLE = Path(__file__).resolve().parents[3] / "conf" / "sources.yaml"
SAMPLE = "mirror sample, not the official split"
WHOLE = "published set"

Counts = dict[Part, int]


class Release(BaseModel):
    """Files that together hold a data set, and what is particular about them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: tuple[RemoteFile, ...]
    counts: Counts | None = None
    """Where they are not those of the data set."""
    warning: str | None = None
    """What a user should know before it is downloaded."""

    @property
    def names(self) -> str:
        return ", ".join(file.name for file in self.files)

    def all_in(self, folder: Path) -> bool:
        return all((folder / file.name).is_file() for file in self.files)


class Published(BaseModel):
    """What ``conf/sources.yaml`` knows of a source: its counts, and sets of files that hold it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    counts: Counts | None
    releases: tuple[Release, ...]

    @property
    def files(self) -> list[RemoteFile]:
        """Those of all releases."""
        return [file for release in self.releases for file in release.files]


def parse_published(entry: Mapping[str, Any]) -> Published:
    """One entry of the table, in which ``files`` maps names to what is known of each file."""
    releases = [
        release | {"files": [{"name": name, **facts} for name, facts in release["files"].items()]}
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
    def counts(self, folder: Path) -> Counts:
        """How many images of each part ``folder`` holds."""

    def check_sample(self, path: Path) -> None:
        """Refuse a sample that is not as docs/data.md says, before it is taken for data."""

    def fetch(self, folder: Path) -> None:
        mirror = mirror_folder()
        sample = mirror / self.sample_name if mirror else None
        mirrored = mirror and any(release.all_in(mirror) for release in self.published.releases)
        if sample and sample.is_file() and not mirrored:
            self._take_sample(sample, folder)
        else:
            self._take_release(folder)
        forget_kept(self.published.files)

    def _take_sample(self, sample: Path, folder: Path) -> None:
        self.check_sample(sample)
        copy_in(sample, folder / sample.name)
        files = {sample.name: _record(Fingerprint.of(sample), ())}
        counts = self.counts(folder)
        self._describe(folder, SAMPLE, files, counts, self.published.counts)
        print(
            f"{self.name}: a mirror's sample, {_tell(counts)}; these are other images than those"
            " of the published files, and results can only be compared with the same mirror's",
            flush=True,
        )

    def _take_release(self, folder: Path) -> None:
        """Bring the first release that can be had and is what it should be.

        One that is refused inside, or has other counts, is given up for the next one, too.
        """
        if not self.published.releases:
            raise UserError(
                f"{self.name} has no public address here; put {self.sample_name} in a folder and"
                " name that by DACR_MIRROR or fetch.mirror (see docs/data.md)"
            )
        mirror = mirror_folder()
        releases = list(self.published.releases)
        if mirror is not None:
            releases.sort(key=lambda release: not release.all_in(mirror))
        failures: list[UserError] = []
        for release in releases:
            expected = release.counts or self.published.counts
            if failures:
                print(f"{failures[-1]}; {release.names} is tried in its place", flush=True)
            try:
                files = self._fetch_files(release, folder)
                counts = self._checked_counts(release, expected, folder)
            except (Unreachable, _Unusable) as failure:
                failures.append(failure)
                for file in release.files:
                    (folder / file.name).unlink(missing_ok=True)
            else:
                self._describe(folder, WHOLE, files, counts, expected)
                return
        if all(isinstance(failure, Unreachable) for failure in failures):
            raise Unreachable(" — or ".join(map(str, failures)))
        raise UserError(" — or ".join(map(str, failures)))

    def _fetch_files(self, release: Release, folder: Path) -> dict[str, Any]:
        mirror = mirror_folder()
        if release.warning and not (mirror and release.all_in(mirror)):
            print(f"{self.name}: {release.names}: {release.warning}", flush=True)
        return {
            file.name: _record(fetch_file(file, folder), file.checksum) for file in release.files
        }

    def _checked_counts(self, release: Release, expected: Counts | None, folder: Path) -> Counts:
        try:
            counts = self.counts(folder)
        except UserError as error:
            raise _Unusable(str(error)) from None
        if expected not in (None, counts):
            raise _Unusable(
                f"{self.name}: {release.names} hold {_tell(counts)}, and the published set"
                f" {_tell(expected)}; it is another data set (see docs/data.md)"
            )
        return counts

    def _describe(
        self,
        folder: Path,
        kind: str,
        files: dict[str, Any],
        counts: Counts,
        published: Counts | None,
    ) -> None:
        facts = {"source": self.name, "kind": kind, "files": files}
        write_origin(folder, {**facts, "counts": counts, "published_counts": published})


class _Unusable(UserError):
    """A release was fetched and is not what it should be."""


def _record(fingerprint: Fingerprint, checked: Sequence[str]) -> dict[str, Any]:
    """A file for ``ORIGIN.json``; without a published checksum its first use is what is trusted."""
    against = " ".join(checked) or None
    return {"size": fingerprint.size, "sha256": fingerprint.sha256, "checked_against": against}


def _tell(counts: Mapping[Part, int] | None) -> str:
    return " / ".join(f"{(counts or {}).get(part, 0):,}" for part in PARTS) + " (train / test)"
