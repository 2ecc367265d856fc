"""Rounds of sending: order and exactly one copy under every fault, and an end to every wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pytest

from ottla.client.accumulator import Batch
from ottla.client.errors import DeliveryTimedOut, NetworkException, TopicNotFound
from ottla.client.transport import Call, Reply
from ottla.client.values import NO_OFFSET
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRecord, RecordTooLarge, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.produce import ProduceRequest
from ottla.records.batch import check
from tests.client.bench import Bench
from tests.client.scripted_broker import ScriptedCluster, lose_answer, lose_request


def _values(*numbers: int) -> list[bytes | None]:
    return [b"%d" % number for number in numbers]


def _produced(cluster: ScriptedCluster) -> list[Call]:
    return [call for call in cluster.calls if call.api_key is ApiKey.PRODUCE]


def test_a_batch_is_written_once_and_its_offset_known(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)

    first, second = bench.put(b"1"), bench.put(b"2")
    bench.settle()

    assert (first.base_offset, second.base_offset) == (0, 1)
    assert cluster.partition("t").values() == _values(1, 2)


@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_a_broken_connection_neither_loses_nor_doubles_a_record(
    cluster: ScriptedCluster, fault: Callable[[Call, Callable[[], Reply]], Reply]
) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    cluster.fault(ApiKey.PRODUCE, fault)

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert batch.base_offset == 0
    assert cluster.partition("t").values() == _values(1)


def test_a_window_of_five_that_is_lost_in_the_middle_stays_in_order(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    pass_on = lambda call, carry_out: carry_out()  # noqa: E731 - reads as one line of the script
    cluster.fault(ApiKey.PRODUCE, pass_on, lose_request, pass_on, lose_answer)

    batches = [bench.put(b"%d" % number) for number in range(8)]
    bench.settle()

    assert [batch.error for batch in batches] == [None] * 8
    assert cluster.partition("t").values()[1:] == _values(*range(8))
    assert [batch.base_offset for batch in batches] == list(range(1, 9))


def test_without_idempotence_one_batch_per_partition_is_under_way(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster, acks=1)
    for number in range(4):
        bench.put(b"%d" % number)

    bench.round()

    assert len(_produced(cluster)) == 1


def test_an_idempotent_producer_has_up_to_five_under_way(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    before = len(_produced(cluster))
    for number in range(8):
        bench.put(b"%d" % number)

    bench.round()

    assert len(_produced(cluster)) - before == 5


def test_the_first_batch_goes_alone_until_the_broker_knows_the_producer(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    for number in range(4):
        bench.put(b"%d" % number)

    bench.round()

    assert len(_produced(cluster)) == 1


def test_partitions_of_one_leader_share_a_request(cluster: ScriptedCluster) -> None:
    cluster.create("t", 3)
    bench = Bench(cluster)
    for partition in range(3):
        bench.put(b"x", partition=partition)

    bench.round()

    assert len(_produced(cluster)) == 1
    assert [cluster.partition("t", each).values() for each in range(3)] == [[b"x"]] * 3


def test_a_refusal_that_will_not_pass_is_the_batchs_error(cluster: ScriptedCluster) -> None:
    cluster.create("t").partitions[0].refusals.append(ErrorCode.MESSAGE_TOO_LARGE)
    bench = Bench(cluster)

    batch = bench.put(b"1")
    bench.settle()

    assert isinstance(batch.error, RecordTooLarge)
    assert cluster.partition("t").values() == []


def test_after_a_refused_batch_the_ones_behind_it_are_written_in_order(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    cluster.partition("t").refusals.extend([ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE])

    batches = [bench.put(b"%d" % number) for number in range(5)]
    bench.settle()

    assert [batch.error is None for batch in batches] == [True, False, True, True, True]
    assert cluster.partition("t").values()[1:] == _values(0, 2, 3, 4)


def test_a_leader_that_moved_is_found_by_fresh_metadata() -> None:
    cluster = ScriptedCluster(nodes=2)
    partition = cluster.create("t").partitions[0]
    bench = Bench(cluster)
    bench.warm()
    partition.leader, partition.leader_epoch = 2, 1

    batch = bench.put(b"1")
    bench.settle()

    assert batch.base_offset == 1
    assert _produced(cluster)[-1].address == cluster.nodes[2]


def test_a_broker_that_is_away_for_a_while_is_waited_for(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    cluster.down.add(1)
    cluster.at(5_000, cluster.down.clear)

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert cluster.partition("t").values() == [b"warm", b"1"]


def test_a_broker_that_stays_away_ends_in_a_delivery_timeout(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster, delivery_timeout_ms=10_000)
    bench.warm()
    cluster.down.add(1)
    started_ms = cluster.clock.now_ms()

    batch = bench.put(b"1")
    bench.settle()

    assert isinstance(batch.error, DeliveryTimedOut)
    assert cluster.clock.now_ms() - started_ms <= 10_000
    assert "no broker can be reached" in str(batch.error)


def test_retries_end_when_their_number_is_used_up(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster, retries=2)
    cluster.fault(ApiKey.PRODUCE, *[lose_request] * 5)

    batch = bench.put(b"1")
    bench.settle()

    assert isinstance(batch.error, NetworkException)
    assert len(_produced(cluster)) == 3


def test_no_retry_at_all_when_none_is_allowed(cluster: ScriptedCluster) -> None:
    cluster.create("t").partitions[0].refusals.append(ErrorCode.NOT_ENOUGH_REPLICAS)
    bench = Bench(cluster, retries=0)

    batch = bench.put(b"1")
    bench.settle()

    assert isinstance(batch.error, Refusal)
    assert batch.error.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_what_was_sent_behind_a_given_up_batch_is_given_up_too(cluster: ScriptedCluster) -> None:
    """Under a new identity it could be written twice."""
    cluster.create("t")
    bench = Bench(cluster, retries=0)
    bench.warm()
    cluster.fault(ApiKey.PRODUCE, lose_answer, lose_answer)

    first, second = bench.put(b"1"), bench.put(b"2")
    bench.settle()

    assert isinstance(first.error, NetworkException)
    assert isinstance(second.error, NetworkException)
    assert cluster.partition("t").values() == [b"warm", b"1", b"2"]


def test_after_a_given_up_batch_a_new_identity_goes_on(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster, retries=0)
    bench.warm()
    cluster.fault(ApiKey.PRODUCE, lose_answer)
    bench.put(b"1")
    bench.settle()

    batch = bench.put(b"2")
    bench.settle()

    assert batch.error is None
    assert cluster.partition("t").values() == [b"warm", b"1", b"2"]
    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 2


def test_other_partitions_keep_their_numbers_when_one_starts_over(cluster: ScriptedCluster) -> None:
    cluster.create("t", 2)
    bench = Bench(cluster, retries=0)
    bench.put(b"0", partition=0)
    bench.put(b"0", partition=1)
    bench.settle()
    cluster.fault(ApiKey.PRODUCE, lose_answer)
    bench.put(b"1", partition=0)
    bench.settle()
    bench.put(b"2", partition=0)
    bench.put(b"1", partition=1)
    bench.settle()

    producers = {check(batch).producer_id for batch in cluster.partition("t", 1).batches}
    assert len(producers) == 1
    assert cluster.partition("t", 1).values() == _values(0, 1)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH],
)
def test_a_broker_that_lost_track_gets_the_batch_under_a_new_identity(
    cluster: ScriptedCluster, code: ErrorCode
) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    cluster.partition("t").refusals.append(code)

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 2
    assert cluster.partition("t").values() == [b"warm", b"1"]
    last = check(cluster.partition("t").batches[-1])
    assert (last.producer_id, last.base_sequence) == (cluster.next_producer_id, 0)


def test_a_repeat_that_the_broker_cannot_place_is_a_success_without_an_offset(cluster: ScriptedCluster) -> None:
    cluster.create("t").partitions[0].refusals.append(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    bench = Bench(cluster)

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert batch.position(0).offset == NO_OFFSET


def test_a_topic_created_anew_is_written_to_by_its_new_id(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    cluster.create("t")

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert cluster.partition("t").values() == [b"1"]


def test_a_topic_that_was_deleted_is_named_soon(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster, topic_wait_ms=1_000)
    bench.warm()
    del cluster.topics["t"]
    started_ms = cluster.clock.now_ms()

    batch = bench.put(b"1")
    bench.settle()

    assert isinstance(batch.error, TopicNotFound)
    assert cluster.clock.now_ms() - started_ms < 5_000


def test_without_topic_ids_topics_go_by_name(cluster: ScriptedCluster) -> None:
    cluster.versions[ApiKey.METADATA] = (0, 9)
    cluster.create("t")
    bench = Bench(cluster)

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert _produced(cluster)[0].version == 12


def test_an_old_broker_is_spoken_to_in_its_own_version(cluster: ScriptedCluster) -> None:
    cluster.versions[ApiKey.PRODUCE] = (0, 3)
    cluster.versions[ApiKey.API_VERSIONS] = (0, 2)
    cluster.create("t")
    bench = Bench(cluster)

    batch = bench.put(b"1")
    bench.settle()

    assert batch.error is None
    assert _produced(cluster)[0].version == 3


def test_zstd_is_refused_for_a_broker_that_is_too_old_for_it(cluster: ScriptedCluster) -> None:
    cluster.versions[ApiKey.PRODUCE] = (0, 6)
    cluster.create("t")
    bench = Bench(cluster, compression="zstd")

    batch = bench.put(b"1")
    bench.settle()

    assert isinstance(batch.error, Refusal)
    assert batch.error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_acks_0_expects_no_answer_and_knows_no_offset(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster, acks=0)

    batch = bench.put(b"1")
    bench.settle()

    assert not _produced(cluster)[0].expects_response
    assert batch.position(0).offset == NO_OFFSET
    assert cluster.partition("t").values() == _values(1)


@pytest.mark.parametrize(("acks", "on_wire"), [("all", -1), (1, 1), (0, 0)])
def test_acks_go_out_as_the_protocol_writes_them(cluster: ScriptedCluster, acks: object, on_wire: int) -> None:
    cluster.create("t")
    bench = Bench(cluster, acks=acks)
    bench.put(b"1")
    bench.settle()

    request = _produced(cluster)[0].message
    assert isinstance(request, ProduceRequest)
    assert request.acks == on_wire


def test_a_record_that_no_batch_can_hold_fails_alone(cluster: ScriptedCluster) -> None:
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()

    bad = bench.put("text")  # type: ignore[arg-type]
    good = bench.put(b"1")
    bench.settle()

    assert isinstance(bad.error, InvalidRecord)
    assert good.error is None
    assert cluster.partition("t").values() == [b"warm", b"1"]


def test_a_trouble_of_one_partition_does_not_hold_up_another(cluster: ScriptedCluster) -> None:
    cluster.create("t", 2)
    bench = Bench(cluster)
    cluster.partition("t", 0).refusals.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 3)

    slow = bench.put(b"1", partition=0)
    quick = bench.put(b"1", partition=1)
    bench.round()

    assert (slow.done, quick.done) == (False, True)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_goes_wrong_each_acknowledged_record_is_there_once_and_in_order(seed: int) -> None:
    """Faults by chance, on two brokers whose leaders move; the model deduplicates as a broker does."""
    chance = Random(seed)
    cluster = ScriptedCluster(nodes=2)
    cluster.create("t", 3)
    bench = Bench(cluster, window=chance.choice([1, 2, 5]), delivery_timeout_ms=1_000_000)
    passing = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE]
    sent: dict[int, list[tuple[bytes, Batch]]] = {0: [], 1: [], 2: []}
    for number in itertools.count():
        if number == 200:
            break
        partition = chance.randrange(3)
        sent[partition].append((b"%d" % number, bench.put(b"%d" % number, partition=partition)))
        model = cluster.partition("t", partition)
        if chance.random() < 0.15:
            cluster.fault(ApiKey.PRODUCE, chance.choice([lose_request, lose_answer]))
        if chance.random() < 0.10:
            model.refusals.append(chance.choice(passing))
        if chance.random() < 0.05:
            model.leader, model.leader_epoch = 3 - model.leader, model.leader_epoch + 1
        if chance.random() < 0.3:
            bench.round()
            cluster.pass_time(chance.randrange(200))
    bench.settle()

    for partition, batches in sent.items():
        acknowledged = [value for value, batch in batches if batch.error is None]
        failures = [batch.error for _, batch in batches if batch.error is not None]
        written = cluster.partition("t", partition).values()
        assert len(written) == len(set(written))
        # What failed after an answer was lost may be there; all else is there in order.
        assert [value for value in written if value in acknowledged] == acknowledged
        assert all(isinstance(error, RecordTooLarge) for error in failures)


def test_a_refused_repeat_of_a_batch_that_was_written_does_not_lend_its_number_to_the_next(
    cluster: ScriptedCluster,
) -> None:
    """Else the next one would be taken for a repeat of it, and be acknowledged without being written."""
    cluster.create("t")
    bench = Bench(cluster)
    bench.warm()
    cluster.fault(ApiKey.PRODUCE, lose_answer)
    cluster.partition("t").refusals.extend([ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE])

    refused = bench.put(b"1")
    bench.settle()
    following = bench.put(b"2")
    bench.settle()

    assert isinstance(refused.error, RecordTooLarge)
    assert following.error is None
    assert cluster.partition("t").values() == [b"warm", b"1", b"2"]
