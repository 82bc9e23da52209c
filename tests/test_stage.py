"""How a stage ends when it cannot go on: one line, an exit code, no traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_main(body, tmp_path, **options):
    """Run ``body`` as the main of a stage in a process of its own."""
    script = tmp_path / "stage_under_test.py"
    script.write_text(
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from dacr.runtime.stage import run_stage\n"
        "def main():\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
        + "run_stage(main)\n"
    )
    script.chmod(0o644)
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **options.pop("env", {})},
        **options,
    )


def only_line(result):
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("dacr: ")
    return line


def test_success_is_silent(tmp_path):
    result = run_main("print('done')", tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_a_users_mistake_is_one_line(tmp_path):
    body = "from dacr.errors import UserError\nraise UserError('a\\nb; do c')"
    result = run_main(body, tmp_path)
    assert result.returncode == 1
    assert only_line(result) == "dacr: a b; do c"


def test_a_full_disk_is_named(tmp_path):
    result = run_main("open('/dev/full', 'w').write('x' * 10**6)", tmp_path)
    assert result.returncode == 1
    assert "disk is full" in only_line(result)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user to lack permission")
def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o755)
    body = f"os.setuid(65534)\nopen({str(locked / 'out')!r}, 'w')"
    result = run_main(body, tmp_path)
    assert result.returncode == 1
    line = only_line(result)
    assert "no permission" in line
    assert str(locked / "out") in line


def test_a_missing_package_points_to_the_environment(tmp_path):
    result = run_main("import a_package_that_is_not_there", tmp_path)
    assert "make setup" in only_line(result)


def test_out_of_memory_suggests_a_smaller_batch(tmp_path):
    result = run_main("raise MemoryError", tmp_path)
    assert "train.batch_size" in only_line(result)


def test_a_killed_worker_is_one_line(tmp_path):
    """A real pool, whose worker is killed as the kernel kills one that takes all memory."""
    body = (
        "import signal\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "with ProcessPoolExecutor(1) as pool:\n"
        "    pid = pool.submit(os.getpid).result()\n"
        "    waiting = pool.submit(time.sleep, 60)\n"
        "    os.kill(pid, signal.SIGKILL)\n"
        "    waiting.result()"
    )
    result = run_main(body, tmp_path)
    assert result.returncode == 1
    assert "a worker process was killed" in only_line(result)


def test_our_own_mistakes_keep_their_traceback(tmp_path):
    result = run_main("1 / 0", tmp_path)
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" in result.stderr


def test_debug_shows_the_traceback(tmp_path):
    body = "from dacr.errors import UserError\nraise UserError('wrong')"
    result = run_main(body, tmp_path, env={"DACR_DEBUG": "1"})
    assert "Traceback" in result.stderr


def test_control_c_is_one_line_and_130(tmp_path):
    script = tmp_path / "stage_under_test.py"
    script.write_text(
        f"import signal, sys, time\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from dacr.runtime.stage import run_stage\n"
        # A test run in the background of a shell inherits that ^C is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def main():\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "run_stage(main)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.splitlines() == [
        "dacr: interrupted; run the same command again to go on with what is not done"
    ]


def test_an_unknown_device_is_one_line(tmp_path):
    body = "from dacr.runtime.device import pick_device\npick_device()"
    result = run_main(body, tmp_path, env={"DACR_DEVICE": "abacus"})
    assert "DACR_DEVICE=abacus" in only_line(result)
