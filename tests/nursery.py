"""A process that has the stages loaded and forks them on demand: a life costs no import.

Run as ``python -m tests.nursery``, by the warm Python of ``tests/warm.py``. For each line
``<folder> <session> <seconds>`` on stdin it forks a child that runs ``stages.learn`` there as DVC
would, with so many seconds between checkpoints, prints the child's pid, waits, and prints how it
ended (``waitstatus_to_exitcode``: negative is a signal).
"""

from __future__ import annotations

import os
import signal
import sys
import traceback

import torch
import torch._dynamo
import torch._inductor.config

import dacr.sessions.learn
from dacr.runtime.stage import run_stage
from stages import learn


def live(folder: str, session: str, seconds: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ |= {"DVC_ROOT": folder, "DACR_CHECKPOINT_SECONDS": seconds}
    sys.argv = ["learn", session]
    # What the stage says is not part of what this process says.
    os.dup2(os.open("lives.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    os.dup2(1, 2)
    run_stage(learn.main)


def main() -> None:
    assert dacr.sessions.learn  # loaded once, for all lives
    # So is what torch loads late. Python drops a KeyboardInterrupt that is raised while a lock of
    # its import machinery is let go, so that a signal during an import may be lost.
    assert torch._dynamo
    assert torch._inductor.config
    torch.set_num_threads(1)  # no pool of threads, which a fork would lose
    for line in sys.stdin:
        life = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                live(*life)
            except SystemExit as end:
                os._exit(int(end.code or 0))
            except KeyboardInterrupt:  # before the stage had begun
                os._exit(130)
            except BaseException:
                traceback.print_exc()  # into lives.log
                os._exit(99)
            os._exit(0)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
