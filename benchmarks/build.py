"""What packing iDomainNet costs beside Pillow alone: speed, memory, size.

Made-up JPEGs of DomainNet's sizes, in the zips and lists that its source reads, are built by the
project's own code. A few dozen pictures stand under all names: only decoding matters here.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from dacr.data.benchmark import IMAGES
from dacr.data.building import build_benchmark
from dacr.data.sources.domainnet import DOMAINS, DomainNet, DomainNetOptions

CLASSES, SIZE = 100, 128
PICTURES, SIDES, NOISE, QUALITY = 48, (300, 801), 3, 85
TEST_SHARE = 0.3
CHUNK = 32


@dataclass(frozen=True)
class Costs:
    """One measurement, in seconds by the clock and of all processors together."""

    images: int
    encoded_bytes: int
    build: float
    pillow: float
    build_cpu: float
    pillow_cpu: float
    peak_bytes: int
    packed_bytes: int


def make_pictures(folder: Path) -> list[Path]:
    """Pictures with something at every scale: smooth shapes under fine noise."""
    generator = np.random.default_rng(0)
    paths = []
    for number in range(PICTURES):
        width, height = (int(side) for side in generator.integers(*SIDES, 2))
        shapes = generator.integers(0, 256, (12, 12, 3), np.uint8)
        picture = Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC)
        noise = generator.normal(0, NOISE, (height, width, 1))
        noisy = np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8)
        paths.append(folder / f"{number}.jpg")
        Image.fromarray(noisy).save(paths[-1], quality=QUALITY)
    return paths


def lay_out(raw: Path, pictures: Sequence[Path], images: int) -> list[Path]:
    """The zips and lists of all domains; returns the picture behind each image."""
    contents = [path.read_bytes() for path in pictures]
    each = images // (len(DOMAINS) * CLASSES)
    used: list[Path] = []
    lists: dict[str, str] = {}
    for domain in DOMAINS:
        folder = raw / domain
        folder.mkdir(parents=True)
        lines: dict[str, list[str]] = {"train": [], "test": []}
        with zipfile.ZipFile(folder / f"{domain}.zip", "w", zipfile.ZIP_STORED) as archive:
            for label in range(CLASSES):
                for number in range(each):
                    name = f"{domain}/class_{label:03d}/{domain}_{label:03d}_{number:06d}.jpg"
                    picture = len(used) % len(pictures)
                    archive.writestr(name, contents[picture])
                    used.append(pictures[picture])
                    part = "test" if number < TEST_SHARE * each else "train"
                    lines[part].append(f"{name} {label}\n")
        lists |= {f"{domain}_{part}.txt": "".join(own) for part, own in lines.items()}
    for folder in raw.iterdir():
        for name, text in lists.items():
            (folder / name).write_text(text, encoding="utf-8")
    return used


def decode(paths: Sequence[Path]) -> float:
    """Pillow alone, what the build has to do at the very least; seconds of the processor."""
    started = time.process_time()
    for path in paths:
        picture = Image.open(BytesIO(path.read_bytes())).convert("RGB")
        picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return time.process_time() - started


def decoding_seconds(paths: Sequence[Path]) -> tuple[float, float]:
    """How long a process a core decodes, and what it costs; their start is not counted."""
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        list(pool.map(decode, chunks[: 2 * workers]))
        started = time.perf_counter()
        cpu = sum(pool.map(decode, chunks))
        return time.perf_counter() - started, cpu


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The largest sum of resident bytes of this process and all below it, as the only item.

    Pages that processes share count for each of them: the truth is below.
    """
    peak, done = [0], threading.Event()

    def resident(process: psutil.Process) -> int:
        try:
            return int(process.memory_info().rss)
        except psutil.Error:  # it has just ended
            return 0

    def watch() -> None:
        me = psutil.Process()
        while not done.wait(0.2):
            peak[0] = max(peak[0], sum(map(resident, [me, *me.children(recursive=True)])))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def cpu_seconds() -> float:
    """What this process and those that it has seen end have cost so far."""
    return sum(os.times()[:4])


def build_seconds(raw: Path, out: Path) -> tuple[float, float]:
    """How long the whole build takes, and what it costs; the start of its processes counts."""
    options = DomainNetOptions(classes=CLASSES)
    sources = [(DomainNet(f"domainnet_{domain}", options), raw / domain) for domain in DOMAINS]
    started, cpu = time.perf_counter(), cpu_seconds()
    names = sources[0][0].class_names(sources[0][1])
    build_benchmark("idomainnet", names, list(DOMAINS), sources, image_size=SIZE, out=out)
    return time.perf_counter() - started, cpu_seconds() - cpu


def build_costs(images: int) -> Costs:
    """Build and bare decoding with as many processes, the latter half before and half after."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pictures").mkdir()
        used = lay_out(folder / "raw", make_pictures(folder / "pictures"), images)
        half = len(used) // 2
        first, first_cpu = decoding_seconds(used[:half])
        with peak_memory() as peak:
            build, build_cpu = build_seconds(folder / "raw", folder / "out")
        second, second_cpu = decoding_seconds(used[half:])
        return Costs(
            images=len(used),
            encoded_bytes=sum(path.stat().st_size for path in used),
            build=build,
            pillow=first + second,
            build_cpu=build_cpu,
            pillow_cpu=first_cpu + second_cpu,
            peak_bytes=peak[0],
            packed_bytes=(folder / "out" / IMAGES).stat().st_size,
        )


def tell(costs: Costs) -> None:
    size = costs.encoded_bytes / costs.images / 1e3
    print(f"build of {costs.images:,} JPEGs of {size:.0f} kB, {os.cpu_count()} processes:")
    build, pillow = costs.images / costs.build, costs.images / costs.pillow
    print(f"  build / Pillow alone: {build:.0f} / {pillow:.0f} images/s = {build / pillow:.3f}")
    build, pillow = costs.build_cpu, costs.pillow_cpu
    print("  the same by processor time, which others on the machine disturb less:")
    print(f"    {pillow:.1f} / {build:.1f} s = {pillow / build:.3f}")
    print(f"  peak memory of all processes: {costs.peak_bytes / 1e9:.2f} GB")
    print(f"  packed: {costs.packed_bytes / 1e9:.3f} GB")
