"""How far a stream reads from batch to batch, with real brokers and without Spark."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

import ottla
from ottla.client.transport import run_now
from ottla.client.values import NewRecord, TopicPartition
from ottla.clock import SystemClock
from ottla.errors import OttlaError, TopicExists
from ottla.spark.errors import DataLost, InvalidOption
from ottla.spark.news import wait_for_news
from ottla.spark.offsets import Offsets
from ottla.spark.options import read_options
from ottla.spark.planning import OffsetRange
from ottla.spark.stream_progress import ENDS_AGE_MAX_MS, FIRST_CONTACT_MS, OUTAGE_PAUSE_MS, StreamProgress
from ottla.spark.topics import PartitionWatch, watch
from tests.client.scripted_broker import ScriptedCluster
from tests.spark.brokers import Broker
from tests.spark.scripted_link import cluster_of, filled

pytestmark = pytest.mark.slow

Stream = Callable[..., StreamProgress]


@pytest.fixture
def watches() -> Iterator[list[PartitionWatch]]:
    made: list[PartitionWatch] = []
    yield made
    for each in made:
        each.close()


@pytest.fixture
def stream(broker: Broker, watches: list[PartitionWatch]) -> Stream:
    """Makes the progress of a stream with these options, as after a start of its driver."""
    return lambda **options: _stream(broker, watches, **options)


def _stream(broker: Broker, watches: list[PartitionWatch], **options: object) -> StreamProgress:
    chosen = read_options(broker.options(**{"startingOffsets": "earliest", **options}), streaming=True)
    watches.append(watch(chosen))
    return StreamProgress(chosen, watches[-1])


def _scripted(script: ScriptedCluster, **options: str) -> StreamProgress:
    """The same for a topic `t` of a cluster that does as it is told."""
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "startingOffsets": "earliest", **options}
    chosen = read_options(given, streaming=True)
    return StreamProgress(chosen, PartitionWatch(cluster_of(script), chosen, clock=SystemClock()))


def at(topic: str, *offsets: int) -> Offsets:
    """These offsets in the first partitions of a topic."""
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(offsets)}


def _looks(progress: StreamProgress, start: Offsets, *, times: int) -> set[tuple[tuple[TopicPartition, int], ...]]:
    """The ends other than its start that a stream finds in so many looks."""
    found = (progress.next_end(start, within_limits=False) for _ in range(times))
    return {tuple(sorted(end.items())) for end in found if end != start}


def made_anew(broker: Broker, topic: str, *, partitions: int = 1) -> None:
    """Delete a topic and make it again; a deletion may take its time."""
    admin = broker.client.admin()
    admin.delete_topic(topic)
    for _ in range(200):
        try:
            admin.create_topic(topic, partitions=partitions)
            return
        except TopicExists:
            continue
    raise AssertionError(f"{topic} is not deleted")


# --- what is new ---------------------------------------------------------------------------------


def test_a_batch_ends_where_the_partitions_end(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a", "b", "c"], partition=1)
    progress = stream(subscribe=topic)
    assert progress.initial() == at(topic, 0, 0)
    assert progress.next_end(at(topic, 0, 0), within_limits=False) == at(topic, 0, 3)


def test_without_anything_new_the_end_is_the_start(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"])
    assert stream(subscribe=topic).next_end(at(topic, 1), within_limits=False) == at(topic, 1)


def test_a_stream_that_waits_hears_of_a_record_at_once(broker: Broker, watches: list[PartitionWatch]) -> None:
    topic = broker.topic(2)
    _stream(broker, watches, subscribe=topic).initial()
    coming = threading.Timer(0.2, broker.produce, (topic, ["a", "b"]), {"partition": 1})
    coming.start()
    # Far longer than the test may take, if nobody woke it.
    news = run_now(wait_for_news(watches[-1].cluster, at(topic, 0, 0), isolation=0, wait_ms=600_000))
    coming.join()
    assert news == {TopicPartition(topic, 1): 2}


def test_records_of_an_open_transaction_are_no_news_to_readers_of_committed_ones(
    broker: Broker, stream: Stream
) -> None:
    topic = broker.topic(1)
    progress = stream(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    with broker.client.producer(transactional_id=f"open-{topic}") as producer:
        producer.begin()
        producer.send_batch(topic, [NewRecord(b"a")])
        assert progress.next_end(at(topic, 0), within_limits=False) == at(topic, 0)
        producer.commit()
    assert progress.next_end(at(topic, 0), within_limits=False) == at(topic, 2)


def test_a_transaction_that_is_open_before_the_start_is_no_loss(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    with broker.client.producer(transactional_id=f"open-{topic}") as producer:
        producer.begin()
        producer.send_batch(topic, [NewRecord(b"a"), NewRecord(b"b")])
        # As after a change from uncommitted to committed reading with one checkpoint.
        progress = stream(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        assert progress.next_end(at(topic, 2), within_limits=False) == at(topic, 2)
        producer.abort()


def test_new_partitions_are_read_from_their_beginning(broker: Broker, watches: list[PartitionWatch]) -> None:
    topic = broker.topic(1)
    progress = _stream(broker, watches, subscribe=topic)
    broker.client.admin().add_partitions(topic, new_total=2)
    broker.produce(topic, ["a", "b"], partition=1)
    end = progress.next_end(at(topic, 0), within_limits=False)
    assert end == at(topic, 0, 2)
    assert progress.ranges(at(topic, 0), end) == [OffsetRange(topic, 1, 0, 2)]


def test_a_topic_that_begins_to_match_a_pattern_is_read_from_its_beginning(broker: Broker, stream: Stream) -> None:
    stem = broker.topic(stem="later")
    progress = stream(subscribePattern=f"{stem}-.*")
    assert progress.initial() == {}
    topic = broker.topic(stem=f"{stem}-x")
    broker.produce(topic, ["a"])
    end = next_different_end(progress, {})
    assert (end, progress.ranges({}, end)) == (at(topic, 1), [OffsetRange(topic, 0, 0, 1)])


# --- limits --------------------------------------------------------------------------------------


def test_a_batch_takes_no_more_than_its_share_of_records(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a"] * 30, partition=0)
    broker.produce(topic, ["b"] * 10, partition=1)
    progress = stream(subscribe=topic, maxOffsetsPerTrigger=20)
    assert progress.next_end(at(topic, 0, 0), within_limits=True) == at(topic, 15, 5)


def test_a_stream_that_is_far_behind_does_not_ask_for_every_batch() -> None:
    script = ScriptedCluster()
    filled(script, batches=50)
    progress = _scripted(script, maxOffsetsPerTrigger="30")
    first = progress.next_end(progress.initial(), within_limits=True)
    asked = len(script.calls)
    second = progress.next_end(first, within_limits=True)
    assert (first, second, len(script.calls)) == (at("t", 30), at("t", 60), asked)
    script.clock.advance(ENDS_AGE_MAX_MS)
    third = progress.next_end(second, within_limits=True)
    assert (third, len(script.calls) > asked) == (at("t", 90), True)
    # What is left does not fill a batch, so that it is worth to hear of more.
    script.write("t", 0, *(b"new" for _ in range(20)))
    assert progress.next_end(third, within_limits=True) == at("t", 120)


def test_a_batch_without_limits_takes_all(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 30)
    assert stream(subscribe=topic, maxOffsetsPerTrigger=20).next_end(at(topic, 0), within_limits=False) == at(topic, 30)


def test_a_batch_takes_about_as_many_bytes_as_it_may(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    for _ in range(10):
        broker.produce(topic, [b"x" * 1000] * 10)
    end = stream(subscribe=topic, maxBytesPerTrigger="20k").next_end(at(topic, 0), within_limits=True)
    assert 15 <= end[TopicPartition(topic, 0)] <= 20


def test_a_batch_is_held_back_until_there_is_enough(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    progress = stream(subscribe=topic, minOffsetsPerTrigger=5)
    broker.produce(topic, ["a"])
    # The first one of a query does not wait.
    assert progress.next_end(at(topic, 0), within_limits=True) == at(topic, 1)
    broker.produce(topic, ["b"] * 4)
    assert progress.next_end(at(topic, 1), within_limits=True) == at(topic, 1)
    broker.produce(topic, ["c"])
    assert progress.next_end(at(topic, 1), within_limits=True) == at(topic, 6)


# --- AvailableNow --------------------------------------------------------------------------------


def test_a_run_over_what_is_there_now_ends_with_that(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a", "b"])
    progress = stream(subscribe=topic)
    progress.fix_target()
    broker.produce(topic, ["c"])
    assert progress.next_end(at(topic, 0), within_limits=True) == at(topic, 2)
    assert progress.next_end(at(topic, 2), within_limits=True) == at(topic, 2)


def test_a_run_from_latest_reads_nothing_that_came_after_the_target(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    progress = stream(subscribe=topic, startingOffsets="latest")
    progress.fix_target()
    broker.produce(topic, ["a"])
    start = progress.initial()
    assert progress.next_end(start, within_limits=True) == start


def test_a_run_over_what_is_there_now_does_not_wait_for_more(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    progress = stream(subscribe=topic, minOffsetsPerTrigger=100, maxOffsetsPerTrigger=200)
    broker.produce(topic, ["a", "b"])
    progress.fix_target()
    assert progress.next_end(at(topic, 1), within_limits=True) == at(topic, 2)
    assert progress.next_end(at(topic, 0), within_limits=True) == at(topic, 2)


# --- losses --------------------------------------------------------------------------------------


def test_a_partition_that_is_gone_is_a_loss(broker: Broker, stream: Stream) -> None:
    topic, other = broker.topic(1), broker.topic(1)
    progress = stream(subscribe=f"{topic},{other}")
    start = progress.initial()
    broker.client.admin().delete_topic(topic)
    with pytest.raises(DataLost, match=f"{topic}-0 from offset 0 on .*failOnDataLoss"):
        next_different_end(progress, start)


def test_a_stream_that_may_lose_records_goes_on_without_a_partition_that_is_gone(
    broker: Broker, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other = broker.topic(1), broker.topic(1)
    progress = stream(subscribe=f"{topic},{other}", failOnDataLoss=False)
    start = progress.initial()
    broker.client.admin().delete_topic(topic)
    with caplog.at_level(logging.WARNING):
        assert next_different_end(progress, start) == at(other, 0)
    assert f"{topic}-0 from offset 0 on" in caplog.text


def test_a_topic_that_ends_before_the_start_is_a_loss(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 3)
    with pytest.raises(DataLost, match=f"{topic}-0 offsets 3 to 9"):
        stream(subscribe=topic).next_end(at(topic, 10), within_limits=False)


def test_a_stream_that_may_lose_records_reads_a_shorter_topic_from_its_beginning(
    broker: Broker, stream: Stream
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 3)
    progress = stream(subscribe=topic, failOnDataLoss=False)
    end = progress.next_end(at(topic, 10), within_limits=False)
    assert (end, progress.ranges(at(topic, 10), end)) == (at(topic, 3), [OffsetRange(topic, 0, 0, 3)])


def test_a_topic_that_was_made_anew_is_a_loss_even_if_it_is_longer_by_now(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 3)
    progress = stream(subscribe=topic)
    start = progress.next_end(progress.initial(), within_limits=False)
    made_anew(broker, topic)
    broker.produce(topic, ["b"] * 5)
    with pytest.raises(DataLost, match="made anew"):
        next_different_end(progress, start)


def test_a_stream_that_may_lose_records_reads_a_topic_that_was_made_anew_as_a_whole(
    broker: Broker, stream: Stream
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 3)
    progress = stream(subscribe=topic, failOnDataLoss=False)
    start = progress.next_end(progress.initial(), within_limits=False)
    made_anew(broker, topic)
    broker.produce(topic, ["b"] * 5)
    read: list[OffsetRange] = []
    for _ in range(2):
        end = next_different_end(progress, start)
        read += progress.ranges(start, end)
        start = end
    assert read == [OffsetRange(topic, 0, 0, 5)]


def test_a_topic_that_was_made_anew_is_read_as_a_whole_also_where_batches_wait_for_more(
    broker: Broker, stream: Stream
) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 3)
    progress = stream(subscribe=topic, failOnDataLoss=False, minOffsetsPerTrigger=10, maxTriggerDelay="1h")
    start = progress.next_end(progress.initial(), within_limits=True)
    made_anew(broker, topic)
    broker.produce(topic, ["b"] * 40)
    read: list[OffsetRange] = []
    for _ in range(2):
        end = next_different_end(progress, start, within_limits=True)
        read += progress.ranges(start, end)
        start = end
    assert read == [OffsetRange(topic, 0, 0, 40)]


def test_a_log_that_was_cut_off_is_a_loss_and_goes_on_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    script = ScriptedCluster()
    filled(script, batches=50)
    progress = _scripted(script, failOnDataLoss="false")
    start = progress.next_end(progress.initial(), within_limits=False)
    # As after an election of a leader that was behind: the same topic, without its last batch.
    script.partition("t").batches.pop()
    script.partition("t").end = 98
    end = progress.next_end(start, within_limits=False)
    assert (end, progress.ranges(start, end)) == (at("t", 98), [])
    assert "t-0 offsets 98 to 99 (the log was cut off at 98)" in caplog.text


# --- a first batch that is read again after a restart ----------------------------------------------------


def test_a_partition_that_came_before_the_restart_is_not_in_the_first_batch(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    broker.produce(topic, ["a"] * 3)
    broker.client.admin().add_partitions(topic, new_total=2)
    again = stream(subscribe=topic)
    assert again.ranges(again.initial(), at(topic, 3)) == [OffsetRange(topic, 0, 0, 3)]


def test_offsets_that_leave_out_a_new_partition_do_not_refuse_the_first_batch_again(
    broker: Broker, stream: Stream
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a"] * 3, partition=0)
    again = stream(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    start = again.initial()
    assert again.ranges(start, at(topic, 3)) == [OffsetRange(topic, 0, 1, 3)]
    with pytest.raises(InvalidOption, match=f"startingOffsets: it leaves out {topic}-1"):
        again.ranges(start, at(topic, 3, 1))
    with pytest.raises(InvalidOption, match=f"startingOffsets: it leaves out {topic}-1"):
        again.next_end(start, within_limits=False)


def test_a_time_that_fits_no_record_of_a_new_partition_does_not_refuse_the_first_batch_again(
    broker: Broker, stream: Stream
) -> None:
    topic = broker.topic(2)
    broker.produce(topic, ["a"] * 3, partition=0)
    again = stream(subscribe=topic, startingTimestamp=1_000)
    start = again.initial()
    assert again.ranges(start, at(topic, 3)) == [OffsetRange(topic, 0, 0, 3)]
    with pytest.raises(InvalidOption, match=f"startingTimestamp: no record is that young in {topic}-1"):
        again.next_end(start, within_limits=False)


def test_a_partition_of_the_first_batch_that_is_gone_since_is_a_loss(broker: Broker, stream: Stream) -> None:
    topic, other = broker.topic(1), broker.topic(1)
    broker.produce(other, ["a"])
    again = stream(subscribePattern=f"^{other}$")
    with pytest.raises(DataLost, match=f"{topic}-7 offsets 0 to 2 .*is gone"):
        again.ranges(again.initial(), at(other, 1) | {TopicPartition(topic, 7): 3})


def next_different_end(progress: StreamProgress, start: Offsets, *, within_limits: bool = False) -> Offsets:
    """The first end that is not the start: what changed shows when the metadata is looked at again."""
    for _ in range(100):
        end = progress.next_end(start, within_limits=within_limits)
        if end != start:
            return end
    raise AssertionError(f"nothing changes at {start}")


# --- groups --------------------------------------------------------------------------------------


def test_what_was_processed_shows_as_the_lag_of_the_group(broker: Broker, stream: Stream) -> None:
    topic = broker.topic(1)
    group = f"group-{topic}"
    broker.produce(topic, ["a"] * 5)
    progress = stream(subscribe=topic, **{"kafka.group.id": group})
    progress.next_end(at(topic, 2), within_limits=False)
    assert lag(broker, group) == {TopicPartition(topic, 0): 3}
    progress.batch_noted(at(topic, 5))
    assert lag(broker, group) == {TopicPartition(topic, 0): 0}


def lag(broker: Broker, group: str) -> dict[TopicPartition, int | None]:
    return {key: each.lag for key, each in broker.client.admin().group_lag(group).items()}


def test_a_group_with_members_costs_the_stream_nothing_but_a_line_in_the_log(
    broker: Broker, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.topic(1)
    group = f"group-{topic}"
    broker.produce(topic, ["a"] * 5)
    progress = stream(subscribe=topic, **{"kafka.group.id": group})
    with ottla.connect(broker.bootstrap) as client, client.consumer(group=group) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(1_000):
            continue
        with caplog.at_level(logging.WARNING, logger="ottla.spark"):
            assert progress.next_end(at(topic, 0), within_limits=False) == at(topic, 5)
            progress.batch_noted(at(topic, 5))
    assert caplog.text.count("kafka.group.id a name that no consumer uses") == 1


# --- brokers that are away -----------------------------------------------------------------------


def test_a_broker_that_is_away_for_a_while_is_waited_for(
    own_ottla: Broker, watches: list[PartitionWatch], caplog: pytest.LogCaptureFixture
) -> None:
    topic = own_ottla.topic(1)
    progress = _stream(own_ottla, watches, subscribe=topic)
    start = progress.initial()
    assert own_ottla.server is not None
    own_ottla.server.kill()
    with caplog.at_level(logging.WARNING, logger="ottla.spark"):
        for _ in range(3):
            assert progress.next_end(start, within_limits=False) == start
    assert caplog.text.count("the stream waits for them") == 1
    own_ottla.server.start()
    own_ottla.produce(topic, ["a"])
    assert next_different_end(progress, start) == at(topic, 1)


def test_a_broker_that_never_answered_ends_the_query(own_ottla: Broker, watches: list[PartitionWatch]) -> None:
    topic = own_ottla.topic(1)
    progress = _stream(own_ottla, watches, subscribe=topic)
    assert own_ottla.server is not None
    own_ottla.server.kill()
    with pytest.raises(OttlaError, match="no broker can be reached"):
        # Told as no news at first: it may be about to start.
        assert _looks(progress, at(topic, 0), times=3 * FIRST_CONTACT_MS // OUTAGE_PAUSE_MS) == set()


def test_a_query_that_starts_while_the_broker_restarts_waits_for_it(
    own_ottla: Broker, watches: list[PartitionWatch]
) -> None:
    topic = own_ottla.topic(1)
    own_ottla.produce(topic, [b"a", b"b"])
    assert own_ottla.server is not None
    own_ottla.server.kill()
    progress = _stream(own_ottla, watches, subscribe=topic)
    starting = threading.Thread(target=progress.fix_target)
    starting.start()
    own_ottla.server.start()
    starting.join()
    assert progress.next_end(at(topic, 0), within_limits=False) == at(topic, 2)
