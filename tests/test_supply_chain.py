"""Releases, workflows and installations by checksum agree with the project."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
RELEASE, PLATFORMS = ROOT / ".ci/release", ROOT / ".ci/platforms"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
HEX = "[0-9a-f]"


def requirements(file: str) -> list[Requirement]:
    """The lines of a requirements file, without checksums."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.split("#")[0].split("--hash")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def pins(file: str) -> dict[str, str]:
    return {canonicalize_name(own.name): str(own.specifier) for own in requirements(file)}


# -- pins -------------------------------------------------------------------------------------


def test_what_builds_the_project_is_pinned_as_constraints_pin_it() -> None:
    known = pins("constraints.txt")
    for text in PROJECT["build-system"]["requires"]:
        own = Requirement(text)
        assert str(own.specifier) == known[canonicalize_name(own.name)]


def test_checksums_are_of_the_pinned_versions() -> None:
    known, hashed = pins("constraints.txt"), pins("constraints-hashed.txt")
    different = {name for name in hashed.keys() & known.keys() if hashed[name] != known[name]}
    assert not different, "run .ci/hashes"


def asked(extra: str) -> set[str]:
    """The names that an extra asks for, those of its extras too."""
    own = [Requirement(text) for text in PROJECT["project"]["optional-dependencies"][extra]]
    inner = {name for own in own if own.name == "dacr" for name in own.extras}
    names = {canonicalize_name(own.name) for own in own if own.name != "dacr"}
    return names.union(*map(asked, inner))


