"""``dacr verify`` on a real run, broken and forged in every way that a run can be."""

import io
import json
import os
import re
import shutil
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import yaml

from dacr.__main__ import parse
from dacr.config import load_params
from dacr.data.sources import embedded, get_source
from dacr.errors import UserError
from dacr.experiments.reading import Stage
from dacr.experiments.verification import Report, data, replay, results
from dacr.experiments.verification.reference import first_difference
from dacr.report.verified import verify_run
from dacr.runtime.compose import compose
from dacr.sessions.consolidate import consolidate
from dacr.sessions.learn import learn
from stages import start
from tests.attacks import ATTACKS, FILES, RELABELLED, Forger
from tests.tiny_project import call, commit, make_project, make_repository, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "project"
    make_project(folder)
    return folder


@pytest.fixture
def project(finished, tmp_path):
    """A copy that a test may break; times stay, so that DVC's own records still hold."""
    shutil.copytree(finished, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def verify(folder, ok):
    """What is wrong and what is right, line by line; in this process, which has torch loaded."""
    with chdir(folder):
        report = verify_run()
    assert report.ok == ok, report.lines
    faults = [f"{subject} {text}" for subject, text, fault in report.lines if fault]
    good = [f"{subject} {text}" for subject, text, fault in report.lines if not fault]
    return faults, good


@pytest.mark.parametrize("after", ["md5", "cmd", "path: runs/02", "stages"])
def test_half_a_lock_is_restored_as_the_line_says(project, after):
    """DVC writes ``dvc.lock`` in place: ^C at the wrong moment leaves the beginning of it."""
    lock = project / "dvc.lock"
    content = lock.read_text()
    lock.write_text(content[: content.rindex(after) + len(after)])
    told = run(project, "python", "-m", "dacr", "verify", ok=False)
    assert "Traceback" not in told
    advice = next(line for line in told.splitlines() if line.startswith(("dacr: ", "FAULT ")))
    assert "`git checkout dvc.lock`" in advice
    run(project, "git", "checkout", "-q", "dvc.lock")
    assert lock.read_text() == content


def test_the_command_says_it_and_its_exit_code_too(project):
    output = run(project, "python", "-m", "dacr", "verify", "--replay", "1", "--seed", "3")
    assert "verified" in output.splitlines()
    said = re.search(r"replay of session (\d), chosen at random with --seed 3: about ", output)
    assert said, output
    assert re.search(rf"session {said[1]}: \d+ files made again, the same bytes", output), output
    assert run(project, "git", "status", "--short") == ""
    (project / "runs/01/state/memory.csv").unlink()
    output = run(project, "python", "-m", "dacr", "verify", ok=False)
    assert output.splitlines()[-1] == "NOT verified: 1 fault"
    (line,) = (line for line in output.splitlines() if line.startswith("FAULT"))
    assert "runs/01/state/memory.csv of consolidate@01 is missing" in line


def test_a_whole_run_is_the_committed_one(project):
    faults, good = verify(project, ok=True)
    assert faults == []
    subjects = [line.split()[0] for line in good]
    assert subjects == [
        "run", "code", "workspace", "cache", "chain", "made", "data", "results", "metrics",
        "reference",
    ]  # fmt: skip
    assert "16 of 16 stages" in good[0]
    assert "equal to the committed run" in good[-1]


def test_a_run_that_was_never_made(tmp_path):
    make_repository(tmp_path / "new")
    (tmp_path / "new/params.yaml").write_bytes(Path("params.yaml").read_bytes())
    commit(tmp_path / "new", "start")
    faults, _ = verify(tmp_path / "new", ok=False)
    assert len(faults) == 1
    assert "never made" in faults[0]


def test_half_a_run_names_the_first_stage_that_is_missing(project):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for name in ("consolidate@02", "evaluate", "measure", "budget", "report"):
        del lock["stages"][name]
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    faults, good = verify(project, ok=False)
    assert "11 of 16 stages are recorded, consolidate@02 is not" in faults[0]
    assert not any(line.startswith("metrics") for line in good), "nothing to derive them from"


def test_a_comment_makes_no_other_run(project):
    code = project / "dacr/evaluation/metrics.py"
    code.write_text(code.read_text() + "\n# another line\n")
    faults, _ = verify(project, ok=True)
    assert faults == []
    code.unlink()
    faults, _ = verify(project, ok=False)
    assert any("dacr/evaluation/metrics.py is missing" in line for line in faults)


def rewrite_lock(project, change):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    change(lock["stages"])
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


def test_other_code_is_not_taken_for_another_processor():
    code = Stage(cmd="c", deps={"dacr": "1", "stages": "2"}, outs={"runs/code/learn.json": "3"})
    newer = replace(code, deps={"dacr": "4", "stages": "2"}, outs={"runs/code/learn.json": "5"})
    told = first_difference({"code": code}, {"code": newer}, comparable=True)
    assert told == "first differs in code: other code (runs/code/learn.json)"
    told = first_difference({"code": code}, {"code": replace(newer, deps=code.deps)}, True)
    assert told is not None
    assert "another kind of processor" in told


def test_the_first_difference_to_the_committed_run_is_named(project):
    """The committed run is made another one, as if it came from another machine."""

    def elsewhere(stages):
        for name in ("consolidate@01", "learn@02", "consolidate@02"):
            for out in stages[name]["outs"]:
                out["md5"] = "0" * 32 + (".dir" if out["md5"].endswith(".dir") else "")

    ours = (project / "dvc.lock").read_text()
    metrics = (project / "reports/metrics.json").read_text()
    rewrite_lock(project, elsewhere)
    theirs = json.loads(metrics)
    theirs["accuracy_by_session"][1] = 12.5
    (project / "reports/metrics.json").write_text(json.dumps(theirs))
    commit(project, "from elsewhere")
    (project / "dvc.lock").write_text(ours)
    (project / "reports/metrics.json").write_text(metrics)
    faults, _ = verify(project, ok=False)
    assert len(faults) == 1
    assert "first differs in consolidate@01 (session 1): the same inputs gave another" in faults[0]
    assert "accuracy from session 2 on" in faults[0]
    assert "instead of 12.5" in faults[0]


def test_a_damaged_lock_is_one_line(project):
    (project / "dvc.lock").write_text("schema: '2.0'\nstages: [")
    with chdir(project), pytest.raises(UserError, match=r"dvc\.lock|dvc\.yaml"):
        verify_run()


# -- attacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_one_bit_that_dvc_does_not_see_is_named(project, name):
    Forger(project).flip(name)
    faults, _ = verify(project, ok=False)
    said = f" of {FILES[name]} is not what the run made"
    assert any(name in line and said in line for line in faults), faults


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_passes(project, name):
    attack, said = ATTACKS[name]
    attack(Forger(project))
    faults, _ = verify(project, ok=False)
    assert any(re.search(said, line) for line in faults), faults


@pytest.mark.parametrize("name", RELABELLED)
def test_no_run_is_relabelled(project, name):
    """As a user does by mistake: an edit of params.yaml, `dvc commit -f`, `git commit`."""
    value, said = RELABELLED[name]
    Forger(project).relabel(name, value)
    faults, _ = verify(project, ok=False)
    assert any(re.search(said, line) for line in faults), faults


def test_there_are_many_attacks():
    assert len(ATTACKS) + len(RELABELLED) + len(FILES) > 80


def test_a_forger_who_changes_nothing_is_none(project):
    """Recording and committing alone is no fault: what is found above is found for a reason."""
    forger = Forger(project)
    forger.score()
    forger.recode()
    forger.resplit()
    forger.options()
    forger.record()
    assert run(project, "git", "status", "--short", "--", "reports") == ""
    _, good = verify(project, ok=True)
    assert "equal to the committed run, stage by stage" in good[-1]


# -- what is made again ------------------------------------------------------------------------


def test_images_that_are_many_are_not_packed_again_and_it_says_so(project, monkeypatch):
    monkeypatch.setattr(data, "FEW", 0)
    _, good = verify(project, ok=True)
    (line,) = (line for line in good if line.startswith("data "))
    assert "images were not packed again (data/raw/tiny has 0.0 GB; `--replay all`" in line
    Forger(project).relabel("data.per_pair", 3)
    faults, _ = verify(project, ok=False)
    assert any("other per_pair than the parameters" in line for line in faults), faults


def test_sources_that_are_drawn_here_are_drawn_again(tmp_path, monkeypatch):
    for part in ("train", "test"):
        monkeypatch.setitem(embedded.PER_PAIR, part, 1)
    compose(["benchmark=idigits_mini", "data.sources=[handwritten]"], tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    params = load_params()
    raw = data.raw_folder(params) / "handwritten"
    raw.mkdir(parents=True)
    get_source("handwritten").fetch(raw)
    assert data.other_sources(params) == []
    Forger(raw).flip("images.npy")
    (fault,) = data.other_sources(params)
    assert f"{raw} is not what its code draws" in fault


@pytest.mark.parametrize(
    ("changed", "confidence", "exact", "faults"),
    [
        (0, 0.0, True, 0),
        (1, 0.0, True, 1),
        (0, 1e-6, True, 1),
        (2, 1e-6, False, 0),  # another processor sees one image in a hundred in another way
        (3, 0.0, False, 1),
        (0, 0.05, False, 1),
        (0, np.nan, False, 1),
        (0, np.nan, True, 1),
    ],
)
def test_predictions_are_exact_where_bits_are_promised(changed, confidence, exact, faults):
    ids = np.arange(200)
    again = pd.DataFrame({"id": ids, "predicted": ids % 4, "component": 0, "confidence": 0.5})
    again = again.assign(session=2)
    said = np.where(ids < changed, 9, ids % 4)
    recorded = again.assign(predicted=said, confidence=0.5 + confidence).iloc[::-1]
    assert len(results.unlike(recorded, again, exact)) == faults


# -- replay ------------------------------------------------------------------------------------

KEYS = ["01", "02", "03", "04"]


def in_this_process(folder, stage, arguments):
    """A stage without starting Python and torch again."""
    with chdir(folder), patch.dict(os.environ, {"DVC_ROOT": str(folder)}):
        if stage == "start":
            call(start.main)
        else:
            {"learn": learn, "consolidate": consolidate}[stage](load_params(), *arguments)


def replayed(project, wanted):
    report = Report()
    with chdir(project):
        params = load_params()
        choice = replay.choose(wanted, list(params.schedule.sessions), seed=0)
        for _ in replay.replay(report, params, choice, in_this_process):
            pass
    return [text for _, text, _ in report.lines], report.ok


def content(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_replay_of_all_makes_the_same_bytes_and_touches_nothing(project):
    before = content(project)
    lines, ok = replayed(project, "all")
    assert ok, lines
    assert [line.partition(":")[0] for line in lines] == ["the start", "session 1", "session 2"]
    assert content(project) == before


def test_a_forgery_without_a_wrong_digest_is_found_by_a_replay(project):
    """Other weights, and all that follows from them made by the stages themselves."""
    forger = Forger(project)
    forger.flip("runs/02/learned/extractors/02.safetensors")
    for name in ("state", "results"):
        shutil.rmtree(project / "runs/02" / name)
    in_this_process(project, "consolidate", ["02"])
    forger.score()
    forger.record()
    forger.commit()
    verify(project, ok=True)
    lines, ok = replayed(project, "session=2")
    assert not ok
    said = "session 2: learn made another runs/02/learned/extractors/02.safetensors"
    assert [line.partition(";")[0] for line in lines] == [said]
    assert replayed(project, "session=1")[1]


def test_an_edited_picture_is_found_by_a_replay(project):
    forger = Forger(project)
    forger.flip("runs/02/results/embedding.parquet")
    (project / "runs/02/results/more.txt").write_text("more")
    lines, ok = replayed(project, "session=2")
    assert not ok
    assert "consolidate made another runs/02/results/embedding.parquet" in lines[0]
    assert "consolidate made no runs/02/results/more.txt, which is recorded" in lines[1]


def test_a_stage_that_fails_in_a_replay_is_a_fault(project):
    def fails(folder, stage, arguments):
        raise UserError("no memory left")

    report = Report()
    with chdir(project):
        params, choice = load_params(), replay.choose("session=2", ["01", "02"], 0)
        list(replay.replay(report, params, choice, fails))
    assert report.lines == [("replay", "cannot be checked: no memory left", True)]


def test_a_stage_is_replayed_without_the_checkpoints_of_the_project(tmp_path):
    with patch("subprocess.run") as started, patch.dict(os.environ, {"DVC_STAGE": "learn@01"}):
        started.return_value.returncode = 0
        replay.in_own_process(tmp_path, "learn", ["01"])
    command, environment = started.call_args.args[0], started.call_args.kwargs["env"]
    assert command[1:] == ["-m", "stages.learn", "01"]
    assert environment["DVC_ROOT"] == str(tmp_path)
    assert "DVC_STAGE" not in environment


def test_sessions_are_chosen_by_a_seed():
    choices = [replay.choose("2", KEYS, seed).sessions for seed in range(50)]
    assert choices == [replay.choose("2", KEYS, seed).sessions for seed in range(50)]
    assert {tuple(own) for own in choices} == {(a, b) for a in KEYS for b in KEYS if a < b}
    assert replay.choose("session=3", KEYS, 0).sessions == ["03"]
    assert replay.choose("session=03", KEYS, 0).tell() == "session 3"
    assert replay.choose("all", KEYS, 0).sessions == KEYS


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("0", "give a number of sessions, session=<number of one>, or all"),
        ("-1", "give a number of sessions"),
        ("some", "give a number of sessions"),
        ("session=", "give a number of sessions"),
        ("", "give a number of sessions"),
        ("²", "give a number of sessions"),
        pytest.param("9" * 5000, "give a number of sessions", id="many digits"),
        ("5", "the run has 4 sessions"),
        ("session=5", "the run has 4 sessions"),
        ("03", "session=3 is that session, 3 so many sessions"),
    ],
)
def test_a_wrong_choice_is_one_line(wanted, said):
    with pytest.raises(UserError, match=re.escape(said)):
        replay.choose(wanted, KEYS, 0)


def test_the_estimate_is_what_the_sessions_took():
    choice = replay.choose("session=2", KEYS, 0)
    notes = [
        {"stage": stage, "session": session, "seconds": seconds}
        for session in (1, 2)
        for stage, seconds in (("learn", 3600.0 * session), ("consolidate", 125.5))
    ]
    assert "about 2 h 2 min, " in replay.estimate(choice, notes)
    assert "unknown" in replay.estimate(choice, notes[:3])


def test_a_run_with_faults_is_not_replayed(project):
    (project / "runs/01/state/memory.csv").unlink()
    said = io.StringIO()
    arguments = parse(["verify", "--replay", "all"])
    with chdir(project), redirect_stdout(said), pytest.raises(SystemExit) as ended:
        arguments.run(arguments)
    assert ended.value.code == 1
    assert "nothing was replayed" in said.getvalue()


# -- where it is called ------------------------------------------------------------------------


def test_outside_of_a_project_it_says_so(tmp_path):
    arguments = parse(["verify"])
    with chdir(tmp_path), pytest.raises(UserError, match="is not inside a dacr project"):
        arguments.run(arguments)


def test_inside_a_folder_of_the_project_it_checks_the_project(project):
    verify(project / "reports/plots", ok=True)
