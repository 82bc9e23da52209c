"""Samples of any size and coding → rows of the packed array, with bounded memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from io import BytesIO
from itertools import islice
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dacr.data.sources.base import Sample
from dacr.errors import UserError

CHUNK = 32  # samples that travel together
IN_FLIGHT = 2  # chunks a worker may have waiting for it

Packed = tuple[list[Sample], NDArray[np.uint8]]


def pack_image(image: NDArray[np.uint8] | bytes, size: int) -> NDArray[np.uint8]:
    """One image as size×size×3: three channels, scaled (not cropped) with antialiasing."""
    if isinstance(image, np.ndarray) and image.shape == (size, size, 3):
        return image
    if isinstance(image, np.ndarray) and 0 in image.shape:
        raise ValueError(f"it has no pixels: {'×'.join(map(str, image.shape[:2]))}")
    picture = Image.open(BytesIO(image)) if isinstance(image, bytes) else Image.fromarray(image)
    picture = picture.convert("RGB")
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(picture)


def _pack_chunk(chunk: list[Sample], size: int) -> NDArray[np.uint8]:
    rows = np.empty((len(chunk), size, size, 3), np.uint8)
    for row, sample in zip(rows, chunk, strict=True):
        try:
            row[:] = pack_image(sample.image, size)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(
                f"image {sample.source_id} of {sample.domain} cannot be decoded ({error}); "
                "remove the raw folder of its source under data/raw and run `dvc repro`"
            ) from None
    return rows


def _chunks(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def packed(samples: Iterable[Sample], size: int, workers: int | None = None) -> Iterator[Packed]:
    """The samples in their order, chunk by chunk, with their packed rows.

    Encoded images are decoded by ``workers`` processes (default: one a core). Arrays are cheaper
    to pack here than to send. Workers are spawned: a fork of a process with threads may hang.
    """
    workers = workers or os.cpu_count() or 1
    waiting: deque[tuple[list[Sample], Future[NDArray[np.uint8]]]] = deque()
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for chunk in _chunks(samples):
            if workers > 1 and any(isinstance(sample.image, bytes) for sample in chunk):
                rows = pool.submit(_pack_chunk, chunk, size)
            else:
                rows = Future()
                rows.set_result(_pack_chunk(chunk, size))
            waiting.append((chunk, rows))
            if len(waiting) >= IN_FLIGHT * workers:
                done, rows = waiting.popleft()
                yield done, rows.result()
        for done, rows in waiting:
            yield done, rows.result()
