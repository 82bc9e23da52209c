"""Every file that a stage reads, as a pickle, cut short or emptied: one line, and no code runs."""

import io
import pickle
import shutil
import subprocess
import sys
import zipfile
from contextlib import chdir, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from dacr.config import load_params
from dacr.data.archives import read_npz, read_tensors
from dacr.data.download import fetch_file
from dacr.data.files import RemoteFile
from dacr.data.sources import get_source
from dacr.data.sources.origin import ORIGIN
from dacr.errors import UserError
from dacr.learning.checkpoint import Checkpoint
from dacr.sessions.consolidate import consolidate
from dacr.sessions.learn import learn, work_name
from stages import budget, evaluate, measure, report, schedule, split
from tests.tiny_pipeline import REPOSITORY, prepare, run_sessions, tiny_params


def split_second() -> None:
    with patch.object(sys, "argv", ["split", "02"]):
        split.main()


STAGES = {
    "schedule": schedule.main,
    "split": split_second,
    "learn": lambda: learn(load_params(), "02"),
    "consolidate": lambda: consolidate(load_params(), "02"),
    "evaluate": evaluate.main,
    "measure": measure.main,
    "budget": budget.main,
    "report": report.main,
}
INDEX = ["data/benchmark/benchmark.json", "data/benchmark/index.parquet", "params.yaml"]
READ = {
    "schedule": INDEX,
    "split": [*INDEX, "data/split/schedule.csv"],
    "learn": [
        "data/benchmark/images.npy",
        "data/split/session-02.csv",
        "runs/01/state/state.json",
        "runs/01/state/state.safetensors",
        "runs/01/state/extractors/01.safetensors",
        "runs/01/state/memory.csv",
    ],
    "consolidate": [
        "runs/02/learned/state.safetensors",
        "runs/02/learned/extractors/01.safetensors",
        "runs/02/learned/losses.json",
        "runs/01/results/history.json",
        "runs/01/results/predictions.parquet",
        "runs/01/results/embedding.parquet",
    ],
    "evaluate": [
        "data/split/schedule.csv",
        "runs/02/results/predictions.parquet",
        "runs/02/results/embedding.parquet",
        "runs/02/results/history.json",
    ],
    "measure": ["data/split/schedule.csv", "runs/02/results/predictions.parquet"],
    "budget": [
        "data/benchmark/benchmark.json",
        "runs/02/state/memory.csv",
        "runs/02/state/state.safetensors",
        "runs/02/state/extractors/01.safetensors",
    ],
    "report": [
        "reports/metrics.json",
        "reports/plots/confusion.csv",
        "reports/measures.json",
        "reports/measures/new_and_old.csv",
        "reports/budget.json",
        "conf/paper.yaml",
    ],
}


