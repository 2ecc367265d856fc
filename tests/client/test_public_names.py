"""What `import ottla` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ottla

HEAVY = ("asyncio", "numpy", "pyarrow", "ottla.broker", "ottla.storage", "ottla.metadata", "ottla.server")


def _loaded_by(statement: str) -> set[str]:
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "statement", ["import ottla", "import ottla; ottla.connect('127.0.0.1:1').producer()", "import ottla; ottla.Record"]
)
def test_the_client_loads_no_broker_no_event_loop_and_no_columns(statement: str) -> None:
    assert not _loaded_by(statement) & set(HEAVY)


def test_the_async_client_loads_no_broker() -> None:
    assert not _loaded_by("import ottla; ottla.connect_async") & set(HEAVY[1:])


@pytest.mark.parametrize("name", ottla.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(ottla, name) is not None
    assert name in dir(ottla)


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ottla.no_such_name
