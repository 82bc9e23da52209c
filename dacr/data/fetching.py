"""Bring a source here: what can be wrong is told before its bytes come, nothing is left over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dacr.config import Data
from dacr.data.download import forget_kept, mirror_folder
from dacr.data.mirror_samples import check_cifar, check_digits
from dacr.data.sources import get_source
from dacr.data.sources.cifar100 import Cifar100
from dacr.data.sources.upstream import TABLE, Published, Upstream, UpstreamDigits
from dacr.errors import UserError

Options = Mapping[str, Mapping[str, Any]]


def check_options(data: Data) -> None:
    """Refuse wrong options of any source, also those that only reading needs, hours later."""
    if not (data.source_options or data.read_options):
        return  # and import none of the sources
    for name in data.sources:
        get_source(name, data.source_options)
        try:
            get_source(name, data.source_options | data.read_options)
        except UserError as error:
            wrong = str(error).replace("data.source_options", "data.read_options")
            raise UserError(wrong) from None


def fetch_source(name: str, options: Options, folder: Path) -> None:
    """Bring the source of that name to ``folder`` (it exists and is empty), verified."""
    source = get_source(name, options)
    if isinstance(source, Upstream):
        fetch_upstream(source, folder)
    else:
        source.fetch(folder)


def fetch_upstream(source: Upstream, folder: Path) -> None:
    """The same for a published set."""
    published = _published(source)
    _check_sample(source, published)
    source.fetch(folder)
    forget_kept(file for release in published.releases for file in release)


def _published(source: Upstream) -> Published:
    """What ``conf/sources.yaml`` knows of the source."""
    try:
        return source.published
    except UnicodeDecodeError as error:
        raise UserError(
            f"{TABLE.name} is not UTF-8 ({error.reason} at byte {error.start:,}); save it as"
            " UTF-8, or restore it with `git restore conf/sources.yaml`"
        ) from None
    except KeyError:
        raise UserError(
            f"{TABLE.name} has no entry '{source.name}'; add it there, or restore the table with"
            " `git restore conf/sources.yaml`"
        ) from None


def _check_sample(source: Upstream, published: Published) -> None:
    """Look at the sample of a mirror, if it is the one that will be taken."""
    mirror = mirror_folder()
    if mirror is None or not (mirror / source.sample_name).is_file():
        return
    if any(all((mirror / f.name).is_file() for f in release) for release in published.releases):
        return
    match source:
        case UpstreamDigits():
            check_digits(mirror / source.sample_name)
        case Cifar100():
            check_cifar(mirror / source.sample_name)
