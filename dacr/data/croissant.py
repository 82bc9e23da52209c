"""A packed benchmark in the words of Croissant, the metadata format of MLCommons (version 1.0).

Search engines of data sets and loaders such as ``mlcroissant`` read it: what the files are, with
size and checksum, what their columns mean, how classes, domains and parts are called, which
session brings which pair, and the terms of every source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dacr.data.benchmark import IMAGES, INDEX, SUMMARY, read_index
from dacr.data.terms import terms_of

Node = dict[str, Any]
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
FORMATS = {
    ".npy": "application/octet-stream",
    ".parquet": "application/x-parquet",
    ".json": "application/json",
    ".csv": "text/csv",
}
COLUMN_TYPES = {
    "id": ("sc:Integer", "its row in images.npy"),
    "label": ("sc:Integer", "the class"),
    "domain": ("sc:Integer", "the domain"),
    "part": ("sc:Text", "train or test"),
    "source_id": ("sc:Text", "its name in the source that it comes from"),
    "pixels": ("sc:Text", "a hash of its pixels: the first 16 digits of their sha256"),
}
SPLIT_ADDRESSES = {"train": "cr:TrainingSplit", "test": "cr:TestSplit"}


def croissant(
    benchmark: Path, schedule: Path | None, out: Path, base: str | None, version: str
) -> Node:
    """The metadata of the benchmark in a folder, and of the schedule if there is one.

    Addresses of files are relative to ``out``, where the metadata go, or below ``base``.
    """
    summary, _ = read_index(benchmark)
    files = [benchmark / name for name in (IMAGES, INDEX, SUMMARY)] + [schedule] * bool(schedule)
    sources = sorted(summary["origins"]) or summary["domains"]
    terms = {source: terms_of(source) for source in sources}
    home = base or next((own.home for own in terms.values() if own.home), None)
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": summary["name"],
        "description": describe(summary, sources),
        "license": list(dict.fromkeys(own.licence for own in terms.values())),
        **({"url": home} if home else {}),
        "version": version,
        "citeAs": " ".join(dict.fromkeys(own.cite for own in terms.values() if own.cite)),
        "isLiveDataset": False,
        "distribution": [_file(file, out, base) for file in files if file is not None],
        "recordSet": [
            _names("classes", "The classes", summary["classes"]),
            _names("domains", "The domains", summary["domains"]),
            _parts(),
            _images(),
            *([_schedule()] if schedule else []),
        ],
    }


def describe(summary: Mapping[str, Any], sources: Iterable[str]) -> str:
    """The benchmark in sentences: its counts, its files, and the terms of each source."""
    counts, size = summary["counts"], summary["image_size"]
    terms = "; ".join(f"{source}: {terms_of(source).licence}" for source in sources)
    return (
        f"{summary['name']}: {counts['train']:,} training and {counts['test']:,} test images of "
        f"{size} x {size}, {len(summary['classes'])} classes in {len(summary['domains'])} domains "
        f"({', '.join(summary['domains'])}). {IMAGES} holds all pixels as uint8 "
        f"[N, {size}, {size}, 3]; sha256 of the pixels: "
        f"{summary.get('pixels_sha256', 'not recorded')}. For general incremental learning: "
        f"a session brings some class-domain pairs. Terms: {terms}."
    )


def _file(path: Path, out: Path, base: str | None) -> Node:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    place = os.path.relpath(path.resolve(), out.resolve().parent).replace(os.sep, "/")
    return {
        "@type": "cr:FileObject",
        "@id": path.name,
        "name": path.name,
        "contentUrl": f"{base.rstrip('/')}/{path.name}" if base else place,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": FORMATS[path.suffix],
        "sha256": digest,
    }


def _field(records: str, name: str, kind: str | list[str], text: str, **more: Any) -> Node:
    return {
        "@type": "cr:Field",
        "@id": f"{records}/{name}",
        "name": f"{records}/{name}",
        "description": text,
        "dataType": kind,
        **more,
    }


def _names(records: str, text: str, names: Sequence[str]) -> Node:
    return {
        "@type": "cr:RecordSet",
        "@id": records,
        "name": records,
        "description": f"{text}, by the numbers that stand for them.",
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{records}/id"},
        "field": [
            _field(records, "id", "sc:Integer", "The number."),
            _field(records, "name", ["sc:Text", "sc:name"], "The name."),
        ],
        "data": [
            {f"{records}/id": number, f"{records}/name": name} for number, name in enumerate(names)
        ],
    }


def _parts() -> Node:
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "description": "Which images are to train and which to test.",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            _field("splits", "name", "sc:Text", "The part, as the index calls it."),
            _field("splits", "url", ["sc:URL", "cr:Split"], "What Croissant calls it."),
        ],
        "data": [
            {"splits/name": part, "splits/url": address}
            for part, address in SPLIT_ADDRESSES.items()
        ],
    }


def _column(records: str, file: str, name: str, kind: str, text: str, **more: Any) -> Node:
    source = {"fileObject": {"@id": file}, "extract": {"column": name}}
    return _field(records, name, kind, text, source=source, **more)


def _images() -> Node:
    references = {"label": "classes/id", "domain": "domains/id", "part": "splits/name"}
    return {
        "@type": "cr:RecordSet",
        "@id": "images",
        "name": "images",
        "description": f"One record per image; its pixels are row id of {IMAGES}.",
        "key": {"@id": "images/id"},
        "field": [
            _column(
                "images",
                INDEX,
                name,
                kind,
                text,
                **(
                    {"references": {"field": {"@id": references[name]}}}
                    if name in references
                    else {}
                ),
            )
            for name, (kind, text) in COLUMN_TYPES.items()
        ],
    }


def _schedule() -> Node:
    columns = {
        "session": ("The session, from 1.", None),
        "class": ("The class that it brings …", "classes/id"),
        "domain": ("… in this domain.", "domains/id"),
        "new_class": ("1 where the class is new.", None),
    }
    return {
        "@type": "cr:RecordSet",
        "@id": "schedule",
        "name": "schedule",
        "description": "Which class-domain pairs each session of the split brings.",
        "field": [
            _column(
                "schedule",
                "schedule.csv",
                name,
                "sc:Integer",
                text,
                **({"references": {"field": {"@id": to}}} if to else {}),
            )
            for name, (text, to) in columns.items()
        ],
    }
