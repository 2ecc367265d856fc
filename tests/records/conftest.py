"""Both ways to do the record work, for every test that holds for both."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.records.samples import PLAIN, Implementation, compiled


@pytest.fixture
def kernel_implementation(compiled_kernel: ModuleType) -> Implementation:
    """What the compiled kernel does."""
    found = compiled()
    assert found is not None, f"{compiled_kernel} is in use"
    return found


@pytest.fixture
def implementation(request: pytest.FixtureRequest, is_compiled: bool) -> Implementation:
    """Plain Python first, then the compiled kernel."""
    if not is_compiled:
        return PLAIN
    found: Implementation = request.getfixturevalue("kernel_implementation")
    return found
