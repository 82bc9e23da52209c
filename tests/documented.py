"""The commands of the documentation: taken from its pages, and run as they are printed.

A page is README.md, CONTRIBUTING.md or a page of docs/. A block of it in the language ``bash``,
``console`` or ``python`` is run by tests/test_documented.py, unless a comment in the line before it
says otherwise:

``<!-- nightly -->``
    takes minutes: `.ci/nightly` runs it, with the page's other blocks, in their order
``<!-- run by PATH -->``
    that file takes it from the page, or is a script with the same lines
``<!-- file: PATH -->``
    a file that the page's reader saves, for the commands after it
``<!-- not run: REASON -->``
    it needs a GPU or a network, or takes half an hour or more

Of ``console`` blocks what is printed is compared in shape: numbers may differ, and ``…`` stands for
any lines. Everything runs in a copy of the project whose `idigits_mini` has 48 images.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image

from dacr.__main__ import main
from tests.tiny_project import (
    BENCHMARK,
    ROOT,
    commit,
    make_repository,
    make_run,
    run,
)

LANGUAGES = {"bash", "console", "python"}
OTHER = {"text", "yaml", "csv"}
MARK = re.compile(r"^<!-- (?P<word>nightly|run by|file:|not run:)(?: (?P<what>.+?))? -->$")
REASON = re.compile(r"\b(GPU|network|hours?)\b")
SHELL = set("|&;<>$`*\\\n")
"""What only a shell understands."""
EXPERIMENTS = {"first": "seed=1", "delta": "reduction.delta=0.75"}
"""name → override: the experiments that docs/experiments.md makes"""
BLOCK_SECONDS = QUEUE_SECONDS = 3600


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    word: str
    """Of its mark; empty without one."""
    what: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether it is run here, now or at night."""
        return self.language in LANGUAGES and self.word in ("", "nightly")

    @property
    def commands(self) -> list[str]:
        """Without comments, a line that goes on in one piece."""
        joined = self.text.replace("\\\n", " ")
        lines = [line.strip() for line in joined.splitlines()]
        if self.language == "console":
            return [line[2:] for line in lines if line.startswith("$ ")]
        return [line for line in lines if line and not line.startswith("#")]


def pages() -> list[str]:
    found = sorted((ROOT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in found)]


def blocks(page: str) -> list[Block]:
    return list(blocks_in((ROOT / page).read_text(encoding="utf-8"), page))


