"""Which implementation is in use, and that it is said once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ottla.records import kernel

SAY = """
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
from ottla.records import builder, kernel, reader
print(kernel.AVAILABLE, len(reader.read_batch(builder.build_batch([(b"k", b"v", 1, ())]))))
"""


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True, timeout=60
    )


def test_the_kernel_is_there_when_it_has_to_be() -> None:
    if os.environ.get("REQUIRE_KERNEL") != "1":
        pytest.skip("REQUIRE_KERNEL is not 1")
    assert kernel.AVAILABLE


def test_switching_the_kernel_off_is_obeyed_and_said_once() -> None:
    done = run(SAY, OTTLA_KERNEL="off")
    assert done.stdout.split() == ["False", "1"]
    assert done.stderr.count("kernel") == 1
    assert done.stderr.startswith("INFO records: the compiled kernel is switched off")


def test_a_missing_kernel_is_a_warning_and_no_error() -> None:
    hidden = "import sys; sys.modules['ottla.records._kernel'] = None\n" + SAY
    done = run(hidden, OTTLA_KERNEL="")
    assert done.stdout.split() == ["False", "1"]
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("WARNING records: the compiled kernel is not there")


def test_the_core_needs_neither_numpy_nor_pyarrow() -> None:
    modules = "batch builder compression control filter isolation kernel packing plain reader varint"
    imports = "\n".join(f"import ottla.records.{name}" for name in modules.split())
    done = run(f"{imports}\nimport sys\nprint('numpy' in sys.modules, 'pyarrow' in sys.modules)")
    assert done.stdout.split() == ["False", "False"]
