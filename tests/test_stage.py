"""How a stage ends when it cannot go on: one line, an exit code, no traceback."""

import json
import os
import signal
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from dacr.runtime.stage import explain, interrupts_wait

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


@pytest.mark.parametrize(
    ("components", "batch", "advice"),
    [(3, 4096, "lower train.batch_size, which is 4,096"), (10_000, 4, "mixture.components")],
)
def test_out_of_memory_advises_to_lower_what_fills_it(monkeypatch, components, batch, advice):
    from dacr import config
    from tests.tiny_pipeline import tiny_params

    params = tiny_params()
    mixture = params.mixture.model_copy(update={"components": components})
    train = params.train.model_copy(update={"batch_size": batch})
    own = params.model_copy(update={"mixture": mixture, "train": train})
    monkeypatch.setattr(config, "load_params", lambda: own)
    torch_says = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
    for error in (MemoryError(), torch_says):
        assert advice in str(explain(error))


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
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr.splitlines() == [
        "dacr: interrupted; run the same command again to go on with what is not done"
    ]


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda: json.loads("[" * 100_000), "nested too deeply"),
        (lambda: yaml.safe_load("[" * 5000), "nested too deeply"),
        (lambda: json.loads("9" * 5000), "too many digits"),
        (lambda: yaml.safe_load("9" * 5000), "too many digits"),
    ],
)
def test_a_file_that_no_parser_can_take_is_one_line(read, said):
    with pytest.raises((RecursionError, ValueError)) as error:
        read()
    assert said in explain(error.value)


def test_a_recursion_of_our_own_keeps_its_traceback():
    def own():
        own()

    with pytest.raises(RecursionError) as error:
        own()
    assert explain(error.value) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_a_block_unless_it_comes_twice(number):
    done = []

    def ask(times):
        with interrupts_wait():
            for _ in range(times):
                os.kill(os.getpid(), number)
            done.append(times)

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        ask(1)
    with pytest.raises(KeyboardInterrupt):
        ask(2)
    ask(0)
    assert done == [1, 0]
    assert signal.getsignal(number) == before


def test_an_unknown_device_is_one_line(tmp_path):
    body = "from dacr.runtime.device import pick_device\npick_device()"
    result = run_main(body, tmp_path, env={"DACR_DEVICE": "abacus"})
    assert "DACR_DEVICE=abacus" in only_line(result)


def test_a_run_with_promised_bits_stays_on_the_cpu_unless_told_otherwise(tmp_path, monkeypatch):
    """On a machine with a GPU `make repro` must end in the bytes of a machine without one."""
    from dacr.runtime.compose import compose
    from dacr.runtime.portable import training_params

    def device_after(*overrides: str, told: str | None = None) -> str | None:
        monkeypatch.delenv("DACR_DEVICE", raising=False)
        if told:
            monkeypatch.setenv("DACR_DEVICE", told)
        compose(overrides, tmp_path / "params.yaml")
        with chdir(tmp_path), patch.dict(os.environ):
            training_params()
            return os.environ.get("DACR_DEVICE")

    assert device_after("benchmark=idigits_mini") == "cpu"
    assert device_after("benchmark=idigits_mini", told="cuda:1") == "cuda:1"
    assert device_after("benchmark=icifar20") is None
