"""Fetching Kafka's jars: once, whole, or with a reason why not. A script stands in for Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import kafka, spark_connector


def _maven(directory: Path, script: str) -> str:
    path = directory / "mvn"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_jars_are_fetched_once_and_found_the_second_time(tmp_path: Path) -> None:
    maven = _maven(tmp_path, f": >kafka.jar; echo ran >>'{tmp_path}/runs'")
    said: list[str] = []

    first = kafka.jars(said.append, cache=tmp_path / "jars", maven=maven)
    second = kafka.jars(said.append, cache=tmp_path / "jars", maven=maven)

    assert first == second
    assert (first / "kafka.jar").exists()
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "ran\n"


def test_the_fetch_says_what_it_does_and_when_it_is_done(tmp_path: Path) -> None:
    said: list[str] = []

    kafka.jars(said.append, cache=tmp_path / "jars", maven=_maven(tmp_path, ": >kafka.jar"))

    assert said[0].startswith(f"Fetching Apache Kafka {kafka.KAFKA_VERSION}")
    assert said[1] == "Kafka's 1 jars are in place."


def test_a_maven_that_fails_leaves_no_jars_and_gives_its_reason(tmp_path: Path) -> None:
    maven = _maven(tmp_path, ": >half.jar; echo '[ERROR] no route to host'; exit 1")

    with pytest.raises(kafka.PeerMissing, match="no route to host"):
        kafka.jars(print, cache=tmp_path / "jars", maven=maven)

    assert not (tmp_path / "jars").exists()


def test_after_a_failure_the_next_process_does_not_wait_for_another(tmp_path: Path) -> None:
    maven = _maven(tmp_path, f"echo ran >>'{tmp_path}/runs'; exit 1")

    for _ in range(2):
        with pytest.raises(kafka.PeerMissing):
            kafka.jars(print, cache=tmp_path / "jars", maven=maven)

    assert (tmp_path / "runs").read_text(encoding="utf-8") == "ran\n"


def test_a_missing_maven_is_named_as_the_reason(tmp_path: Path) -> None:
    with pytest.raises(kafka.PeerMissing, match="Maven"):
        kafka.jars(print, cache=tmp_path / "jars", maven=str(tmp_path / "no-such-mvn"))


@pytest.mark.peers
def test_the_real_jars_carry_kafkas_tools_and_clients(kafka_jars: Path) -> None:
    names = {path.name for path in kafka_jars.glob("*.jar")}

    assert {f"kafka-tools-{kafka.KAFKA_VERSION}.jar", f"kafka-clients-{kafka.KAFKA_VERSION}.jar"} <= names


def test_sparks_connector_is_fetched_like_kafka_and_named_to_spark_as_one_list(tmp_path: Path) -> None:
    maven = _maven(tmp_path, ": >b.jar; : >a.jar")

    found = spark_connector.jars(lambda line: None, cache=tmp_path / "jars", maven=maven)

    assert spark_connector.spark_jars(found) == f"{found}/a.jar,{found}/b.jar"


def test_a_failure_names_the_peer_that_could_not_be_had(tmp_path: Path) -> None:
    with pytest.raises(kafka.PeerMissing, match="Spark's connector's jars"):
        spark_connector.jars(print, cache=tmp_path / "jars", maven=str(tmp_path / "no-such-mvn"))