def blocks_in(text: str, page: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = lines[number].strip()
        if not opening.startswith("```"):
            number += 1
            continue
        end = next(
            (n for n in range(number + 1, len(lines)) if lines[n].strip() == "```"), len(lines)
        )
        inside = textwrap.dedent("\n".join(lines[number + 1 : end]) + "\n")
        before = lines[number - 1].strip() if number else ""
        mark = MARK.match(before)
        if before.startswith("<!-- ") and not mark and "table" not in before:
            raise ValueError(f"{page}:{number}: {before} is no mark that tests/documented.py knows")
        word, what = (mark["word"].rstrip(":"), mark["what"] or "") if mark else ("", "")
        yield Block(page, number + 1, opening[3:].strip(), inside, word, what)
        number = end + 1


# -- the project that they run in -------------------------------------------------------------


def make_documented_project(folder: Path) -> None:
    """A committed run and two experiments of a small `idigits_mini`, with what readers have.

    Made inside this process, and recorded by DVC.
    """
    make_repository(folder)
    small = BENCHMARK.replace("benchmark: tiny", "benchmark: idigits_mini")
    (folder / "conf/benchmark/idigits_mini.yaml").write_text(small)
    shutil.copytree(ROOT / "reports/paper", folder / "reports/paper")
    make_run(folder, benchmark="idigits_mini")
    run(folder, "dvc", "commit", "-f", "-q")
    commit(folder, "reference")
    for name, override in EXPERIMENTS.items():
        make_run(folder, override, benchmark="idigits_mini")
        run(folder, "dvc", "commit", "-f", "-q")
        run(folder, "dvc", "exp", "save", "-q", "-n", name)
        run(folder, "git", "checkout", "-q", "--force", "main")
    run(folder, "dvc", "checkout", "-q", "--force")
    pixels = np.random.default_rng(0).integers(0, 255, (2, 40, 30, 3), dtype=np.uint8)
    (folder / "scans/deep").mkdir(parents=True)
    Image.fromarray(pixels[0]).save(folder / "photo.jpg")
    Image.fromarray(pixels[1]).save(folder / "scans/deep/one.png")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/activate").write_text("# this environment is active\n")
    with (folder / ".git/info/exclude").open("a") as file:
        file.write("photo.jpg\nscans/\n")


def make_home(folder: Path) -> None:
    """Of a reader: pets to learn from, as docs/data.md has them."""
    generator = np.random.default_rng(0)
    for domain in ("photo", "sketch"):
        for kind in ("cat", "dog", "fish"):
            place = folder / "pets" / domain / kind
            place.mkdir(parents=True)
            for number in range(6):
                pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")


@dataclass
class Reader:
    """Somebody who types what a page says, in a project of their own."""

    folder: Path
    home: Path
    in_process: bool
    """Whether plain commands of dacr are called in this process: Python starts once."""
    names: dict[str, Any] = field(default_factory=dict)

    def follow(self, block: Block) -> None:
        if block.word == "file":
            place = self.folder / block.what
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with chdir(self.folder), patch.dict(os.environ, self.surroundings):
                exec(block.text, self.names)
        elif block.language == "console":
            for command, printed in sessions_of(block):
                check_shape(printed, self.type(command))
        elif self.in_process:
            for command in block.commands:
                self.type(command)
        else:
            self.type(block.text)
            if "dvc queue start" in block.text:
                self.wait_for_the_queue()

    @property
    def surroundings(self) -> dict[str, str]:
        return {"HOME": str(self.home), "DACR_HOME": str(self.home / "cache"), "COLUMNS": "120"}

    def type(self, command: str) -> str:
        """What it printed; an error is one of the page."""
        plain = command.split("#", maxsplit=1)[0]
        if self.in_process and plain.startswith("dacr ") and not SHELL & set(plain.strip()):
            return self.call(shlex.split(command, comments=True)[1:])
        words = "bash", "-euo", "pipefail", "-c", command
        return run(self.folder, *words, env=self.surroundings, seconds=BLOCK_SECONDS)

    def call(self, words: list[str]) -> str:
        output = io.StringIO()
        with (
            chdir(self.folder),
            patch.dict(os.environ, self.surroundings),
            patch.object(sys, "argv", ["dacr", *map(os.path.expanduser, words)]),
            redirect_stdout(output),
            redirect_stderr(output),
        ):
            code = exit_code_of(main)
        assert not code, f"dacr {shlex.join(words)}: {output.getvalue()}"
        return output.getvalue()

    def wait_for_the_queue(self) -> None:
        """Its worker is a process of its own."""
        end = time.monotonic() + QUEUE_SECONDS
        while True:
            told = run(self.folder, "dvc", "queue", "status")
            assert "Failed" not in told, told
            if "Running" not in told and "Queued" not in told:
                return
            assert time.monotonic() < end, told
            time.sleep(5)

    def forget(self, *experiments: str) -> None:
        """So that a page can make them itself."""
        listed = run(self.folder, "git", "for-each-ref", "--format=%(refname)", "refs/exps")
        for ref in listed.split():
            if ref.rpartition("/")[2] in experiments:
                subprocess.run(["git", "update-ref", "-d", ref], cwd=self.folder, check=True)


def exit_code_of(program: Callable[[], None]) -> str | int | None:
    try:
        program()
    except SystemExit as end:
        return end.code
    return 0


# -- what is printed --------------------------------------------------------------------------


def sessions_of(block: Block) -> Iterator[tuple[str, list[str]]]:
    """(command, what the page prints below it)"""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *printed = part.rstrip("\n").split("\n")
        yield command, printed


def check_shape(printed: list[str], told: str) -> None:
    """Line by line the same words; numbers and the width of columns may differ."""
    wanted = [shape(line) for line in printed if line.strip()]
    lines = [shape(line) for line in told.splitlines() if line.strip()]
    pattern = "\n".join("(?:.*\n)*?.*" if own == "…" else re.escape(own) for own in wanted)
    assert re.fullmatch(pattern, "\n".join(lines)), f"the page prints\n{printed}\nand not\n{told}"


def shape(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[-+−]?\d[\d.,:]*", "0", line)).strip()
