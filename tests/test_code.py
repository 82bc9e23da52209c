"""Which code a stage runs: what counts as an edit, and which stages an edit reaches."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from modulefinder import ModuleFinder
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dacr.errors import UserError
from dacr.runtime import code
from dacr.runtime.code import essence, essence_hash, experiment_identity, identity, modules_of
from tests.tiny_project import make_project, run

ROOT = Path(__file__).parents[1]
PROJECT = sorted(path for name in code.PACKAGES for path in (ROOT / name).rglob("*.py"))
METHODS = sorted(path.stem for path in (ROOT / "dacr/methods").glob("[a-z]*.py"))
SOURCES = ("handwritten", "street", "blended", "rendered")

NASTY = [
    "x = '#'  # a comment\n",
    'x = "\\"#"  # a comment\n',
    "x = r'\\\\'  # a comment\ny = '#'\n",
    "x = '''#\n  # no comment  \n\n#'''  # a comment\n",
    'x = f"#{1:#x}#"  # a comment\n',
    "x = f'''{\n1 + 1  \n:#x}  \n\n# no comment\n'''  # a comment\n",
    "x = f'{{#}}' '#' \"#\"  # a comment\n",
    "x = (\n    'a'  # a comment\n\n    # a comment\n    '#b'\n)\n",
    "x = (f'a'  # a comment\n     f'{x}#b')\n",
    "x = b'#'; y = rb'''#\n#'''  # a comment\n",
    "x = 'é#'  # ä comment with 汉字\nz = 'é' + '#'  # ü\n",
    "def f(x='#'):  # a comment\n    '''Doc # string.\n\n    More. '''  # a comment\n    return x",
    "class A:\n    a: int = 1  # a comment\n    '''What a is.'''\n\n    b = 2\n    \"b's #\"\n",
    "def f(): 'a docstring'\n",
    "def f():\n    'é'; return 1\n",
    "if x: 'é'; y = '#'  # a comment\n",
    "x = 1 \\\n    + 2  # a comment\n",
    "x = 1 \\\n\n-1\n",
    "x = 'a \\\n  # no comment'\n",
    "\ufeffx = 1  # a comment\r\ny = '''a\r\n'''\r\n",
    "x = 1\f\n\fy = 2  # a comment\n",
    "x = 1  # a comment without a newline",
    "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n",
    "",
]


# What counts as an edit --------------------------------------------------------------------------


def test_strings_keep_what_looks_like_a_comment_or_a_blank_line() -> None:
    assert essence("x = '''#\n  # no comment  \n\n#'''  # a comment\n\n") == (
        "x = '''#\n  # no comment  \n\n#'''"
    )
    assert essence("x = f'''{1:#x}  \n\n# no'''  # yes\n") == "x = f'''{1:#x}  \n\n# no'''"
    assert essence("x = (\n  'a'  # yes\n\n  # yes\n  '#b'\n)\n") == "x = (\n  'a'\n  '#b'\n)"


def test_docstrings_go_and_other_strings_stay() -> None:
    of_f = 'def f():\n    """Of f.\n\n    """\n    return "#"\n'
    text = f'"""Module."""\n\nx = "kept"\n"""Of x."""\n\n\n{of_f}'
    assert essence(text) == 'x = "kept"\ndef f():\n    return "#"'
    assert essence("def f():\n    f'no docstring'\n") == "def f():\n    f'no docstring'"
    assert essence("def f():\n    b'no docstring'\n") == "def f():\n    b'no docstring'"


def test_a_blank_line_that_ends_a_statement_counts() -> None:
    """Two programs: x is 1 in the first and 0 in the second."""
    assert essence("x = 1 \\\n\n-1\n") != essence("x = 1 \\\n-1\n")


@pytest.mark.parametrize("text", [*NASTY, *(path.read_text(encoding="utf-8") for path in PROJECT)])
def test_cutting_takes_comments_and_docstrings_and_nothing_else(text: str) -> None:
    cut = essence(text)
    words = words_of(text)
    for string in docstrings(text):
        words.remove(string)
    assert words_of(cut) == words
    assert "COMMENT" not in {tokenize.tok_name[token.type] for token in tokens(cut)}
    try:
        ast.parse(cut)
    except SyntaxError:  # a function that was nothing but its docstring
        return
    assert essence(cut) == cut


LAYOUT = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}


def tokens(text: str) -> list[tokenize.TokenInfo]:
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return list(tokenize.generate_tokens(io.StringIO(plain).readline))


def words_of(text: str) -> list[str]:
    return [own.string for own in tokens(text) if tokenize.tok_name[own.type] not in LAYOUT]


def docstrings(text: str) -> list[str]:
    """Strings that are statements, by Python's own reading of the whole text."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    values = [node.value for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.Expr)]
    strings = [
        own for own in values if isinstance(own, ast.Constant) and isinstance(own.value, str)
    ]
    lines = [line.encode() for line in re.split(r"(?<=\n)", plain)]  # columns count bytes
    return [segment(lines, own).decode() for own in strings]


