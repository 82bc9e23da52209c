"""How a stage ends: quietly when it is done, with one clear line when it cannot go on."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from dacr.errors import UserError

if TYPE_CHECKING:
    from dacr.config import Params

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "your disk quota is used up; free some space and run the same command again",
    errno.EACCES: "no permission; check the owner and mode of the folder",
    errno.EPERM: "no permission; check the owner and mode of the folder",
    errno.EEXIST: "there is a file of this name; choose another place",
    errno.ENOTDIR: "a part of this path is a file, not a folder; choose another place",
    errno.EROFS: "the file system is read-only; work in a folder that can be written",
}

FILLING = 1 << 26
"""Bytes of the logits of a batch, or of all means, from which on components fill the memory: a
step has several copies of them. The paper's largest experiment has a tenth of it."""


def explain(error: BaseException) -> str | None:
    """One line for an error that a user can correct, None for a defect of the project."""
    match error:
        case UserError():
            return str(error)
        case KeyboardInterrupt():
            advice = "run the same command again to go on with what is not done"
            return f"interrupted; {str(error) or advice}"
        case OSError() if error.errno in _ADVICE:
            subject = f"{error.filename}: " if error.filename else ""
            return f"{subject}{_ADVICE[error.errno]}"
        case ModuleNotFoundError():
            return (
                f"{error.msg}; activate the environment of the project (`make setup`, "
                "`. .venv/bin/activate`), or `pip install 'dacr[pipeline]'`"
            )
        case RecursionError() if _in_a_parser(error):
            return "a JSON or YAML file is nested too deeply; restore it from git or make it again"
        case ValueError() if "integer string conversion" in str(error):
            return "a number in a file or on the command line has too many digits; correct it"
        case MemoryError():
            return f"out of memory; {_memory_advice()}"
    return _explain_foreign(type(error).__name__, str(error))


def _explain_foreign(kind: str, message: str) -> str | None:
    """The same for libraries that have errors of their own where Python has one."""
    if kind == "OutOfMemoryError":
        return f"out of GPU memory; {_memory_advice()}"
    if kind == "RuntimeError" and "DefaultCPUAllocator" in message:  # torch
        return f"out of memory; {_memory_advice()}"
    if kind == "BrokenProcessPool":
        return "a worker process was killed, mostly for lack of memory; free some and run it again"
    if kind == "SafetensorError":
        for number, advice in _ADVICE.items():
            if f"(os error {number})" in message:
                return advice
    return None


def _in_a_parser(error: BaseException) -> bool:
    """Whether a library that reads JSON or YAML raised it: then a file is to blame, and not we."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    raising = frames[-1].f_globals.get("__name__", "") if frames else ""
    return raising.partition(".")[0] in ("json", "yaml", "ruamel")


def _memory_advice() -> str:
    """What to lower: the components where they fill the memory, else the batch."""
    from dacr.config import load_params

    try:
        params = load_params()
    except Exception:  # no parameters here, or no memory to read them: the error itself matters
        return "lower train.batch_size (-S train.batch_size=…)"
    m, rows = params.mixture.components, max(params.train.batch_size, 512)  # or features
    if 4 * params.data.classes * m * rows >= FILLING:
        return f"lower mixture.components, which is {m:,} (-S mixture.components=…)"
    return f"lower train.batch_size, which is {params.train.batch_size:,} (-S train.batch_size=…)"


@contextmanager
def termination_is_an_interrupt() -> Iterator[None]:
    """SIGTERM ends the work as ^C does: what is running stops and keeps what it has done."""
    if threading.current_thread() is not threading.main_thread():  # who has no say in signals
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """^C and SIGTERM come when the block is done; a second one comes at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, wait) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt


def run_stage(main: Callable[[], None], stage: str | None = None) -> None:
    """Run ``main``; turn what a user can mend into one line and exit code 1 (130: ^C).

    Of a ``stage`` of the pipeline it is checked that it ran the code that DVC was told, and no
    other.
    """
    try:
        with termination_is_an_interrupt():
            main()
        if stage:
            check_code(stage)
    except BaseException as error:
        line = explain(error)
        if line is None or os.environ.get("DACR_DEBUG"):
            raise
        print(f"dacr: {line}", file=sys.stderr)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def check_code(stage: str) -> None:
    """Refuse a loaded module that is not in ``runs/code``: its edits would be missed."""
    from dacr.config import load_params
    from dacr.runtime.code import unexpected_modules

    params = load_params()
    sources = sys.argv[1:] if stage == "fetch" else params.data.sources
    if unexpected := unexpected_modules(stage, params.method, sources):
        raise RuntimeError(
            f"stage {stage} loaded {', '.join(unexpected)}, which dacr/runtime/code.py does not "
            "find: import it by a plain import statement, or add it there"
        )


def session_argument(params: Params) -> str:
    """The session that a stage's command line names."""
    match sys.argv[1:]:
        case [key] if key in params.schedule.sessions:
            return key
    known = ", ".join(params.schedule.sessions)
    raise UserError(f"name one session of {params.split}: {known} (got {sys.argv[1:]})")
