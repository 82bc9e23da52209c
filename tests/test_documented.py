"""Every command of README.md, CONTRIBUTING.md and docs/ is run as printed, or says why not."""

from __future__ import annotations

import re
import runpy
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from tests.documented import (
    EXPERIMENTS,
    LANGUAGES,
    OTHER,
    REASON,
    Block,
    Reader,
    blocks,
    blocks_in,
    check_shape,
    make_documented_project,
    make_home,
    pages,
)
from tests.tiny_project import ROOT, run

ALL = [block for page in pages() for block in blocks(page)]
QUICK = sorted({block.page for block in ALL if block.runs and not block.word})
NIGHTLY = sorted({block.page for block in ALL if block.word == "nightly"})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documented")
    make_documented_project(folder / "project")
    make_home(folder / "home")
    return folder


@pytest.mark.parametrize("page", QUICK)
def test_the_quick_commands_of_a_page(page: str, project: Path) -> None:
    reader = Reader(project / "project", project / "home", in_process=True)
    for block in blocks(page):
        if block.runs and not block.word:
            reader.follow(block)


@pytest.mark.nightly
@pytest.mark.parametrize("page", NIGHTLY)
def test_all_commands_of_a_page(page: str, project: Path, tmp_path: Path) -> None:
    shutil.copytree(project / "project", tmp_path / "project", symlinks=True)
    shutil.copytree(project / "home", tmp_path / "home")
    reader = Reader(tmp_path / "project", tmp_path / "home", in_process=False)
    run(reader.folder, "git", "rm", "-qr", "reports/paper")  # so that a sweep has something to run
    run(reader.folder, "git", "commit", "-qm", "No record")
    run(tmp_path, "git", "clone", "-q", "--bare", "project", "origin.git")
    run(reader.folder, "git", "remote", "add", "origin", str(tmp_path / "origin.git"))
    run(reader.folder, "git", "push", "-qu", "origin", "main")
    text = (ROOT / page).read_text(encoding="utf-8")
    reader.forget(*(name for name in EXPERIMENTS if f"-n {name} " in text))
    for block in blocks(page):
        if block.runs or block.word == "file":
            reader.follow(block)


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.name)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    assert block.language in LANGUAGES | OTHER, "name the language of the block"
    match block.word:
        case "not run":
            assert REASON.search(block.what), "the reasons are a GPU, a network, hours"
        case "run by":
            check_runs(ROOT / block.what, block)
        case "nightly":
            assert block.language in LANGUAGES
        case "file":
            assert not Path(block.what).is_absolute()
            assert block.what in (ROOT / block.page).read_text().replace(f"file: {block.what}", "")


def check_runs(file: Path, block: Block) -> None:
    """A test takes blocks from the page, a script has the same lines."""
    content = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        assert "documented" in content or block.page in content
        assert block.page in content, f"{file.name} does not take blocks from {block.page}"
    else:
        wanted = {command.split("#")[0].strip() for command in block.commands}
        assert wanted <= set(content.splitlines())


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    """Also without a built site, as on a forge; MkDocs checks the pages that it makes itself."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        place = (ROOT / page).parent.joinpath(path) if path else ROOT / page
        assert place.exists(), target
        if anchor:
            assert anchor in anchors(place.read_text(encoding="utf-8")), target


def anchors(text: str) -> set[str]:
    """Of the headings of a page, as forges and the site make them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", ["ncd.svg", "features.svg"])
def test_pictures_are_those_of_the_committed_files(name: str) -> None:
    """tests/test_report.py has those of the splits."""
    names = runpy.run_path(str(ROOT / "docs/pictures.py"))
    with chdir(ROOT):
        drawn = names["PICTURES"][name]()
    now = (ROOT / "docs/images" / name).read_text(encoding="utf-8")
    assert drawn == now, "run `python docs/pictures.py`"


# -- the tests of the tests -------------------------------------------------------------------

PAGE = """\
# A page

<!-- not run: needs a GPU -->
```bash
one   # comment
```

- in a list

  ```console
  $ two
  3 of 4
  ```

```python
five
```
"""


def test_blocks_are_taken_with_their_marks() -> None:
    one, two, five = blocks_in(PAGE, "page.md")
    assert (one.word, one.what, one.runs, one.line) == ("not run", "needs a GPU", False, 4)
    assert (two.text, two.commands, two.runs) == ("$ two\n3 of 4\n", ["two"], True)
    assert (five.language, five.word, five.runs) == ("python", "", True)


def test_an_unknown_mark_is_told() -> None:
    with pytest.raises(ValueError, match=r"page.md:3: <!-- not tested --> is no mark"):
        list(blocks_in(PAGE.replace("not run: needs a GPU", "not tested"), "page.md"))


def test_a_block_that_fails_is_told(tmp_path: Path) -> None:
    reader = Reader(tmp_path, tmp_path, in_process=True)
    for text in ("false", "dacr no-such-verb", "dacr scenario show no_such_benchmark ncd"):
        with pytest.raises(AssertionError):
            reader.follow(Block("page.md", 1, "bash", text + "\n", "", ""))
    with pytest.raises(AssertionError, match="the page prints"):
        reader.follow(Block("page.md", 1, "console", "$ echo 3 of 4\n3 of five\n", "", ""))


def test_the_shape_of_what_is_printed() -> None:
    check_shape(["ok   12 files", "…", "done"], "ok 7    files\nmore\nand more\n\ndone\n")
    for other in ("ok 7 file\ndone", "ok 7 files", "ok 7 files\nmore\n"):
        with pytest.raises(AssertionError):
            check_shape(["ok 12 files", "…", "done"], other)
