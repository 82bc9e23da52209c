"""What the world does to a run: full disks, locked folders, wrong clocks, no memory, noise."""

import io
import math
import os
import shutil
import subprocess
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from dacr.config import load_params
from dacr.data.fetching import fetch_source
from dacr.data.session_table import read_session
from dacr.data.sources import get_source
from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint
from dacr.learning.training import Phase, Trainer
from dacr.methods import make_method
from dacr.runtime.progress import TrainingProgress
from dacr.sessions.learn import learn
from tests.learning import CPU, small_params, small_session
from tests.schedules import make_schedule
from tests.test_stage import only_line, run_main
from tests.tiny_pipeline import REPOSITORY, prepare, tiny_params
from tests.warm import warm_path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder, tiny_params("method=der_dacr", "split=nd"))
    return folder


@contextmanager
def mounted(place: Path, *options: str):
    """A file system at ``place``, where this process may mount one."""
    place.mkdir(exist_ok=True)
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    result = subprocess.run(
        ["mount", *options, str(place)], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {result.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def stage(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [f"{warm_path()}/python", "-m", "stages.learn", "01"],
        cwd=folder,
        env={**os.environ, "DVC_ROOT": str(folder), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


def size_of(folder: Path) -> int:
    return sum(4096 + file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_a_disk_that_fills_up_in_the_midst_of_a_checkpoint(prepared, tmp_path):
    room = size_of(prepared) + 120_000  # the network has 300 kB
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", f"size={room}", "tmpfs") as place:
        shutil.copytree(prepared, place / "run", symlinks=True)
        result = stage(place / "run")
        assert result.returncode == 1, result.stderr
        assert "disk is full" in only_line(result)
        assert not (place / "run/runs/01/learned/state.safetensors").exists()


def test_a_file_system_that_is_read_only(prepared, tmp_path):
    with mounted(tmp_path / "locked", "--bind", str(prepared)) as place:
        remount = ["mount", "-o", "remount,ro,bind", str(place)]
        if subprocess.run(remount, capture_output=True, check=False).returncode != 0:
            pytest.skip("a mount cannot be made read-only here")
        result = stage(place)
        assert result.returncode == 1, result.stderr
        assert "read-only" in only_line(result)


@pytest.mark.parametrize("moment", [0, 2**32], ids=["1970", "2106"])
def test_wrong_clocks_change_nothing(prepared, tmp_path, moment):
    params = tiny_params("method=der_dacr", "split=nd")
    results = []
    for name in ("right", "wrong"):
        folder = tmp_path / name
        shutil.copytree(prepared, folder, symlinks=True)
        if name == "wrong":
            for file in folder.rglob("*"):
                os.utime(file, (moment, moment), follow_symlinks=False)
        with chdir(folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("DVC_ROOT", str(folder))
            learn(params, "01")
        learned = sorted((folder / "runs/01/learned").rglob("*.*"))
        results.append([file.read_bytes() for file in learned])
    assert results[0] == results[1]


def test_a_loss_that_is_lost_keeps_the_last_good_epoch(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    params = small_params("method=replay", "train.epochs=4")
    session = small_session(1, [], [0, 1], [])
    method = make_method(params, CPU)
    method.begin(session)
    (phase,) = method.phases(session)
    now = []

    def losses(batch):
        broken = math.nan if now[-1] == 2 else 1.0
        return {name: value * broken for name, value in phase.losses(batch).items()}

    def begin(epoch):
        now.append(epoch)
        phase.start_epoch(epoch)

    breaking = Phase(**{**vars(phase), "losses": losses, "start_epoch": begin})
    with pytest.raises(UserError, match=r"epoch 3.*lower train\.lr"), Checkpoint("w") as checkpoint:
        Trainer(method, session, checkpoint, TrainingProgress(1, 1)).fit(breaking)
    with Checkpoint("w") as checkpoint:
        optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
        rows = checkpoint.restore("train", method, optimizer)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all(torch.isfinite(p).all() for p in method.parameters())


@pytest.mark.parametrize(
    "body",
    [
        "import torch\ntorch.empty(1 << 50)",
        "import numpy\nnumpy.empty(1 << 50)",
    ],
    ids=["torch", "numpy"],
)
def test_too_little_memory_suggests_a_smaller_batch(tmp_path, body):
    result = run_main(body, tmp_path)
    assert result.returncode == 1
    assert "train.batch_size" in only_line(result)


# Noise -------------------------------------------------------------------------------------------

bounded = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["nd", "nc", "01", "00", "idigits_mini", "der_dacr"])
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def survives(work):
    """``work`` ends, or says why it does not; any other error is ours."""
    with suppress(UserError):
        work()


def paths_in(tree, here=()):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*here, key)
            yield from paths_in(value, (*here, key))


WHOLE = small_params().model_dump(mode="json", by_alias=True)


@bounded
@given(st.sampled_from(sorted(paths_in(WHOLE))), trees)
def test_noise_in_a_parameter(tmp_path, path, noise):
    params = yaml.safe_load(yaml.safe_dump(WHOLE))
    *way, last = path
    inner = params
    for key in way:
        inner = inner[key]
    inner[last] = noise
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    survives(lambda: load_params(tmp_path / "params.yaml"))


@bounded
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8")))
def test_noise_for_parameters(tmp_path, noise):
    (tmp_path / "params.yaml").write_bytes(noise)
    survives(lambda: load_params(tmp_path / "params.yaml"))


cells = st.text(alphabet="0123456789-.,\"'ab\x00\r é", max_size=6)


@bounded
@given(st.lists(st.lists(cells, max_size=5), max_size=6), st.booleans())
def test_noise_in_tables(tmp_path, rows, headed):
    table = tmp_path / "table.csv"
    text = "\n".join(",".join(row) for row in rows)
    table.write_text(("session,class,domain\n" if headed else "") + text, newline="")
    survives(lambda: make_schedule("table", 4, 2, sessions=2, table=str(table)))
    table.write_text(("id,label,domain,part,pixels\n" if headed else "") + text, newline="")
    survives(lambda: read_session(table))


def read_all(name, folder, **options):
    fetch_source(name, {name: options}, folder)
    source = get_source(name, {name: options})
    source.class_names(folder)
    list(source.read(folder))


arrays = st.sampled_from(
    [
        np.zeros((4, 8, 8, 3), np.uint8),
        np.zeros((4, 8, 8), np.uint8),
        np.zeros((4, 8, 8, 4), np.uint8),
        np.zeros((0, 8, 8), np.uint8),
        np.zeros((4, 0, 0, 3), np.uint8),
        np.array(3),
        np.arange(4),
        np.array(["a", "b", "a", "b"]),
        np.array(["", "/", "../..", "\x00"]),
        np.array([1.5, math.nan, 2, 3]),
        np.array([b"a", b"b", b"c", b"d"]),
        np.arange(4).astype("datetime64[s]"),
        np.array([-1, 0, 2**62, 5]),
    ]
)


@bounded
@given(
    st.dictionaries(st.sampled_from(["x", "y", "domain", "z"]), arrays, max_size=4),
    st.integers(0, 400),
    st.binary(max_size=3),
)
def test_noise_in_an_npz(tmp_path, content, place, noise):
    path = tmp_path / "own.npz"
    np.savez(path, **content)
    raw = bytearray(path.read_bytes())
    if noise and raw:
        place %= len(raw)
        raw[place : place + len(noise)] = noise
    path.write_bytes(raw)
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    survives(lambda: read_all("npz", out, path=str(path)))


names = st.text(
    alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="/\x00"),
    min_size=1,
    max_size=8,
).filter(lambda name: name not in (".", ".."))


def picture_bytes(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 7)).save(stream, kind)
    return stream.getvalue()


PICTURES = {
    ".png": picture_bytes("PNG"),
    ".jpg": picture_bytes("JPEG"),
    ".bmp": picture_bytes("BMP"),
}


@bounded
@given(
    st.lists(
        st.tuples(
            names, names, names, st.sampled_from(sorted(PICTURES)), st.integers(0, 999), st.binary()
        ),
        max_size=4,
    )
)
def test_noise_in_a_folder_of_images(tmp_path, images):
    root, out = tmp_path / "images", tmp_path / "out"
    for folder in (root, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for domain, label, name, suffix, place, noise in images:
        content = bytearray(PICTURES[suffix])
        start = place % len(content)
        content[start : start + len(noise)] = noise
        path = root / domain / label / (name + suffix)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:
            continue  # a name that the file system does not take, or a file where a folder goes
    survives(lambda: read_all("folder", out, path=str(root), broken="skip"))
