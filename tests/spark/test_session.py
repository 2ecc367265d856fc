"""The session helper: what it sets, what it leaves alone, and what it says when Spark cannot run here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark import sessions
from ottla.spark.errors import OttlaSparkError
from tests.spark.programs import run_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRESH_SESSION = """
import json, sys
from ottla.spark import session
config = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.ui.enabled": False}
spark = session("a test", master="local[3]", config=config)
names = ["spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.ui.enabled", "spark.app.name"]
print("RESULT" + json.dumps({
    **{name: spark.conf.get(name) for name in names},
    "workers": spark.range(1).rdd.map(lambda row: sys.executable).first(),
    "cores": spark.sparkContext.defaultParallelism,
}))
spark.stop()
"""


def _java(directory: Path, says: str) -> Path:
    """A program that stands in for Java and answers with its version only."""
    binary = directory / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    binary.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[4,2]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("sc://localhost", False),
        ("k8s://https://host", False),
        (None, False),
    ],
)
def test_only_masters_that_run_in_this_machines_own_process_are_local(place: str | None, *, expected: bool) -> None:
    assert sessions.is_local(place) is expected


@pytest.mark.parametrize(("place", "expected"), [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local[*]", 16)])
def test_the_cores_of_a_local_master_are_read_from_its_name(place: str, expected: int) -> None:
    assert sessions.core_count(place, cores=16) == expected


def test_what_the_user_gives_counts_for_more_than_our_own_settings() -> None:
    settings = sessions.local_settings({"spark.log.level": "INFO", "spark.executor.memory": "2g"})

    assert settings["spark.log.level"] == "INFO"
    assert settings["spark.executor.memory"] == "2g"
    assert settings["spark.driver.host"] == "127.0.0.1"


def test_a_master_and_a_remote_together_are_refused() -> None:
    with pytest.raises(OttlaSparkError, match="not both"):
        sessions.session(master="local[2]", remote="sc://localhost")


def test_a_cluster_is_told_which_python_where_its_own_choice_would_be_another_one(tmp_path: Path) -> None:
    for name in ("ours", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python3").write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name / "python3").chmod(0o755)
    ours = str(tmp_path / "ours" / "python3.11")

    def is_named(*path: str, **more: str) -> bool:
        return sessions.needs_python_named({"PATH": ":".join(str(tmp_path / part) for part in path), **more}, ours)

    assert is_named("other", "ours")
    assert is_named("nowhere")
    assert not is_named("ours", "other")
    assert not is_named("other", PYSPARK_PYTHON="python3.12")
    assert not is_named("other", PYSPARK_DRIVER_PYTHON="python3.12")


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(sessions.SparkMissing, match=r"no java on the PATH\. Install it .*openjdk-17"):
        sessions.check_java({"PATH": str(tmp_path)})


def test_a_java_home_that_holds_no_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(sessions.SparkMissing, match=f"JAVA_HOME is {tmp_path}"):
        sessions.check_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("says", "version"), [('openjdk version "11.0.2" 2019-01-15', "11"), ('java version "1.8.0_292"', "8")]
)
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path, says: str, version: str) -> None:
    home = _java(tmp_path / "old", says)

    with pytest.raises(sessions.SparkMissing, match=f"is Java {version}"):
        sessions.check_java({"PATH": "", "JAVA_HOME": str(home)})


@pytest.mark.parametrize("says", ['openjdk version "17.0.9" 2023-10-17', 'openjdk version "21" 2023-09-19', "hello"])
def test_a_java_that_is_new_enough_or_does_not_say_is_left_to_spark(tmp_path: Path, says: str) -> None:
    home = _java(tmp_path / "new", says)

    sessions.check_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(home)})

    assert (home / "bin" / "java").exists()


def test_a_program_that_has_a_session_gets_that_one_as_it_is(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")

    found = sessions.session("another name", config={"spark.sql.session.timeZone": "UTC"})

    assert found is spark
    assert found.conf.get("spark.sql.shuffle.partitions") == before


def test_a_fresh_session_has_this_python_in_its_workers_and_as_many_shuffle_partitions_as_cores(
    spark_java: Path, tmp_path: Path
) -> None:
    said = run_python(FRESH_SESSION, tmp_path)

    (line,) = [line for line in said.splitlines() if line.startswith("RESULT")]
    assert json.loads(line.removeprefix("RESULT")) == {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.ui.enabled": "false",
        "spark.app.name": "a test",
        "workers": sys.executable,
        "cores": 3,
    }
