"""The guard around ``import torchvision``; operators are global, so each case has its process."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

IMPORT_GUARD = "import torch, tests.torchvision_compat as compat\n"
USE_TRANSFORMS = """
from torchvision.transforms import v2
image = torch.arange(3 * 6 * 6, dtype=torch.uint8).reshape(3, 6, 6)
assert torch.equal(v2.functional.crop(image, 1, 2, 3, 4), image[:, 1:4, 2:6])
assert v2.RandomResizedCrop(5)(image).shape == (3, 5, 5)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def check(code: str) -> None:
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_transforms_work_and_operators_are_declared_only_where_torchvision_lacks_them() -> None:
    alone = run("import torchvision")
    if alone.returncode != 0:
        assert "operator torchvision::nms does not exist" in alone.stderr
    expected = "is not None" if alone.returncode != 0 else "is None"
    check(IMPORT_GUARD + f"assert compat._library {expected}, compat._library" + USE_TRANSFORMS)


def test_executing_the_guard_twice_is_harmless() -> None:
    again = "import gc, importlib\nimportlib.reload(compat)\ngc.collect()\n"
    check(IMPORT_GUARD + again + USE_TRANSFORMS + again + USE_TRANSFORMS)


def test_nothing_is_declared_when_the_operators_exist() -> None:
    check(
        "import torch\n"
        "existing = torch.library.Library('torchvision', 'DEF')\n"
        "existing.define('nms(Tensor boxes) -> Tensor')\n"
        + IMPORT_GUARD
        + "assert compat._library is None\n"
        "assert 'boxes' in str(torch.ops.torchvision.nms.default._schema)\n"
        "assert not hasattr(torch.ops.torchvision, 'qnms')\n"
    )