def segment(lines: list[bytes], node: ast.Constant) -> bytes:
    """``ast.get_source_segment``, which cuts the whole text into lines for every segment."""
    rows = lines[node.lineno - 1 : node.end_lineno]
    rows[-1] = rows[-1][: node.end_col_offset]
    rows[0] = rows[0][node.col_offset :]
    return b"".join(rows)


comments = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20)
texts = st.sampled_from([text for text in NASTY if "\r" not in text and "\ufeff" not in text]) | (
    st.sampled_from(PROJECT).map(lambda path: path.read_text(encoding="utf-8"))
)


@settings(deadline=None, max_examples=150)
@given(texts, comments, st.data())
def test_comments_and_blank_lines_change_nothing(
    text: str, comment: str, data: st.DataObject
) -> None:
    lines = text.split("\n")
    ends = sorted(line_ends(text))
    if not ends:
        return
    row = data.draw(st.sampled_from(ends))
    blank = data.draw(st.sampled_from(["", "   ", f"# {comment}", f"    # {comment}"]))
    lines[row] += f"  # {comment}"
    lines.insert(row + 1, blank)
    assert essence_hash("\n".join(lines)) == essence_hash(text)


def line_ends(text: str) -> set[int]:
    """The lines after which a comment may stand: those that end in no string or continuation."""
    ends = [own for own in tokens(text) if own.type in (tokenize.NEWLINE, tokenize.NL)]
    return {own.start[0] - 1 for own in ends if own.string == "\n"}


@settings(deadline=None, max_examples=150)
@given(texts, st.data())
def test_every_other_edit_counts(text: str, data: st.DataObject) -> None:
    """A letter or digit more in any name, number or string that is no docstring."""
    lines = text.split("\n")
    documented = {row for node in code._docstrings(text) for row in rows_of(node)}
    places = [
        token
        for token in tokens(text)
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
        and not documented & set(range(token.start[0], token.end[0] + 1))
    ]
    if not places:
        return
    token = data.draw(st.sampled_from(places))
    row, column = token.end[0] - 1, token.end[1]
    before = column if token.type != tokenize.STRING else column - 1 - 2 * is_triple(token.string)
    lines[row] = f"{lines[row][:before]}1{lines[row][before:]}"
    edited = "\n".join(lines)
    try:
        ast.parse(edited)
    except SyntaxError:  # `if` became `if1`: no program
        return
    assert essence_hash(edited) != essence_hash(text)


def rows_of(node: ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def is_triple(string: str) -> bool:
    return string.endswith(("'''", '"""'))


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters='"\\')))
def test_the_text_of_a_docstring_changes_nothing(words: str) -> None:
    def module(docstring: str) -> str:
        inside = (
            f"class A:\n    {docstring}\n    def f(self):\n        {docstring}\n        return 1"
        )
        return f"{docstring}\nx = 1\n\n\n{inside}\n"

    assert essence_hash(module(f'"""{words}"""')) == essence_hash(module("\n"))


