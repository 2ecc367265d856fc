"""Offsets that are gone before they were read: named and fatal, or passed over; and what only looks like it."""

from __future__ import annotations

import logging

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.spark.errors import DataLost
from ottla.spark.planning import OffsetRange
from tests.client.scripted_broker import Partition, ScriptedCluster
from tests.spark.scripted_link import TINY, cluster_of, edited, fetcher_of, filled, numbers, read_all, values_of


@pytest.fixture
def script() -> ScriptedCluster:
    return ScriptedCluster(nodes=2)


def delete_before(script: ScriptedCluster, offset: int) -> None:
    partition = script.partition("t")
    partition.log_start = offset
    partition.batches = partition.batches[offset // 2 :]


def test_deleted_records_fail_the_read_and_are_named(script: ScriptedCluster) -> None:
    filled(script)
    delete_before(script, 6)

    with pytest.raises(DataLost, match=r"t-0: offsets 2 to 5 are gone, .*begins at 6.*failOnDataLoss.*new checkpoint"):
        read_all(script, [OffsetRange("t", 0, 2, 10)])


def test_deleted_records_are_passed_over_with_one_warning(
    script: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    filled(script)
    delete_before(script, 6)

    found = read_all(script, [OffsetRange("t", 0, 2, 10)], fail_on_data_loss=False)

    assert found == {("t", 0): numbers(6, 10)}
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "t-0: offsets 2 to 5 are gone" in record.getMessage()


def test_a_range_of_which_nothing_is_left_ends(script: ScriptedCluster) -> None:
    filled(script)
    delete_before(script, 10)

    assert read_all(script, [OffsetRange("t", 0, 2, 8)], fail_on_data_loss=False) == {}


def test_a_log_start_above_the_position_is_a_loss_even_if_the_broker_does_not_refuse(script: ScriptedCluster) -> None:
    filled(script)
    script.partition("t").batches = script.partition("t").batches[3:]
    script.fault(ApiKey.FETCH, edited(log_start_offset=6))

    with pytest.raises(DataLost, match="offsets 2 to 5 are gone"):
        read_all(script, [OffsetRange("t", 0, 2, 10)])


def test_records_that_came_before_they_were_deleted_are_no_loss(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, edited(log_start_offset=6))

    assert read_all(script, [OffsetRange("t", 0, 2, 10)]) == {("t", 0): numbers(2, 10)}


def test_a_log_that_has_become_shorter_fails_the_read(script: ScriptedCluster) -> None:
    filled(script)

    with pytest.raises(DataLost, match="offsets 10 to 19 are gone, because the log ends at 10"):
        read_all(script, [OffsetRange("t", 0, 4, 20)])


@pytest.mark.parametrize("start", [4, 10, 15])
def test_a_log_that_has_become_shorter_is_read_to_its_end(script: ScriptedCluster, start: int) -> None:
    filled(script)

    found = read_all(script, [OffsetRange("t", 0, start, 20)], fail_on_data_loss=False)

    assert found.get(("t", 0), []) == numbers(start, 10)


def test_an_end_of_the_log_that_lags_for_a_moment_is_no_loss(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, *[edited(high_watermark=3, records=b"")] * 3)

    assert read_all(script, [OffsetRange("t", 0, 4, 10)]) == {("t", 0): numbers(4, 10)}


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_topic_that_is_gone_fails_the_read_or_ends_it(script: ScriptedCluster, fail_on_data_loss: bool) -> None:
    filled(script)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 0, 10)], settings=TINY, fail_on_data_loss=fail_on_data_loss)
    pieces = fetcher.pieces()
    found = values_of(next(pieces))
    del script.topics["t"]

    # What was under way before the topic went is still good.
    found += values_of(next(pieces))
    if fail_on_data_loss:
        with pytest.raises(DataLost, match="offsets 4 to 9 are gone, because there is no such partition any more"):
            next(pieces)
    else:
        assert list(pieces) == []
    assert found == numbers(0, 4)


def test_a_topic_that_is_unknown_for_a_moment_is_waited_for(script: ScriptedCluster) -> None:
    filled(script)
    topic = script.topics.pop("t")
    script.at(1_000, lambda: script.topics.update(t=topic))

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 10)}


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_the_records_of_a_topic_created_anew_are_not_taken_for_the_old_ones(
    script: ScriptedCluster, fail_on_data_loss: bool
) -> None:
    filled(script)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 0, 10)], settings=TINY, fail_on_data_loss=fail_on_data_loss)
    pieces = fetcher.pieces()
    found = values_of(next(pieces))
    filled(script, batches=9)

    found += values_of(next(pieces))
    if fail_on_data_loss:
        with pytest.raises(DataLost, match="offsets 4 to 9 are gone, because the topic was deleted and created anew"):
            next(pieces)
    else:
        assert list(pieces) == []
    assert found == numbers(0, 4)


def test_what_an_earlier_task_knew_of_the_topic_is_not_held_against_it(script: ScriptedCluster) -> None:
    cluster = cluster_of(script)
    filled(script)
    read_all(script, [OffsetRange("t", 0, 0, 10)], cluster=cluster)
    filled(script, partitions=3, batches=9)

    found = read_all(script, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 2, 4, 10)], cluster=cluster)

    assert found == {("t", 0): numbers(0, 10), ("t", 2): numbers(4, 10)}


def test_a_partition_that_was_added_is_found_without_waiting(script: ScriptedCluster) -> None:
    cluster = cluster_of(script)
    filled(script)
    read_all(script, [OffsetRange("t", 0, 0, 10)], cluster=cluster)
    script.topics["t"].partitions.append(Partition())
    script.write("t", 1, *numbers(0, 10))

    assert read_all(script, [OffsetRange("t", 1, 0, 10)], cluster=cluster) == {("t", 1): numbers(0, 10)}
    assert script.sleeps_ms == []
