"""What a trained run says about images: class, confidence, component, nearest exemplars.

The confidence is P(y|x): the posterior of the mixture (Eq. 11) for methods w/ ours, the softmax of
the class scores for all others. It is not calibrated. Images are resized as the benchmark's are;
photographs are turned upright, 16-bit grey is scaled to 8 bits, transparent parts become white.
Files that are no images are named on standard error, the others are predicted, the exit code is 1.
Images are read and told 256 at a time, so that any number of them fits into memory; ^C ends after
those that are read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dacr.data import any_image
from dacr.errors import UserError, naming
from dacr.experiments.reading import refuse_the_pipelines
from dacr.experiments.trained import open_run
from dacr.runtime.stage import interrupts_wait

if TYPE_CHECKING:  # torch takes seconds to load: what is wrong is reported before
    from dacr.report.predictions import Output
    from dacr.sessions.predict import Predictor


NO_IMAGE = "name at least one image, a folder of images, or - for standard input"
LONGEST = 1 << 16
"""Bytes that no name of a file has."""

Batch = list[tuple[str, NDArray[np.uint8]]]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number between 0 and 100")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trained",
        metavar="RUN",
        help="a session's folder (runs/04), 'workspace' (its last session), an experiment's name "
        "or a git revision (their last session, from DVC's cache or remote), or where a model was "
        "published: a folder or s3://…",
    )
    parser.add_argument(
        "images",
        metavar="image",
        nargs="*",
        help="image files, folders (searched recursively), or - for one image on standard input",
    )
    parser.add_argument(
        "--from-file",
        metavar="FILE",
        help="take more names from a file, one per line; - is standard input",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="one JSON object per line")
    kind.add_argument("--csv", action="store_true", help="comma-separated lines with a header")
    parser.add_argument(
        "--exemplars",
        metavar="K",
        type=_count,
        default=3,
        help="how many of the nearest exemplars in memory to name, by the cosine of features "
        "(default: 3; 0 does not need the benchmark's images)",
    )
    parser.add_argument(
        "--save-exemplars",
        metavar="DIR",
        type=Path,
        help="write the exemplars that are named as exemplar-<id>.png to this folder",
    )


def run(arguments: argparse.Namespace) -> None:
    if sys.stdout is None:
        raise UserError("standard output is closed; nothing could be told")
    names, folder, tally = _names(arguments), arguments.save_exemplars, Tally()
    _check_folder(folder, arguments.exemplars)
    images = _found(names, tally)
    first = next(images, None)
    if first is None and not tally.refused:
        raise UserError(NO_IMAGE)
    if first is None:
        raise UserError(f"{tally.refused:,} could not be read, 0 could")
    with TemporaryDirectory(prefix="dacr-") as scratch:
        found = open_run(arguments.trained, Path(scratch), with_images=arguments.exemplars > 0)
        if found.note:
            _tell(found.note)
        if folder and not found.exemplars:
            raise UserError(
                "--save-exemplars: a published model comes without the images of its memory"
            )
        if folder:
            with naming(f"--save-exemplars {folder}"):
                folder.mkdir(parents=True, exist_ok=True)
        # Only now: a wrong name is reported before the seconds that torch takes to load.
        from dacr.sessions.predict import Predictor

        predictor = Predictor(found, arguments.exemplars)
        try:
            _predict(
                chain([first], images), predictor, _output(arguments, predictor), folder, tally
            )
        except KeyboardInterrupt:
            told = f"the predictions of {tally.done:,} images are complete"
            raise KeyboardInterrupt(told) from None
    if tally.refused:
        raise UserError(f"{tally.refused:,} could not be read, {tally.done:,} could")


@dataclass
class Tally:
    """How many images were predicted, and how many could not be read."""

    done: int = 0
    refused: int = 0


def _check_folder(folder: Path | None, exemplars: int) -> None:
    if folder and not exemplars:
        raise UserError("--save-exemplars needs --exemplars of at least 1")
    if folder:
        refuse_the_pipelines(folder, "--save-exemplars")


def _names(arguments: argparse.Namespace) -> Iterator[str]:
    """The images that the command line asks for; what cannot be opened is refused at once."""
    names = list(arguments.images)
    if [*names, arguments.from_file].count(any_image.STDIN) > 1:
        raise UserError("standard input can be read once: give - only once")
    if not names and not arguments.from_file:
        raise UserError(NO_IMAGE)
    return chain(names, _listed(arguments.from_file) if arguments.from_file else [])


def _listed(file: str) -> Iterator[str]:
    if file != any_image.STDIN:
        with naming(f"--from-file {file}"):
            return _lines(Path(file).open("rb"), file)
    if sys.stdin is None or sys.stdin.closed:
        raise UserError("standard input is closed; pipe a list of names into it")
    if sys.stdin.isatty():
        _tell("names of images, one per line; end with Ctrl-D on a line of its own")
    return _lines(sys.stdin.buffer, file)


def _lines(stream: BinaryIO, file: str) -> Iterator[str]:
    """The names in a list, read as they are needed."""
    own = nullcontext() if file == any_image.STDIN else stream
    with own, naming(f"--from-file {file}"):
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST), b"")):
            if len(line) == LONGEST:
                raise UserError(f"--from-file {file}: line {number + 1} is too long for a name")
            coding = "utf-8" if number else "utf-8-sig"
            name = line.decode(coding, errors="surrogateescape")
            if name.strip():
                yield name.removesuffix("\n").removesuffix("\r")


def _found(names: Iterator[str], tally: Tally) -> Iterator[str]:
    """The images that seem readable; the others are reported as they come, and counted."""
    for name in any_image.named_images(names):
        if isinstance(name, str):
            yield name
        else:
            _refuse(name, tally)


def _refuse(error: UserError, tally: Tally) -> None:
    tally.refused += 1
    _tell(str(error))


def _output(arguments: argparse.Namespace, predictor: Predictor) -> Output:
    from dacr.report.predictions import CsvLines, JsonLines, PrettyTable

    if arguments.json:
        return JsonLines()
    if arguments.csv:
        return CsvLines(predictor.k)
    params = predictor.run.params
    return PrettyTable(f"{arguments.trained}: {params.method} on {params.benchmark}")


def _predict(
    names: Iterator[str],
    predictor: Predictor,
    output: Output,
    folder: Path | None,
    tally: Tally,
) -> None:
    """Predict batch by batch; only one is in memory.

    ^C while an image is waited for or read ends this after those that are read are predicted.
    """
    from dacr.sessions.predict import BATCH

    batch: Batch = []
    try:
        for name in names:
            try:
                batch.append((name, any_image.read_image(name, predictor.size)))
            except UserError as error:
                _refuse(error, tally)
            if len(batch) == BATCH:
                _finish(batch, predictor, output, folder, tally)
    finally:
        if batch:
            _finish(batch, predictor, output, folder, tally)


def _finish(
    batch: Batch, predictor: Predictor, output: Output, folder: Path | None, tally: Tally
) -> None:
    """Predict what was read and tell all of it, also when ^C comes meanwhile."""
    with interrupts_wait():
        own = list(batch)
        batch.clear()
        predictions = predictor(np.stack([image for _, image in own]))
        for (name, _), prediction in zip(own, predictions, strict=True):
            output.add(name, prediction)
        output.flush()
        tally.done += len(own)
        if folder:
            for exemplar in {e.id: e for p in predictions for e in p.exemplars}.values():
                _save(predictor.image_of(exemplar), folder / f"exemplar-{exemplar.id}.png")


def _save(image: NDArray[np.uint8], path: Path) -> None:
    """The image as a PNG, unless a file of this name holds something else."""
    content = BytesIO()
    Image.fromarray(image).save(content, "PNG")
    with naming(f"--save-exemplars {path}"):
        if not path.exists():
            path.write_bytes(content.getvalue())
        elif path.read_bytes() != content.getvalue():
            raise UserError(
                f"--save-exemplars: {path} exists and is another image; name another folder"
            )


def _tell(line: str) -> None:
    from dacr.report.predictions import printable

    print(f"dacr: {printable(line)}", file=sys.stderr, flush=True)