def other_pythons() -> list[str]:
    """Pythons on this machine that the project supports, of other versions than this one."""
    own = f"python3.{sys.version_info.minor}"
    names = [name for minor in range(11, 20) if (name := f"python3.{minor}") != own]
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {name: shutil.which(name) for name in names}
    for name in names:
        for path in sorted(installed.glob(f"*/bin/{name}")):
            found[name] = str(path)
    return [path for path in found.values() if path]


HASH_ALL = """
import json, sys
from pathlib import Path
from dacr.runtime.code import essence_hash
texts = json.loads(sys.stdin.read())
texts += [path.read_text(encoding="utf-8") for path in sorted(Path("dacr").rglob("*.py"))]
print(json.dumps([essence_hash(text) for text in texts]))
"""


def test_every_python_has_the_same_hashes() -> None:
    """Python 3.12 has another tokenizer, and f-strings are many tokens there."""
    hashes = []
    for python in [sys.executable, *other_pythons()]:
        result = subprocess.run(
            [python, "-c", HASH_ALL],
            input=json.dumps(NASTY), cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode and "No module named" in result.stderr:
            continue  # a broken installation
        assert not result.returncode, result.stderr
        hashes.append(result.stdout)
    assert len(set(hashes)) == 1


# Which stages an edit reaches --------------------------------------------------------------------


class InMemory:
    """A path of the project's sources as one dict: hundreds of edits are asked about them."""

    def __init__(self, files: dict[str, str], place: str = "") -> None:
        self.files, self.place = files, place
        self.name = place.rpartition("/")[2]

    def __truediv__(self, name: str) -> InMemory:
        return InMemory(self.files, f"{self.place}/{name}".lstrip("/"))

    def is_file(self) -> bool:
        return self.place in self.files

    def iterdir(self) -> Iterator[InMemory]:
        inside = (name.removeprefix(f"{self.place}/") for name in self.files)
        yield from (self / name for name in inside if "/" not in name)

    def read_text(self, encoding: str) -> str:
        return self.files[self.place]


@pytest.fixture
def clone() -> InMemory:
    return InMemory({str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in PROJECT})


def test_sources_in_memory_answer_as_files_do(clone: InMemory) -> None:
    assert answers(clone) == answers(ROOT)


def answers(root: InMemory | Path) -> dict[str, str]:
    """The identity of every stage, of each method and of each source."""
    with patch.object(code, "_file_of", cache(code._file_of)):  # all ask for the same files
        return _answers(root)


def _answers(root: InMemory | Path) -> dict[str, str]:
    of_stage = {
        stage: identity(stage, sources=SOURCES, root=root)
        for stage in code.STAGES
        if stage not in (*code.METHOD_STAGES, "fetch")
    }
    of_method = {
        f"{stage} {method}": identity(stage, method, root=root)
        for stage in code.METHOD_STAGES
        for method in METHODS
    }
    of_source = {f"fetch {name}": identity("fetch", sources=[name], root=root) for name in SOURCES}
    return of_stage | of_method | of_source


def edited(root: InMemory, file: str, text: str, before: dict[str, str] | None = None) -> set[str]:
    """What has another identity than ``before`` once ``text`` is appended to ``file``."""
    before = before or answers(root)
    after = answers(InMemory(root.files | {file: root.files[file] + text}))
    return {name for name in before if after[name] != before[name]}


def imported_by(name: str) -> set[str]:
    """The modules behind one of ``answers``."""
    stage, _, choice = name.partition(" ")
    roots = [f"stages.{stage}"]
    if stage in code.METHOD_STAGES:
        roots.append(f"dacr.methods.{choice}")
    if stage in code.SOURCE_STAGES:
        roots += [f"dacr.data.sources.{own}" for own in ([choice] if choice else SOURCES)]
    return set().union(*map(reachable, roots))


@cache
def reachable(module: str) -> set[str]:
    """As Python's own modulefinder follows imports."""
    finder = ModuleFinder(path=[str(ROOT)])
    finder.import_hook(module)
    files = (found.__file__ for found in finder.modules.values())
    return {str(Path(file).relative_to(ROOT)) for file in files if file}


def test_an_edit_of_any_module_reaches_exactly_the_stages_that_import_it(clone: InMemory) -> None:
    before = answers(clone)
    imported = {name: imported_by(name) for name in before}
    plumbing = {code._file_of(module, clone) for module in code.PLUMBING}
    for path in PROJECT:
        file = str(path.relative_to(ROOT))
        reached = edited(clone, file, "\n_EDITED = 1\n", before)
        expected = {name for name, files in imported.items() if file in files}
        if file in plumbing:
            assert not reached, file
            continue
        assert reached <= expected, file
        for name in expected - reached:  # imported only where the stage never comes
            stage, _, method = name.partition(" ")
            assert file not in modules_of(stage, method, SOURCES), (file, name)
            assert stage in code.HOOKS_NOT_CALLED or only_for_types(file), (file, name)


def only_for_types(file: str) -> bool:
    """Whether all modules that import ``file`` do so for type checkers alone."""
    module = file.removesuffix(".py").replace("/", ".")
    lines = [line for path in PROJECT for line in path.read_text().splitlines() if module in line]
    return all(line.startswith("    from") for line in lines if line.lstrip().startswith("from"))


@pytest.mark.parametrize("path", PROJECT, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_edit_of_a_comment_reaches_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert essence_hash(
        f'"""Another."""\n{text}\n\n# A comment.\n"""A string."""\n'
    ) == essence_hash(f"{text}")


def test_editing_geodl_reaches_geodl_alone(clone: InMemory) -> None:
    for file in ("dacr/methods/geodl.py", "dacr/learning/geodesic.py"):
        reached = edited(clone, file, "\n_EDITED = 1\n")
        assert reached == {
            f"{stage} {method}"
            for stage in code.METHOD_STAGES
            for method in ("geodl", "geodl_dacr")
        }


def test_editing_the_reduction_trains_nothing(clone: InMemory) -> None:
    reached = edited(clone, "dacr/learning/reduction.py", "\n_EDITED = 1\n")
    assert {name.split()[0] for name in reached} == {"consolidate", "budget"}
    assert {"consolidate der_dacr", "consolidate ucir_dacr", "consolidate geodl_dacr"} <= reached


def test_editing_a_source_reaches_those_that_are_made_of_it(clone: InMemory) -> None:
    """blended draws over handwritten digits, street with rendered ones."""
    assert edited(clone, "dacr/data/sources/handwritten.py", "\n_EDITED = 1\n") == {
        "fetch handwritten", "fetch blended", "build",
    }  # fmt: skip
    assert edited(clone, "dacr/data/sources/rendered.py", "\n_EDITED = 1\n") == {
        "fetch rendered", "fetch street", "build",
    }  # fmt: skip


def test_editing_the_random_draws_reaches_all_that_draw(clone: InMemory) -> None:
    reached = {name.split()[0] for name in edited(clone, "dacr/rng.py", "\n_EDITED = 1\n")}
    assert {"fetch", "build", "schedule", "start", "learn", "consolidate"} <= reached


@pytest.mark.parametrize(
    "file", ["dacr/report/charts.py", "dacr/report/page.py", "dacr/report/run.py"]
)
def test_editing_a_chart_reaches_the_report_alone(clone: InMemory, file: str) -> None:
    assert edited(clone, file, "\n_EDITED = 1\n") == {"report"}


def test_editing_a_split_rule_or_the_build_trains_nothing(clone: InMemory) -> None:
    for file in ("dacr/data/splits.py", "dacr/data/building.py", "dacr/data/sources/base.py"):
        reached = {name.split()[0] for name in edited(clone, file, "\n_EDITED = 1\n")}
        assert not reached & {"start", "learn", "consolidate", "evaluate"}, file


def test_the_identity_of_an_experiment_is_that_of_its_stages(clone: InMemory) -> None:
    def of(method: str, root: InMemory = clone) -> str:
        return experiment_identity(method, SOURCES, root)

    before = {method: of(method) for method in METHODS}
    assert len(set(before.values())) == len(METHODS)
    for file, text, changed in (
        ("dacr/learning/geodesic.py", "\n# A comment.\n", set()),
        ("dacr/learning/geodesic.py", "\n_EDITED = 1\n", {"geodl", "geodl_dacr"}),
        ("dacr/report/page.py", "\n_EDITED = 1\n", set()),
    ):
        other = InMemory(clone.files | {file: clone.files[file] + text})
        assert {method for method in METHODS if of(method, other) != before[method]} == changed


def test_imports_are_found_wherever_they_are_written(tmp_path: Path) -> None:
    files = {
        "stages/__init__.py": "",
        "stages/evaluate.py": (
            "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import dacr.types_only\nelse:\n    import dacr.otherwise\n"
            "import dacr.deep.plain, json\nfrom dacr import beside as other\n"
            "def main():\n    from dacr.deep import inner, value\n    import numpy\n"
            "    class A:\n        async def f(self):\n            from dacr.lazy import x\n"
        ),
        "dacr/__init__.py": "",
        "dacr/types_only.py": "",
        "dacr/otherwise.py": "",
        "dacr/beside.py": "from . import relative\nfrom .deep.up import y\n",
        "dacr/relative.py": "",
        "dacr/lazy.py": "",
        "dacr/never.py": "",
        "dacr/deep/__init__.py": "from . import of_the_package\n",
        "dacr/deep/plain.py": "try:\n    from ..tried import x\nexcept ImportError:\n    pass\n",
        "dacr/tried.py": "",
        "dacr/deep/inner.py": "",
        "dacr/deep/value.json": "",
        "dacr/deep/of_the_package.py": "",
        "dacr/deep/up.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    left_out = {"dacr/types_only.py", "dacr/never.py", "dacr/deep/value.json"}
    left_out.add("dacr/__init__.py")  # what it offers is for users of the library
    assert modules_of("evaluate", root=tmp_path) == sorted(files.keys() - left_out)


def test_an_unknown_name_is_one_line() -> None:
    with pytest.raises(UserError, match=r"unknown method 'nothing'; .*dacr/methods/nothing\.py"):
        modules_of("learn", "nothing")
    with pytest.raises(UserError, match="no source called 'nothing'"):
        modules_of("fetch", sources=["nothing"])


# The stages themselves ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished, recorded and committed run of a tiny benchmark."""
    folder = tmp_path_factory.mktemp("project") / "tiny"
    make_project(folder)
    return folder


def would_run(project: Path) -> set[str]:
    """The stages that DVC would run, once it knows the code."""
    run(project, "dvc", "repro", "-q", "code", "fetch_code")
    changed = json.loads(run(project, "dvc", "status", "--json"))
    return {name.partition("@")[0] for name in changed}


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("dacr/learning/training.py", "\n# A comment.\n", set()),
        ("dacr/rng.py", "\n# A comment.\n", set()),
        ("dacr/runtime/progress.py", "\n_EDITED = 1\n", set()),
        ("dacr/methods/geodl.py", "\n_EDITED = 1\n", set()),
        ("dacr/report/charts.py", "\n_EDITED = 1\n", {"report"}),
        ("dacr/evaluation/metrics.py", "\n_EDITED = 1\n", {"evaluate", "measure", "report"}),
        ("dacr/sessions/embedding.py", "\n_EDITED = 1\n", {"consolidate"}),
        ("dacr/learning/reduction.py", "\n_EDITED = 1\n", {"consolidate", "budget"}),
        ("dacr/methods/der_dacr.py", "\n_EDITED = 1\n",
         {"start", "learn", "consolidate", "budget"}),
        ("dacr/data/sources/npz.py", "\n_EDITED = 1\n", {"fetch", "build"}),
        ("dacr/data/splits.py", "\n_EDITED = 1\n", {"schedule", "split", "budget"}),
        ("dacr/evaluation/continual.py", "\n_EDITED = 1\n", {"measure", "report"}),
    ],
)  # fmt: skip
def test_dvc_runs_what_an_edit_reaches(
    project: Path, file: str, text: str, expected: set[str]
) -> None:
    path = project / file
    whole = path.read_text()
    path.write_text(whole + text)
    try:
        assert would_run(project) == expected
    finally:
        path.write_text(whole)


def test_a_stage_that_loads_what_is_not_known_fails(project: Path) -> None:
    """The import is hidden from the static reading, and found when the stage ends."""
    stage = project / "stages/schedule.py"
    whole = stage.read_text()
    hidden = "    __import__('importlib').import_module('dacr.report.charts')\n"
    stage.write_text(whole.replace("def main() -> None:\n", f"def main() -> None:\n{hidden}"))
    try:
        output = run(project, "python", "-m", "stages.schedule", ok=False)
        assert "RuntimeError: stage schedule loaded" in output
        assert "dacr/report/charts.py" in output
        assert "dacr/runtime/code.py" in output
    finally:
        stage.write_text(whole)
    run(project, "python", "-m", "stages.schedule")


@pytest.mark.parametrize(
    "command",
    ["code", "fetch npz", "build", "schedule", "split 01", "evaluate", "measure", "report"],
)
def test_a_stage_that_trains_nothing_does_not_load_torch(project: Path, command: str) -> None:
    """It would take longer to load than such a stage takes to run."""
    stage, *arguments = command.split()
    told = run(project, "python", "-X", "importtime", "-m", f"stages.{stage}", *arguments)
    loaded = set(re.findall(r"^import time: .*\| +(\S+)$", told, re.MULTILINE))
    assert "dacr.config" in loaded
    assert "torch" not in loaded


def test_a_split_that_cannot_be_satisfied_is_refused_before_anything_is_fetched(
    project: Path,
) -> None:
    """By `make params`, and with `dvc exp run` by the stage that comes before all others."""
    wrong = ["benchmark=tiny", "split=vil", "schedule.class_groups=5"]
    said = "schedule.class_groups is 5 for 4 classes"
    assert f"dacr: {said}" in run(project, "python", "-m", "stages.params", *wrong, ok=False)
    other = [*wrong, "data.source_options.npz.test_fraction=0.5"]
    options = [word for own in other for word in ("-S", own)]
    try:
        output = run(project, "dvc", "exp", "run", *options, ok=False)
    finally:
        run(project, "git", "checkout", "-q", "params.yaml", "dvc.lock")
    assert said in output
    assert "Traceback" not in output
    assert "Running stage 'fetch@npz'" not in output


BLOCKS = """
if a:
    import dacr.a
elif b:
    import dacr.b
else:
    import dacr.c
try:
    import dacr.d
except* (E if e else F):
    import dacr.e
else:
    import dacr.f
finally:
    import dacr.g
for x in y:
    import dacr.h
else:
    import dacr.i
while x:
    with z:
        import dacr.j
match x:
    case [1, *_] if x:
        import dacr.k
    case _:
        class C:
            def f(self):
                import dacr.l
            async def g(self):
                async with z:
                    async for x in y:
                        import dacr.m
"""


def test_an_import_is_found_in_every_kind_of_block() -> None:
    found = {name for own in code._imports(BLOCKS, "dacr") for name in own.modules}
    assert found == {f"dacr.{letter}" for letter in "abcdefghijklm"}
