"""Which tests `make check` chooses."""

from tests.quick import CORE, LONG, ROOT, chosen

FILES = {
    "tests/test_one.py": "from dacr.data.splits import plan\n",
    "tests/test_two.py": "def test():\n    import dacr.report.page\n",
    "tests/test_three.py": "from dacr.report import page\nfrom tests import learning\n",
    "tests/test_methods.py": "import dacr.data.splits\n",
}


def test_a_change_brings_the_tests_that_import_it_and_no_long_ones(tmp_path):
    (tmp_path / "tests").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def more(*changed):
        return set(chosen(changed, FILES, tmp_path)) - set(CORE)

    assert more() == set()
    assert more("dacr/data/splits.py") == {"tests/test_one.py"}
    assert more("dacr/report/page.py") == {"tests/test_two.py", "tests/test_three.py"}
    assert more("tests/learning.py") == {"tests/test_three.py"}
    assert more("dacr/data/__init__.py", "README.md") == set()
    assert more("tests/test_two.py", "tests/test_methods.py") == {"tests/test_two.py"}


def test_every_named_file_is_there():
    assert [name for name in {*CORE, *LONG} if not (ROOT / name).exists()] == []
    assert not {*CORE} & {*LONG}
