"""What the tests' Sparks are given so that they start quickly, and which archive of classes fits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.peers import spark_start


@pytest.fixture
def fake_java(tmp_path: Path) -> Path:
    """Stands in for a Java; none is run."""
    pytest.importorskip("pyspark")
    binary = tmp_path / "java" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.touch(mode=0o755)
    return binary


def _archive(java: Path, cache: Path) -> Path:
    found = spark_start.archive({"JAVA_HOME": str(java.parents[1])}, cache=cache)
    assert found is not None
    return found


def test_an_archive_that_is_there_is_used(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    archive.touch()

    assert spark_start.options(archive).endswith(f" -XX:SharedArchiveFile={archive}")


def test_without_an_archive_a_spark_starts_as_well(tmp_path: Path) -> None:
    assert spark_start.options(tmp_path / "classes.jsa") == spark_start.options(None)
    assert "SharedArchiveFile" not in spark_start.options(None)


def test_each_java_has_an_archive_of_its_own(fake_java: Path, tmp_path: Path) -> None:
    before, again = _archive(fake_java, tmp_path), _archive(fake_java, tmp_path)
    os.utime(fake_java, ns=(1, 1))

    assert before == again
    assert _archive(fake_java, tmp_path) != before


def test_there_is_none_without_a_java(fake_java: Path, tmp_path: Path) -> None:
    shutil.rmtree(fake_java.parent)

    assert spark_start.archive({"JAVA_HOME": str(fake_java.parents[1])}, cache=tmp_path) is None


def test_there_is_none_where_its_path_would_be_taken_apart(fake_java: Path, tmp_path: Path) -> None:
    assert spark_start.archive({"JAVA_HOME": str(fake_java.parents[1])}, cache=tmp_path / "two words") is None
