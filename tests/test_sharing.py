"""Sharing as docs/sharing.md tells it: real remotes, real clones, and what goes wrong with them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny_project import ROOT, commit, make_project, run

# moto is a server of S3's protocol; it listens on loopback, inside this process.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A finished run, pushed: git to a bare repository, artifacts to a folder."""
    folder = tmp_path_factory.mktemp("team")
    make_project(folder / "mine")
    run(folder, "git", "init", "-q", "--bare", "-b", "main", "origin.git")
    run(folder / "mine", "git", "remote", "add", "origin", str(folder / "origin.git"))
    run(folder / "mine", "dvc", "remote", "add", "-q", "-d", "team", str(folder / "store"))
    commit(folder / "mine", "remote")
    run(folder / "mine", "dvc", "push", "-q")
    run(folder / "mine", "git", "push", "-q", "-u", "origin", "main")
    return folder


@pytest.fixture
def colleague(team, tmp_path):
    """A fresh clone elsewhere, whose DVC shares nothing with ours but the remote."""
    run(tmp_path, "git", "clone", "-q", str(team / "origin.git"), "theirs")
    for name in ("user.email", "user.name"):
        run(tmp_path / "theirs", "git", "config", name, "colleague@example.org")
    return tmp_path / "theirs"


def the_list(store: Path, project: Path, folder: str) -> Path:
    """Where a remote or cache keeps the list of the files of an out that is a folder."""
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"].values()
    (md5,) = {o["md5"] for stage in stages for o in stage["outs"] if o["path"] == folder}
    return in_store(store, md5)


def the_object(store: Path, project: Path, file: str) -> Path:
    """Where a remote or cache keeps a file of such an out, which ``project`` has cached."""
    path = Path(file)
    listed = json.loads(the_list(project / ".dvc/cache", project, str(path.parent)).read_text())
    (md5,) = (entry["md5"] for entry in listed if entry["relpath"] == path.name)
    return in_store(store, md5)


def in_store(store: Path, md5: str) -> Path:
    return store / "files/md5" / md5[:2] / md5[2:]


def overwrite(path: Path) -> None:
    """Other bytes of the same length, in a file that DVC protects."""
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


def test_a_colleague_pulls_and_no_stage_runs(colleague):
    run(colleague, "dvc", "pull", "-q")
    # Python leaves compiled code beside the sources; that is no change of them.
    run(colleague, "python", "-c", "import dacr.sessions.learn, dacr.report.page")
    assert list(colleague.glob("dacr/learning/__pycache__/*.pyc"))
    output = run(colleague, "dvc", "repro")
    assert "Running stage" not in output
    assert output.count("didn't change, skipping") == 16
    assert "up to date" in run(colleague, "dvc", "status")
    assert run(colleague, "git", "status", "--short") == ""
    verified = run(colleague, "python", "-m", "dacr", "verify")
    assert "equal to the committed run" in verified
    assert verified.splitlines()[-1] == "verified"


def test_who_pulls_nothing_can_experiment_twice(colleague):
    """The committed lock names artifacts that are not here; the second run takes from the cache."""
    for seed in (2, 3):
        other = ("-S", "benchmark=tiny", "-S", "split=one", "-S", "data.per_pair=3")
        output = run(colleague, "dvc", "exp", "run", "--temp", *other, "-S", f"seed={seed}")
    assert "Stage 'build' is cached" in output


def test_the_packed_benchmark_is_enough_to_go_on(team, colleague, tmp_path):
    """As docs/data.md shares data: one fetches and packs, another has no raw files."""
    run(colleague, "python", "-m", "stages.params", "benchmark=tiny", "data.per_pair=2")
    run(colleague, "dvc", "repro", "-q", "build")
    run(colleague, "dvc", "push", "-q", "--with-deps", "build")
    run(colleague, "git", "checkout", "-q", "-b", "data")
    run(colleague, "git", "add", *shared_by_git())
    run(colleague, "git", "commit", "-qm", "Data")
    run(colleague, "git", "push", "-q", "origin", "data")

    run(tmp_path, "git", "clone", "-q", "-b", "data", str(team / "origin.git"), "third")
    third = tmp_path / "third"
    (third / "tiny.npz").unlink()
    run(third, "dvc", "pull", "-q", "build", "code")
    given, taken = (folder / "params.yaml" for folder in (colleague, third))
    assert taken.read_bytes() == given.read_bytes()  # else the lock is of another benchmark
    run(third, "python", "-m", "stages.params", "benchmark=tiny", "data.per_pair=2", "split=one")
    output = run(third, "dvc", "repro", "--allow-missing", "split")
    assert "Running stage 'schedule'" in output
    assert "Running stage 'split@01'" in output
    assert "Running stage 'build'" not in output
    assert len((third / "data/split/session-01.csv").read_text().splitlines()) > 1
    assert not (third / "data/raw").exists()
    run(third, "dvc", "pull", "-q", "fetch@npz")
    assert (third / "data/raw/tiny/npz/images.npz").exists()


