"""What Spark's own Python processes load of ours: little, because Spark waits for them before a query's first batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.programs import run_python

LOADED = """
import json, sys
import pyspark.sql.datasource, pyspark.sql.streaming.datasource
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"asyncio", "numpy", "pandas", "pyarrow", "uvloop"}
BROKER = {"broker", "coordinators", "embedded", "metadata", "partitions", "server", "storage"}


def _loaded(statement: str, directory: Path) -> set[str]:
    found: list[str] = json.loads(run_python(LOADED.format(statement=statement), directory))
    return set(found)


@pytest.mark.parametrize(
    "statement",
    [
        "import pyspark_ottla",
        "import ottla.spark.stream_reader",
        "import ottla.spark.batch_reader",
        "import ottla.spark.writer",
    ],
)
def test_what_plans_a_query_loads_neither_arrow_nor_an_event_loop(tmp_path: Path, statement: str) -> None:
    pytest.importorskip("pyspark")

    loaded = _loaded(statement, tmp_path)

    assert "ottla" in loaded
    assert {name for name in loaded if name.split(".")[0] in HEAVY} == set()


def test_what_reads_and_writes_loads_no_part_of_the_broker(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")

    loaded = _loaded("import ottla.spark.range_reader, ottla.spark.task_writing", tmp_path)

    assert {name for name in loaded if name.startswith("ottla.") and name.split(".")[1] in BROKER} == set()