def test_every_dependency_has_a_checksum() -> None:
    core = {
        canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]
    }
    missing = (core | asked("dev")) - pins("constraints-hashed.txt").keys()
    assert not missing, "run .ci/hashes"
    text = (ROOT / "constraints-hashed.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if not line.startswith("#"):
            assert re.search(rf"--hash=sha256:{HEX}{{64}}( |$)", line), line


def test_no_file_names_an_index() -> None:
    """pip takes packages from the index that the user's own configuration names."""
    for name in ("constraints.txt", "constraints-hashed.txt", ".ci/tools.txt"):
        assert "://" not in (ROOT / name).read_text(encoding="utf-8")


# -- workflows --------------------------------------------------------------------------------


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_rights_are_few(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert all(re.fullmatch(rf"[\w-]+/[\w-]+@{HEX}{{40}}", own) for own in used)
    text = workflow.read_text(encoding="utf-8")
    told = re.findall(r"uses: \S+ # v\d+\.\d+\.\d+$", text, re.MULTILINE)
    assert len(told) == len(used)  # what Dependabot and people read
    content = yaml.safe_load(text)
    assert content["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in content["jobs"].values())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_is_there(workflow: Path) -> None:
    """Scripts, make targets, and files of tests; .ci/nightly is asked for first."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for command in (step["run"] for step in steps(workflow) if "run" in step):
        named = re.findall(r"(?:\.ci|tests)/[\w.]+", command)
        assert all((ROOT / own).exists() for own in named if own != ".ci/nightly"), command
        assert set(re.findall(r"^make ([a-z]+)", command, re.M)) <= targets, command


def test_one_action_has_one_version() -> None:
    used = {step["uses"] for file in WORKFLOWS for step in steps(file) if "uses" in step}
    assert len(used) == len({own.split("@")[0] for own in used})


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_forms_of_faults_ask_for_the_doctor(form: Path) -> None:
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    if form.stem == "config":
        assert content == {"blank_issues_enabled": False}
        return
    assert {"name", "description", "labels", "body"} == content.keys()
    fields = {own["id"]: own for own in content["body"]}
    if form.stem != "idea":
        assert "dacr doctor" in fields["doctor"]["attributes"]["label"]
        assert fields["doctor"]["validations"]["required"]


def test_the_container_is_set_up_by_the_makefile() -> None:
    content = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert content["postCreateCommand"] == "make setup"


# -- releases ---------------------------------------------------------------------------------


def release(*words: str, script: Path = RELEASE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that say the version, and the script beside them."""
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", ".ci/release"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_all_files_have_one_version() -> None:
    told = runpy.run_path(str(RELEASE))["versions"]()
    assert set(told.values()) == {PROJECT["project"]["version"]}, told


def test_the_notes_of_a_release_are_its_section(copy: Path) -> None:
    version = PROJECT["project"]["version"]
    text = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    section = "- one\n\n### Two\n\n- two\n"
    ours = f"# Changelog\n\n## {version} (2026-01-01)\n\n{section}\n## 0.0.1\n\n- old\n"
    (copy / "CHANGELOG.md").write_text(ours, encoding="utf-8")
    done = release(f"v{version}", "--notes", script=copy / ".ci/release")
    assert done.stdout == section
    (copy / "CHANGELOG.md").write_text(text, encoding="utf-8")
    real = release(f"v{version}", "--notes", script=copy / ".ci/release").stdout
    assert "## Unreleased" not in real
    assert real.strip() in text


@pytest.mark.parametrize(
    ("tag", "file", "old", "new", "words"),
    [
        ("{}", "", "", "", "a release is tagged v"),
        ("v9.9.9", "", "", "", "pyproject.toml says"),
        ("v{}", "CITATION.cff", "version: {}", "version: 0.0.7", "CITATION.cff says 0.0.7"),
        ("v{}", "CHANGELOG.md", "## {} (", "## 0.0.7 (", "CHANGELOG.md says 0.0.7"),
        ("v{}", "CHANGELOG.md", "## {} (2026-11-18)", "## {} (unreleased)", "rename 'Unreleased'"),
    ],
)
def test_a_tag_that_no_file_agrees_with_is_refused(
    copy: Path, tag: str, file: str, old: str, new: str, words: str
) -> None:
    version = PROJECT["project"]["version"]
    if file:
        text = (copy / file).read_text(encoding="utf-8")
        if "unreleased" in new:
            changed = re.sub(rf"(## {re.escape(version)}) \(\S+\)", r"\1 (unreleased)", text)
        else:
            changed = text.replace(old.format(version), new.format(version))
        assert changed != text
        (copy / file).write_text(changed, encoding="utf-8")
    done = release(tag.format(version), "--notes", script=copy / ".ci/release")
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


# -- other machines ---------------------------------------------------------------------------

RESOLVER = """\
#!/bin/sh
case "$*" in
  *"--extra $BROKEN"*darwin*)
    echo "error: No solution found" >&2
    echo "  cause: Because torch==2.13.0 has no wheels with a matching platform tag" >&2
    exit 1;;
esac
printf 'a==1\\nb==2\\n'
"""


@pytest.mark.parametrize(("broken", "code"), [("none", 0), ("peers", 0), ("dev", 1)])
def test_the_table_of_machines_tells_what_does_not_resolve(
    tmp_path: Path, broken: str, code: int
) -> None:
    """With a resolver that refuses one extra on macOS."""
    tool = tmp_path / "uv"
    tool.write_text(RESOLVER, encoding="utf-8")
    tool.chmod(0o755)
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- platforms -->\nold\n<!-- /platforms -->\nafter\n", encoding="utf-8"
    )
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BROKEN": broken}
    command = [sys.executable, str(PLATFORMS), "--write", str(page)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- platforms -->\n\n| extra | Python | Linux x86-64 |")
    assert text.endswith("|\n\n<!-- /platforms -->\nafter\n")
    assert "old" not in text
    assert text.count("2 packages") == 60 - 4 * (broken != "none")
    assert text.count("no: `torch`") == 4 * (broken != "none")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cause: Because ecos>=2.0.8 has no usable wheels and …", "ecos"),
        ("cause: Because all versions of jsonpath-rw have no usable wheels", "jsonpath-rw"),
        ("cause: Because all of:\n     cvxopt>=1.2.6,<=1.3.0\n  have no usable wheels", "cvxopt"),
        (
            "cause: Because the requested Python version (>=3.11) does not satisfy Python>=3.11.5 "
            "and soupsieve==4.1 depends on Python>=3.11.5, we …",
            "soupsieve",
        ),
    ],
)
def test_the_package_that_does_not_resolve_is_named(text: str, name: str) -> None:
    assert runpy.run_path(str(PLATFORMS))["reason"](text) == name


def test_the_docs_show_the_table_of_the_machines_that_are_promised() -> None:
    promised = runpy.run_path(str(PLATFORMS))["PROMISED"]
    text = (ROOT / "docs/machines.md").read_text(encoding="utf-8")
    table = text.split("<!-- platforms -->")[1].split("<!-- /platforms -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == 20
    for row in rows:
        assert "no: " not in row or row.split("`")[1] not in promised