def shared_by_git() -> list[str]:
    """What docs/data.md tells the giver to commit."""
    text = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("git add "))
    return line.partition(" && ")[0].split()[2:]


def test_an_experiment_with_another_split_travels(team, colleague):
    mine = team / "mine"
    run(mine, "dvc", "exp", "run", "-q", "-n", "single", "-S", "benchmark=tiny", "-S", "split=one")
    metrics = (mine / "reports/metrics.json").read_bytes()
    page = (mine / "reports/index.html").read_bytes()
    run(mine, "dvc", "exp", "push", "-q", "origin", "single")
    run(mine, "git", "checkout", "-q", "--force", "main")
    run(mine, "dvc", "checkout", "-q", "--force")

    run(colleague, "dvc", "exp", "pull", "-q", "origin", "single")
    run(colleague, "dvc", "exp", "apply", "single")
    run(colleague, "dvc", "pull", "-q")
    assert (colleague / "reports/metrics.json").read_bytes() == metrics
    assert (colleague / "reports/index.html").read_bytes() == page
    assert len(json.loads(metrics)["accuracy_by_session"]) == 1
    assert "Running stage" not in run(colleague, "dvc", "repro")
    verified = run(colleague, "python", "-m", "dacr", "verify")
    assert "other parameters" in verified
    assert "not comparable" in verified


def test_an_object_missing_from_the_remote_is_named(team, colleague):
    lost = the_object(team / "store", team / "mine", "runs/01/state/state.safetensors")
    lost.rename(lost.with_suffix(".away"))
    try:
        output = run(colleague, "dvc", "pull", ok=False)
        assert lost.parent.name + lost.name in output  # DVC names the object, and we the file
        verified = run(colleague, "python", "-m", "dacr", "verify", ok=False)
        assert "runs/01/state of consolidate@01 is not in the cache" in verified
        # Whoever still has the bytes brings the object back. DVC believes that a folder is whole
        # whose list is there, so that the list must go first.
        assert "up to date" in run(team / "mine", "dvc", "push")
        told = remote_faults(team / "mine")
        listed = the_list(team / "store", team / "mine", "runs/01/state")
        assert told == [
            f"runs/01/state/state.safetensors of consolidate@01 is not in team; remove {listed}, "
            "`dvc push -r team` by who has it"
        ]
        listed.unlink()
        run(team / "mine", "dvc", "push", "-q", "-r", "team")
        assert lost.exists()
        assert remote_faults(team / "mine") == []
    finally:
        lost.with_suffix(".away").rename(lost)
    run(colleague, "dvc", "pull", "-q")
    run(colleague, "python", "-m", "dacr", "verify")