class Hostile:
    """Whoever unpickles this runs a command, which leaves a file behind."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (open, (str(self.trace), "w"))


def hostile(trace: Path, file: str) -> bytes:
    """A pickle in whatever form the format of the file allows."""
    if file.endswith(".npy"):
        stream = io.BytesIO()
        np.save(stream, np.array([Hostile(trace)], dtype=object), allow_pickle=True)
        return stream.getvalue()
    if file.endswith(".yaml"):
        return f"!!python/object/apply:builtins.open ['{trace}', 'w']\n".encode()
    return pickle.dumps(Hostile(trace))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    params = tiny_params("method=der_dacr", "split=nd")
    prepare(folder, params)
    run_sessions(folder, params)
    shutil.copytree("conf", folder / "conf")
    (folder / "reports").mkdir()
    with chdir(folder):
        evaluate.main()
        measure.main()
        budget.main()
        report.main()
    return folder


@pytest.fixture
def run(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run", symlinks=True)
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_note_of_where_images_come_from_is_one_line(tmp_path, content):
    folder = tmp_path / "npz"
    folder.mkdir()
    (folder / ORIGIN).write_bytes(content)
    with pytest.raises(UserError, match=r"ORIGIN.json is damaged; run `dvc repro -f fetch@npz`"):
        get_source("npz", {"npz": {"path": "own.npz"}}).size(folder)


def test_the_pickles_of_this_file_do_run_code(tmp_path):
    for name in ("a.json", "b.npy"):
        content = hostile(tmp_path / "trace", name)
        if name.endswith(".npy"):
            np.load(io.BytesIO(content), allow_pickle=True)
        else:
            pickle.loads(content)
        assert (tmp_path / "trace").exists()
        (tmp_path / "trace").unlink()


CASES = [
    pytest.param(
        stage,
        file,
        id=f"{stage}-{file}",
    )
    for stage, files in READ.items()
    for file in files
]


@pytest.mark.parametrize(("stage", "file"), CASES)
def test_a_bad_file_is_one_line_and_runs_nothing(run, tmp_path, stage, file):
    trace = tmp_path / "trace"
    content = (run / file).read_bytes()
    for bad in (hostile(trace, file), content[: len(content) // 2], content[:-1], b""):
        if bad == content[:-1] and Path(file).suffix in (".json", ".csv", ".yaml"):
            continue  # without its last newline it is still the whole text
        (run / file).write_bytes(bad)
        half_a_table = Path(file).suffix == ".csv" and bad == content[: len(content) // 2]
        # Half a table may be a table. Whatever else is wrong is said, and by nothing but a line.
        with suppress(UserError) if half_a_table else pytest.raises(UserError):
            STAGES[stage]()
        assert not trace.exists(), "code from a file was run"


def test_a_pickle_in_the_scratch_is_trained_over(run, tmp_path):
    expected = (run / "runs/01/learned/state.safetensors").read_bytes()
    folder = Checkpoint(work_name(load_params(), "01")).folder
    folder.mkdir(parents=True)
    (folder / "train.safetensors").write_bytes(pickle.dumps(Hostile(tmp_path / "trace")))
    (folder / "lock").write_bytes(pickle.dumps(Hostile(tmp_path / "trace")))
    learn(load_params(), "01")
    assert not (tmp_path / "trace").exists()
    assert (run / "runs/01/learned/state.safetensors").read_bytes() == expected


def test_a_pickle_in_what_users_and_upstreams_give(tmp_path):
    trace = tmp_path / "trace"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("x", "y", "domain"):
            archive.writestr(f"{name}.npy", hostile(trace, "x.npy"))
    with pytest.raises(UserError):
        read_npz(tmp_path / "a.npz", ["x", "y", "domain"])
    stream = io.BytesIO()
    torch.save((Hostile(trace), torch.zeros(1)), stream)
    with pytest.raises(UserError, match="refused"):
        read_tensors(stream.getvalue(), "synth.pt")
    assert not trace.exists()


def test_no_password_of_an_address_is_in_what_a_failure_says(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    addresses = (
        "http://user:pass-secret@127.0.0.1:1/file?token=query-secret",
        "http://user:pass-secret@127.0.0.1:port/file",
    )
    file = RemoteFile(name="file.zip", addresses=addresses, size=None, checksum=None)
    with pytest.raises(UserError) as told:
        fetch_file(file, tmp_path, pause=lambda seconds: None)
    assert "127.0.0.1" in str(told.value)
    assert "secret" not in str(told.value)


def test_no_stage_opens_a_port_or_a_connection(tmp_path):
    """Every stage in one process, in which touching the network is an error."""
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(REPOSITORY)!r})
def hook(event, arguments):
    if event in ("socket.bind", "socket.connect", "socket.sendto", "socket.getaddrinfo"):
        raise RuntimeError(f"the network was touched: {{event}} {{arguments[1:]}}")
sys.addaudithook(hook)
from tests.tiny_project import copy_code, make_run, write_benchmark
if __name__ == "__main__":
    folder = Path({str(tmp_path / "project")!r})
    folder.mkdir()
    copy_code(folder)
    write_benchmark(folder)
    make_run(folder, "split=one")
    try:
        import socket
        socket.socket().bind(("127.0.0.1", 0))
    except RuntimeError:
        print("the hook works")
"""
    (tmp_path / "script.py").write_text(script)
    result = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "the hook works"
    assert (tmp_path / "project/reports/index.html").exists()
