"""Both ways to do the record work, for every test that holds for both."""

from __future__ import annotations

import os

import pytest

from tests.records.samples import PLAIN, Implementation, compiled


@pytest.fixture
def kernel_implementation() -> Implementation:
    """The compiled kernel; REQUIRE_KERNEL=1 makes its absence a failure."""
    found = compiled()
    if found is None:
        if os.environ.get("REQUIRE_KERNEL") == "1":
            pytest.fail("REQUIRE_KERNEL=1, but the compiled kernel is not in use", pytrace=False)
        pytest.skip("the compiled kernel is not in use")
    return found


@pytest.fixture(params=["plain", "compiled"])
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Plain Python first, then the compiled kernel."""
    if request.param == "plain":
        return PLAIN
    found: Implementation = request.getfixturevalue("kernel_implementation")
    return found