def remote_faults(project: Path, **how: Any) -> list[str]:
    """What ``dacr verify --remote``, as docs/sharing.md has it, finds; nothing else is wrong."""
    text = (ROOT / "docs/sharing.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("dacr verify --remote"))
    words = line.partition("#")[0].split()
    said = run(project, "python", "-m", *words, ok=None, **how).splitlines()
    faults = [line.removeprefix("FAULT").split(maxsplit=1) for line in said if "FAULT" in line]
    assert {subject for subject, _ in faults} <= {"remote"}
    assert faults or any("remote" in line and "bytes of their names" in line for line in said)
    return [text for _, text in faults]


def test_a_clone_that_pulled_nothing_can_look_into_the_remote(colleague, team):
    said = run(colleague, "python", "-m", "dacr", "verify", "--remote", "team", ok=False)
    (line,) = (line for line in said.splitlines() if "objects in team" in line)
    kind, subject, count, *_ = line.split()
    objects = {file.parent.name + file.name for file in (team / "store/files/md5").glob("*/*")}
    own = {md5 for md5 in objects if md5 in (team / "mine/dvc.lock").read_text()}
    assert (kind, subject) == ("ok", "remote")
    assert len(own) < int(count) <= len(objects)  # the outs, and the files of folders
    said = run(colleague, "python", "-m", "dacr", "verify", "--remote", "other", ok=False)
    assert "other" in said
    assert "Traceback" not in said
    run(colleague, "dvc", "remote", "default", "-q", "--unset")
    said = run(colleague, "python", "-m", "dacr", "verify", "--remote", ok=False)
    assert "which remote?" in said


def test_a_damaged_object_of_a_folder_is_refused(team, colleague):
    damaged = the_object(team / "store", team / "mine", "runs/02/results/predictions.parquet")
    whole = damaged.read_bytes()
    overwrite(damaged)
    try:
        # As docs/sharing.md advises; without it DVC sees no damage in a folder.
        run(colleague, "dvc", "remote", "modify", "-q", "--local", "team", "verify", "true")
        output = run(colleague, "dvc", "pull", ok=False)
        assert "runs/02/results" in output
        verified = run(colleague, "python", "-m", "dacr", "verify", ok=False)
        assert "runs/02/results of consolidate@02 is missing" in verified
        (fault,) = remote_faults(team / "mine")
        listed = the_list(team / "store", team / "mine", "runs/02/results")
        assert f"is damaged in team; remove {damaged}, remove {listed}, `dvc push" in fault
    finally:
        damaged.parent.mkdir(exist_ok=True)
        damaged.unlink(missing_ok=True)
        damaged.write_bytes(whole)


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_s3_keeps_a_run_and_damage_there_is_caught(team, tmp_path, s3):
    client = bucket_client(s3)
    client.create_bucket(Bucket="bucket")
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for clone in (mine, theirs):
        run(tmp_path, "git", "clone", "-q", str(team / "origin.git"), clone.name)
        run(clone, "dvc", "remote", "add", "-q", "--local", "-d", "s3", "s3://bucket/dacr")
        run(clone, "dvc", "remote", "modify", "-q", "--local", "s3", "endpointurl", s3)
    run(mine, "dvc", "pull", "-q", "-r", "team")
    run(mine, "dvc", "push", "-q", env=CREDENTIALS)
    run(theirs, "dvc", "pull", "-q", env=CREDENTIALS)
    assert "Running stage" not in run(theirs, "dvc", "repro")
    assert run(theirs, "python", "-m", "dacr", "verify").splitlines()[-1] == "verified"

    predictions = the_object(Path(), theirs, "runs/02/results/predictions.parquet")
    content = client.get_object(Bucket="bucket", Key=f"dacr/{predictions}")["Body"].read()
    flipped = bytes([content[0] ^ 1]) + content[1:]
    assert remote_faults(theirs, env=CREDENTIALS) == []
    client.put_object(Bucket="bucket", Key=f"dacr/{predictions}", Body=flipped)
    (fault,) = remote_faults(theirs, env=CREDENTIALS)
    assert f"is damaged in s3; remove s3://bucket/dacr/{predictions}, remove s3://" in fault
    forget(theirs)
    # DVC believes a bucket unless told otherwise: it pulls the damage and sees nothing …
    run(theirs, "dvc", "pull", "-q", env=CREDENTIALS)
    assert "up to date" in run(theirs, "dvc", "status")
    # … but we look at the bytes.
    verified = run(theirs, "python", "-m", "dacr", "verify", ok=False)
    assert (
        "runs/02/results/predictions.parquet of consolidate@02 is not what the run made" in verified
    )
    assert (
        "runs/02/results/predictions.parquet of consolidate@02 is damaged in the cache" in verified
    )
    # With `verify`, as docs/sharing.md advises, DVC itself refuses the object.
    forget(theirs)
    run(theirs, "dvc", "remote", "modify", "-q", "--local", "s3", "verify", "true")
    output = run(theirs, "dvc", "pull", ok=False, env=CREDENTIALS)
    assert "runs/02/results" in output
    assert not (theirs / "runs/02/results/predictions.parquet").exists()


def forget(clone: Path) -> None:
    """A clone that never pulled."""
    for folder in (".dvc/cache", ".dvc/tmp", "runs"):
        shutil.rmtree(clone / folder)


def test_no_secret_is_in_what_a_failing_remote_says(colleague, s3):
    secret = CREDENTIALS | {"AWS_SECRET_ACCESS_KEY": "very-secret-key"}
    run(colleague, "dvc", "remote", "add", "-q", "--local", "-d", "s3", "s3://nowhere/dacr")
    run(colleague, "dvc", "remote", "modify", "-q", "--local", "s3", "endpointurl", s3)
    output = run(colleague, "dvc", "pull", "-v", "build", ok=False, env=secret)
    assert "nowhere" in output
    assert "very-secret-key" not in output


def bucket_client(endpoint: str) -> Any:
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
