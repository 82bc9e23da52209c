"""What a trained run says about images: class, confidence, component, nearest exemplars.

The confidence is P(y|x): the posterior of the mixture (Eq. 11) for methods w/ ours, the softmax of
the class scores for all others. It is not calibrated. Images are resized as the benchmark's are;
photographs are turned upright, 16-bit grey is scaled to 8 bits, transparency is laid on white.
What is not an image is named on standard error, the others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dacr.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dacr.prediction.output import Output
    from dacr.prediction.predictor import Predictor

HELP = "what a trained run says about images"


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError("between 0 and 100")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trained",
        metavar="RUN",
        help="a session's folder (runs/04), 'workspace' (its last session), an experiment's name "
        "or a git revision (their last session, from DVC's cache or remote)",
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
        help="take more names from a file, one a line; - is standard input",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="one JSON object a line")
    kind.add_argument("--csv", action="store_true", help="comma-separated lines with a header")
    parser.add_argument(
        "--exemplars",
        metavar="K",
        type=_count,
        default=3,
        help="how many of the nearest exemplars in memory to tell, by the cosine of features "
        "(default: 3; 0 does not need the benchmark's images)",
    )
    parser.add_argument(
        "--save-exemplars",
        metavar="DIR",
        type=Path,
        help="write the exemplars that are told as <id>.png to this folder",
    )


def run(arguments: argparse.Namespace) -> None:
    names = _names(arguments)
    if arguments.save_exemplars and not arguments.exemplars:
        raise UserError("--save-exemplars needs --exemplars of at least 1")
    from dacr.prediction.runs import open_run

    with TemporaryDirectory(prefix="dacr-") as scratch:
        found = open_run(arguments.trained, Path(scratch), with_images=arguments.exemplars > 0)
        if found.note:
            _tell(found.note)
        # Only now: a wrong name is told before the seconds that torch takes to load.
        from dacr.prediction.predictor import Predictor

        predictor = Predictor(found, arguments.exemplars)
        refused, read = _predict(names, predictor, _output(arguments, predictor), arguments)
    if refused:
        raise UserError(f"{refused} could not be read, {read} could")


def _names(arguments: argparse.Namespace) -> list[str]:
    """The images that the command line asks for, before any work."""
    from dacr.prediction.images import STDIN

    names = list(arguments.images)
    if [*names, arguments.from_file].count(STDIN) > 1:
        raise UserError("standard input can be read once: give - only once")
    if arguments.from_file:
        names += _listed(arguments.from_file)
    if not names:
        raise UserError("name at least one image, a folder of images, or - for standard input")
    return names


def _listed(file: str) -> list[str]:
    from dacr.prediction.images import STDIN

    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"--from-file {file}: {error.strerror}") from None
    lines = content.decode(errors="surrogateescape").splitlines()
    return [line for line in lines if line.strip()]


def _output(arguments: argparse.Namespace, predictor: Predictor) -> Output:
    from dacr.prediction.output import CsvLines, JsonLines, PrettyTable

    if arguments.json:
        return JsonLines()
    if arguments.csv:
        return CsvLines(predictor.k)
    params = predictor.run.params
    return PrettyTable(f"{arguments.trained}: {params.method} on {params.benchmark}")


def _predict(
    names: list[str], predictor: Predictor, output: Output, arguments: argparse.Namespace
) -> tuple[int, int]:
    """Predict batch by batch; how many names were refused, and how many images were read."""
    from dacr.prediction.predictor import BATCH

    refused = read = 0
    batch: list[tuple[str, NDArray[np.uint8]]] = []
    for image in _read(names, predictor.size):
        if isinstance(image, UserError):
            refused += 1
            _tell(str(image))
            continue
        read += 1
        batch.append(image)
        if len(batch) == BATCH:
            _flush(batch, predictor, output, arguments.save_exemplars)
            batch = []
    if batch:
        _flush(batch, predictor, output, arguments.save_exemplars)
    output.close()
    return refused, read


def _read(names: list[str], size: int) -> Iterator[tuple[str, NDArray[np.uint8]] | UserError]:
    """Each image with its name, as a row of the benchmark; in place of a wrong one, why."""
    from dacr.prediction.images import find_images, read_image

    for name in find_images(names):
        if isinstance(name, UserError):
            yield name
            continue
        try:
            yield name, read_image(name, size)
        except UserError as error:
            yield error


def _flush(
    batch: list[tuple[str, NDArray[np.uint8]]],
    predictor: Predictor,
    output: Output,
    folder: Path | None,
) -> None:
    import numpy as np
    from PIL import Image

    predictions = predictor(np.stack([image for _, image in batch]))
    for (name, _), prediction in zip(batch, predictions, strict=True):
        output.add(name, prediction)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        for exemplar in {e.id: e for p in predictions for e in p.exemplars}.values():
            Image.fromarray(predictor.image_of(exemplar)).save(folder / f"{exemplar.id}.png")


def _tell(line: str) -> None:
    from dacr.prediction.output import printable

    print(f"dacr: {printable(line)}", file=sys.stderr, flush=True)
