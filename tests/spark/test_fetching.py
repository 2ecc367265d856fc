"""Ranges of offsets from a scripted cluster: every record once and in order, whatever the brokers do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.client.errors_by_code import error_class
from ottla.client.transport import Call, Reply
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import ListOffsetsResponse
from ottla.spark.fetching import BATCH_BYTES_USUAL, GRACE_MS, PARTITION_BYTES_MIN, ReadTimedOut, UnreadableBatch
from ottla.spark.options import FetchSettings
from ottla.spark.planning import OffsetRange
from tests.client.scripted_broker import Fault, ScriptedCluster, lose_answer, lose_request
from tests.spark.scripted_link import TINY, edited, fetcher_of, filled, numbers, read_all, values_of


def fetches(script: ScriptedCluster) -> list[FetchRequest]:
    return [call.message for call in script.calls if isinstance(call.message, FetchRequest)]


def serve_first_only(call: Call, carry_out: Callable[[], Reply]) -> Reply:
    """As a broker does whose batches are larger than what was asked for."""
    reply = carry_out()
    assert isinstance(reply, FetchResponse)
    (topic,) = reply.responses
    first, *others = topic.partitions
    return replace(
        reply, responses=[replace(topic, partitions=[first, *(replace(each, records=b"") for each in others)])]
    )


@pytest.fixture
def script() -> ScriptedCluster:
    return ScriptedCluster(nodes=2)


# --- what is read ---------------------------------------------------------------------------------------


def test_ranges_of_several_topics_and_leaders_are_read_to_their_ends(script: ScriptedCluster) -> None:
    filled(script, "a", partitions=3)
    filled(script, "b", partitions=2)
    ranges = [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 3, 7), OffsetRange("b", 1, 9, 10)]

    found = read_all(script, ranges)

    assert found == {("a", 0): numbers(0, 10), ("a", 1): numbers(3, 7), ("b", 1): numbers(9, 10)}


def test_partitions_of_one_leader_share_a_request(script: ScriptedCluster) -> None:
    filled(script, partitions=4)

    read_all(script, [OffsetRange("t", partition, 0, 10) for partition in range(4)])

    assert len(fetches(script)) == 2, "one for each of the two leaders"


def test_two_ranges_of_one_partition_are_both_read(script: ScriptedCluster) -> None:
    filled(script)

    found = read_all(script, [OffsetRange("t", 0, 0, 3), OffsetRange("t", 0, 5, 9)])

    assert found == {("t", 0): numbers(0, 3) + numbers(5, 9)}


def test_a_range_without_offsets_asks_nobody(script: ScriptedCluster) -> None:
    assert read_all(script, [OffsetRange("t", 0, 4, 4)]) == {}
    assert script.calls == []


def test_batches_larger_than_the_fetch_size_get_through_one_by_one(script: ScriptedCluster) -> None:
    filled(script, partitions=3)

    found = read_all(script, [OffsetRange("t", partition, 1, 10) for partition in range(3)], settings=TINY)

    assert found == {("t", partition): numbers(1, 10) for partition in range(3)}


def test_the_next_request_is_sent_before_an_answer_is_handed_out(script: ScriptedCluster) -> None:
    filled(script)
    fetcher, pipeline = fetcher_of(script, [OffsetRange("t", 0, 0, 10)], settings=TINY)

    pieces = fetcher.pieces()

    assert values_of(next(pieces)) == numbers(0, 2)
    assert [each.topics[0].partitions[0].fetch_offset for each in fetches(script)] == [0, 2]
    assert len(pipeline.under_way) == 1


def test_a_short_range_does_not_ask_for_what_lies_behind_it(script: ScriptedCluster) -> None:
    filled(script, batches=500)

    read_all(script, [OffsetRange("t", 0, 0, 10)])

    assert fetches(script)[0].topics[0].partitions[0].partition_max_bytes == PARTITION_BYTES_MIN


def test_short_ranges_of_large_batches_take_two_requests_and_no_more(script: ScriptedCluster) -> None:
    script.create("t", 20)
    for partition in range(20):
        script.write("t", partition, *[bytes(10_000)] * 10)
    script.fault(ApiKey.FETCH, serve_first_only)

    found = read_all(script, [OffsetRange("t", partition, 0, 10) for partition in range(0, 20, 2)])

    assert found == {("t", partition): [bytes(10_000)] * 10 for partition in range(0, 20, 2)}
    _, second = fetches(script)
    assert {each.partition_max_bytes for each in second.topics[0].partitions} == {BATCH_BYTES_USUAL}


def test_who_stops_early_leaves_no_answer_unread(script: ScriptedCluster) -> None:
    filled(script)
    fetcher, pipeline = fetcher_of(script, [OffsetRange("t", 0, 0, 10)], settings=TINY)
    pieces = fetcher.pieces()
    next(pieces)

    pieces.close()

    assert (pipeline.under_way, pipeline.abandoned) == ([], 1)


def test_brokers_that_know_no_topic_ids_are_asked_by_name(script: ScriptedCluster) -> None:
    script.versions[ApiKey.FETCH] = (4, 12)
    filled(script)

    assert read_all(script, [OffsetRange("t", 0, 2, 8)]) == {("t", 0): numbers(2, 8)}
    assert fetches(script)[0].topics[0].topic == "t"


# --- where nothing is ------------------------------------------------------------------------------------


def test_a_hole_before_the_range_ends_is_no_loss(script: ScriptedCluster) -> None:
    filled(script)
    del script.partition("t").batches[1:3]

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 2) + numbers(6, 10)}


def test_a_range_whose_end_lies_in_a_hole_ends_at_the_batch_behind_it(script: ScriptedCluster) -> None:
    filled(script)
    del script.partition("t").batches[1:3]

    assert read_all(script, [OffsetRange("t", 0, 0, 5)], settings=TINY) == {("t", 0): numbers(0, 2)}


def test_a_compacted_tail_ends_the_range_when_the_broker_stays_with_it(script: ScriptedCluster) -> None:
    filled(script, partitions=3)
    for partition in (0, 2):
        del script.partition("t", partition).batches[2:]

    found = read_all(script, [OffsetRange("t", partition, 0, 10) for partition in range(3)])

    assert found == {("t", 0): numbers(0, 4), ("t", 1): numbers(0, 10), ("t", 2): numbers(0, 4)}
    assert GRACE_MS <= sum(script.sleeps_ms) < 3 * GRACE_MS


def test_empty_answers_that_come_slowly_are_asked_for_again_all_the_same(script: ScriptedCluster) -> None:
    filled(script)
    empty = edited(records=b"")

    def late(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        script.pass_time(2 * GRACE_MS)
        return empty(call, carry_out)

    script.fault(ApiKey.FETCH, late, late)

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 10)}


def test_one_empty_answer_does_not_end_a_range(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, edited(records=b""))

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 10)}


def local_from(offset: int) -> Fault:
    """As a broker answers that has what is older in other storage."""

    def fault(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        reply = carry_out()
        assert isinstance(reply, ListOffsetsResponse)
        (topic,) = reply.topics
        return replace(reply, topics=[replace(topic, partitions=[replace(topic.partitions[0], offset=offset)])])

    return fault


def test_records_in_other_storage_are_waited_for(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, *[edited(records=b"")] * 20)
    script.fault(ApiKey.LIST_OFFSETS, *[local_from(8)] * 20)

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 10)}
    assert sum(script.sleeps_ms) > 2 * GRACE_MS


def test_records_in_other_storage_that_do_not_come_are_no_end_of_the_range(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, *[edited(records=b"")] * 1_000)
    script.fault(ApiKey.LIST_OFFSETS, *[local_from(8)] * 1_000)

    with pytest.raises(ReadTimedOut, match=r"t-0: offset 0 .*nothing from offset 0 on.*pollTimeoutMs"):
        read_all(script, [OffsetRange("t", 0, 0, 10)])


def test_brokers_that_know_of_no_other_storage_are_not_asked_about_it(script: ScriptedCluster) -> None:
    script.versions[ApiKey.LIST_OFFSETS] = (1, 7)
    filled(script)
    del script.partition("t").batches[2:]

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 4)}
    assert script.count(ApiKey.LIST_OFFSETS) == 0


def test_an_empty_answer_beside_others_is_asked_again_alone(script: ScriptedCluster) -> None:
    filled(script, partitions=3)
    script.fault(ApiKey.FETCH, edited(records=b""))

    found = read_all(script, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 2, 0, 10)])

    assert found == {("t", 0): numbers(0, 10), ("t", 2): numbers(0, 10)}


def test_an_open_transaction_is_waited_for(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, *[edited(last_stable_offset=4, records=b"")] * 5)

    found = read_all(script, [OffsetRange("t", 0, 4, 10)], committed_only=True)

    assert found == {("t", 0): numbers(4, 10)}
    assert len(script.sleeps_ms) == 5


def test_a_transaction_that_stays_open_is_named_when_the_time_is_over(script: ScriptedCluster) -> None:
    filled(script)
    script.fault(ApiKey.FETCH, *[edited(last_stable_offset=4, records=b"")] * 1_000)

    with pytest.raises(ReadTimedOut, match=r"t-0: offset 4 .*offset 4 only, where a transaction is open"):
        read_all(script, [OffsetRange("t", 0, 4, 10)], committed_only=True)


# --- brokers that come and go -----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_a_connection_that_breaks_costs_no_record(script: ScriptedCluster, fault: Fault) -> None:
    filled(script, partitions=2)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)], settings=TINY)
    found: dict[int, list[bytes | None]] = {0: [], 1: []}

    for piece in fetcher.pieces():
        found[piece.partition] += values_of(piece)
        script.fault(ApiKey.FETCH, fault)

    assert found == {0: numbers(0, 10), 1: numbers(0, 10)}


def test_a_leader_that_moves_is_followed(script: ScriptedCluster) -> None:
    filled(script)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 0, 10)], settings=TINY)
    partition = script.partition("t")
    found: list[bytes | None] = []

    for piece in fetcher.pieces():
        found += values_of(piece)
        partition.leader = 3 - partition.leader
        partition.leader_epoch += 1

    assert found == numbers(0, 10)


def test_a_leader_that_moves_while_its_answer_is_on_the_way_gives_nothing_twice(script: ScriptedCluster) -> None:
    filled(script, partitions=2)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 10)], settings=TINY)
    found: dict[int, list[bytes | None]] = {0: [], 1: []}

    for piece in fetcher.pieces():
        found[piece.partition] += values_of(piece)
        for partition in script.topics["t"].partitions:
            partition.leader = 3 - partition.leader
        # Long enough for who was refused to ask again, and to hear of all leaders, before the other answer is read.
        script.pass_time(5_000)

    assert found == {0: numbers(0, 10), 1: numbers(0, 10)}


def test_a_broker_that_is_down_is_waited_for(script: ScriptedCluster) -> None:
    filled(script, partitions=2)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 1, 0, 10)], settings=TINY)
    found: list[bytes | None] = []

    for piece in fetcher.pieces():
        found += values_of(piece)
        script.down = {1, 2}
        script.at(20_000, script.down.clear)

    assert found == numbers(0, 10)


def test_a_cluster_that_stays_away_is_given_up_with_the_place_and_the_option(script: ScriptedCluster) -> None:
    filled(script)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 3, 10)], settings=TINY)
    pieces = fetcher.pieces()
    next(pieces)
    next(pieces)
    script.down = {1, 2}
    started_ms = script.clock.now_ms()

    with pytest.raises(ReadTimedOut, match=r"t-0: offset 8 .*connection refused.*kafkaConsumer\.pollTimeoutMs"):
        list(pieces)

    assert 60_000 <= script.clock.now_ms() - started_ms < 70_000


def test_the_time_that_the_caller_takes_does_not_count(script: ScriptedCluster) -> None:
    filled(script)
    fetcher, _ = fetcher_of(script, [OffsetRange("t", 0, 0, 10)], settings=TINY)
    found: list[bytes | None] = []

    for piece in fetcher.pieces():
        found += values_of(piece)
        script.fault(ApiKey.FETCH, lose_answer)
        script.pass_time(600_000)

    assert found == numbers(0, 10)


def test_a_partition_that_has_no_leader_for_a_while_is_waited_for(script: ScriptedCluster) -> None:
    filled(script)
    script.partition("t").leader = -1
    script.at(5_000, lambda: setattr(script.partition("t"), "leader", 2))

    assert read_all(script, [OffsetRange("t", 0, 0, 10)]) == {("t", 0): numbers(0, 10)}


def test_a_refusal_that_will_not_pass_is_raised_at_once(script: ScriptedCluster) -> None:
    filled(script)
    script.partition("t").refusals.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(error_class(ErrorCode.TOPIC_AUTHORIZATION_FAILED), match="t-0"):
        read_all(script, [OffsetRange("t", 0, 0, 10)])


def test_a_broker_that_cuts_a_large_batch_is_asked_for_all_of_it(script: ScriptedCluster) -> None:
    script.create("t")
    script.write("t", 0, bytes(200_000))
    whole = bytes(script.partition("t").batches[0])

    def cut(call: Call, carry_out: object) -> Reply:
        assert isinstance(call.message, FetchRequest)
        room = call.message.topics[0].partitions[0].partition_max_bytes
        data = PartitionData(partition_index=0, high_watermark=1, log_start_offset=0, records=whole[:room])
        topic = FetchableTopicResponse(topic_id=call.message.topics[0].topic_id, partitions=[data])
        return FetchResponse(responses=[topic])

    script.fault(ApiKey.FETCH, *[cut] * 100)

    assert read_all(script, [OffsetRange("t", 0, 0, 1)]) == {("t", 0): [bytes(200_000)]}
    assert len(fetches(script)) == 2


def test_bytes_that_are_no_batch_are_refused_with_their_place(script: ScriptedCluster) -> None:
    filled(script)
    good, bad = (bytes(batch) for batch in script.partition("t").batches[1:3])
    bad = bad[:16] + b"\1" + bad[17:]
    script.fault(ApiKey.FETCH, edited(records=good + bad), edited(records=bad))

    with pytest.raises(UnreadableBatch, match=r"t-0: the record batch at offset 4 .*magic 1"):
        read_all(script, [OffsetRange("t", 0, 2, 10)])


# --- everything at once -----------------------------------------------------------------------------------

TROUBLES = ("lose_request", "lose_answer", "move", "down", "stop", "lag", "wait")


@given(
    troubles=st.lists(st.tuples(st.sampled_from(TROUBLES), st.integers(0, 2)), max_size=30),
    starts=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    sizes=st.sampled_from([1, 200, 500, 8 << 20]),
)
def test_whatever_happens_every_record_comes_once_and_in_order(
    troubles: list[tuple[str, int]], starts: list[int], sizes: int
) -> None:
    script = ScriptedCluster(nodes=2)
    filled(script, partitions=3, batches=10)
    ranges = [OffsetRange("t", partition, start, 19) for partition, start in enumerate(starts)]
    settings = FetchSettings(request_bytes_max=sizes, partition_bytes_max=sizes)
    fetcher, _ = fetcher_of(script, ranges, settings=settings)
    found: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
    left = list(troubles)

    for piece in fetcher.pieces():
        found[piece.partition] += values_of(piece)
        if left:
            _cause(script, *left.pop())

    assert found == {partition: numbers(start, 19) for partition, start in enumerate(starts)}


def _cause(script: ScriptedCluster, trouble: str, number: int) -> None:
    partition = script.partition("t", number)
    if trouble == "move":
        partition.leader = 3 - partition.leader
        partition.leader_epoch += 1
    elif trouble == "down":
        script.down.add(partition.leader)
        script.at(7_000, script.down.clear)
    elif trouble == "stop":
        partition.refusals.append(ErrorCode.KAFKA_STORAGE_ERROR)
    elif trouble == "wait":
        script.pass_time(5_000)
    elif trouble == "lag":
        script.fault(ApiKey.FETCH, edited(high_watermark=1, records=b""))
    else:
        script.fault(ApiKey.FETCH, lose_answer if trouble == "lose_answer" else lose_request)
