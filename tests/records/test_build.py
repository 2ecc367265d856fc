"""The kernel's build: it never stands in the way of an installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_without_a_compiler_the_build_succeeds_without_the_kernel(tmp_path: Path) -> None:
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "src/ottla/records/compiled", tmp_path / "src/ottla/records/compiled")
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out"],
        cwd=tmp_path,
        env={**os.environ, "CC": str(tmp_path / "no-such-compiler")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # It was tried, and given up.
    assert "ottla.records._kernel" in done.stdout + done.stderr
    assert not list(tmp_path.rglob("*.so"))
