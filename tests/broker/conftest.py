"""What the broker's tests begin with."""

from __future__ import annotations

import pytest

from tests.broker.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """A broker with nothing in it."""
    return Stage()
