"""What a trained run says about images: class, confidence, component, nearest exemplars.

The confidence is P(y|x): the posterior of the mixture (Eq. 11) for methods w/ ours, the softmax of
the class scores for all others. It is not calibrated. Images are resized as the benchmark's are;
photographs are turned upright, 16-bit grey is scaled to 8 bits, transparent parts become white.
Files that are no images are named on standard error, the others are predicted, the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dacr.data import any_image
from dacr.errors import UserError, naming
from dacr.experiments.reading import refuse_the_pipelines
from dacr.experiments.trained import open_run

if TYPE_CHECKING:  # torch takes seconds to load: what is wrong is reported before
    from dacr.report.predictions import Output
    from dacr.sessions.predict import Predictor


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
    names, folder = _names(arguments), arguments.save_exemplars
    _check_folder(folder, arguments.exemplars)
    images, refused = _found(names)
    if not images:
        raise UserError(f"{refused} could not be read, 0 could")
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
        output = _output(arguments, predictor)
        try:
            refused += (late := _predict(images, predictor, output, folder))
        finally:  # what is done is shown, whatever happens
            output.close()
    if refused:
        raise UserError(f"{refused} could not be read, {len(images) - late} could")


def _check_folder(folder: Path | None, exemplars: int) -> None:
    if folder and not exemplars:
        raise UserError("--save-exemplars needs --exemplars of at least 1")
    if folder:
        refuse_the_pipelines(folder, "--save-exemplars")


def _names(arguments: argparse.Namespace) -> list[str]:
    """The images that the command line asks for, before any work."""
    names = list(arguments.images)
    if [*names, arguments.from_file].count(any_image.STDIN) > 1:
        raise UserError("standard input can be read once: give - only once")
    if arguments.from_file:
        names += _listed(arguments.from_file)
    if not names:
        raise UserError("name at least one image, a folder of images, or - for standard input")
    return names


def _listed(file: str) -> list[str]:
    if file != any_image.STDIN:
        with naming(f"--from-file {file}"):
            content = Path(file).read_bytes()
    elif sys.stdin is None or sys.stdin.closed:
        raise UserError("standard input is closed; pipe a list of names into it")
    else:
        if sys.stdin.isatty():
            _tell("names of images, one per line; end with Ctrl-D on a line of its own")
        content = sys.stdin.buffer.read()
    lines = content.decode("utf-8-sig", errors="surrogateescape").split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip()]


def _found(names: list[str]) -> tuple[list[str], int]:
    """The images that seem readable; the others are reported at once, and counted."""
    found = list(any_image.named_images(names))
    wrong = [name for name in found if isinstance(name, UserError)]
    for error in wrong:
        _tell(str(error))
    return [name for name in found if isinstance(name, str)], len(wrong)


def _output(arguments: argparse.Namespace, predictor: Predictor) -> Output:
    from dacr.report.predictions import CsvLines, JsonLines, PrettyTable

    if arguments.json:
        return JsonLines()
    if arguments.csv:
        return CsvLines(predictor.k)
    params = predictor.run.params
    return PrettyTable(f"{arguments.trained}: {params.method} on {params.benchmark}")


def _predict(names: list[str], predictor: Predictor, output: Output, folder: Path | None) -> int:
    """Predict batch by batch; how many images could not be read."""
    from dacr.sessions.predict import BATCH

    refused = 0
    for start in range(0, len(names), BATCH):
        batch: list[tuple[str, NDArray[np.uint8]]] = []
        for name in names[start : start + BATCH]:
            try:
                batch.append((name, any_image.read_image(name, predictor.size)))
            except UserError as error:
                refused += 1
                _tell(str(error))
        predictions = predictor(np.stack([image for _, image in batch])) if batch else []
        for (name, _), prediction in zip(batch, predictions, strict=True):
            output.add(name, prediction)
        if folder:
            for exemplar in {e.id: e for p in predictions for e in p.exemplars}.values():
                _save(predictor.image_of(exemplar), folder / f"exemplar-{exemplar.id}.png")
    return refused


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
