"""Pages of the site that are made when it is built: MkDocs calls ``on_files``.

The paper's tables come from the committed records in ``reports/paper`` by the project's own
functions; CHANGELOG.md and CONTRIBUTING.md stay where people look for them. Nothing is written into
the repository.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from dacr.experiments.records import RESULTS, Store
from dacr.experiments.results import Results, results_of
from dacr.experiments.tables import Paper, load_paper
from dacr.report.table_markdown import markdown
from dacr.report.table_page import render_table

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    os.chdir(ROOT)  # the records and conf/ are found from there
    for name, content in made(load_paper()).items():
        if stand_in := files.get_file_from_path(name):  # for readers of the repository
            files.remove(stand_in)
        files.append(File.generated(config, name, content=content))
    return files


def made(paper: Paper) -> dict[str, str]:
    """name → content"""
    pages = {
        "changelog.md": from_root("CHANGELOG.md"),
        "contributing.md": from_root("CONTRIBUTING.md"),
    }
    lines = [INTRO]
    with tempfile.TemporaryDirectory() as nothing:
        store = Store(Path(nothing))  # committed records alone, not what this machine measured
        for table, benchmark in committed(paper):
            results = results_of(paper, paper.table(table), benchmark, store)
            if results.all_records:
                name = f"{table}-{benchmark}"
                pages[f"tables/{name}.md"] = table_page(results, name)
                pages[f"tables/{name}-page.html"] = render_table(results)
                lines.append(line_of(results, name))
    return pages | {"tables/index.md": "\n".join(lines) + "\n"}


def committed(paper: Paper) -> list[tuple[str, str]]:
    """(table, benchmark) of all committed results, Table 1 first."""
    found = {tuple(path.stem.split("-", 1)) for path in RESULTS.glob("*.json")}
    tables = sorted(paper.tables, key=lambda name: (name != "main", name))
    return [(table, own) for table in tables for t, own in sorted(found) if t == table]


INTRO = """\
# The paper's tables and figures

Every page is made from the committed records in `reports/paper/`, when the site is built. It shows
what was measured; the page behind *with the paper's numbers* is the one of `dacr paper show`, with
curves, commands and revisions. What the tables ask and how to run them: [here](../paper.md). What
the results mean: [Results](../results.md).

| table | benchmark | experiments | of other code or settings | |
|---|---|---|---|---|"""


def line_of(results: Results, name: str) -> str:
    table = results.table
    older = len(results.older & {record.name for record in results.all_records})
    return (
        f"| [{table.title}]({name}.md) | `{results.benchmark}` | {len(results.all_records)} | "
        f"{older or '–'} | [with the paper's numbers]({name}-page.html) |"
    )


def table_page(results: Results, name: str) -> str:
    table, records = results.table, results.all_records
    older = sorted(results.older & {record.name for record in records})
    seeds = sorted({record.seed for record in records})
    parts = [
        WIDE,
        f"# {table.title}",
        f"`{results.benchmark}`, {len(records)} experiments, seeds {', '.join(map(str, seeds))}. "
        + (f"In the paper: {table.source}. " if table.source else "Not in the paper. ")
        + f"[With the paper's numbers, curves and commands]({name}-page.html). "
        "[All tables](index.md).",
    ]
    if older:
        parts.append(
            f'!!! warning "{len(older)} of {len(records)} were made by other code or settings '
            "than today's\"\n"
            f"    `dacr paper plan {table.name} --benchmark {results.benchmark}` names them, and "
            "`dacr paper run` with `--redo changed` measures them again."
        )
    parts += [markdown(results, metrics_of(results)), MEANING if results.has_gains else ""]
    parts += [f"- {note}" for note in table.notes]
    parts.append(folded("Commands", "\n".join(sorted(record.command for record in records))))
    return "\n\n".join(part for part in parts if part) + "\n"


def metrics_of(results: Results) -> list[str]:
    """The table's own, and those that every reader asks for."""
    known = set.intersection(*(set(record.metrics) for record in results.all_records))
    return list(dict.fromkeys([*results.table.metrics, *(m for m in FURTHER if m in known)]))


FURTHER = ("average_incremental_accuracy", "final_accuracy", "components_per_class", "purity")
WIDE = "---\nhide: [navigation, toc]\n---"
MEANING = (
    "± is the standard deviation over seeds. A gain is over the better of the hosts, on the seeds "
    "that both have; it is bold if 0 is outside its 95 % interval."
)


def folded(title: str, code: str) -> str:
    inside = "\n".join(f"    {line}" for line in code.splitlines())
    return f'??? note "{title}"\n    ```text\n{inside}\n    ```'


def from_root(name: str) -> str:
    """A page of the root; its links into docs/ and to other pages of the root are of the site."""

    def site_link(found: re.Match[str]) -> str:
        return f"]({found[1].removeprefix('docs/')})"

    text = LINK.sub(site_link, (ROOT / name).read_text(encoding="utf-8"))
    for page in ("CHANGELOG.md", "CONTRIBUTING.md"):
        text = text.replace(f"]({page}", f"]({page.lower()}")
    return text
