"""Transactions of the blocking producer: all or nothing, in both versions, and what is said when something breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random

import pytest

from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.cluster import Cluster
from ottla.client.errors import (
    ClientClosed,
    CommitUncertain,
    InvalidSetting,
    NoBrokerReachable,
    ProducerFenced,
    TransactionFailed,
)
from ottla.client.errors_by_code import error_class
from ottla.client.producer import AsyncProducer
from ottla.client.settings import ClientSettings, ProducerSettings
from ottla.client.transport import Call, MonotonicClock, Reply
from ottla.error_codes import ErrorCode
from ottla.errors import (
    ConcurrentTransactions,
    InvalidRecord,
    InvalidTransactionState,
    OttlaError,
    RecordTooLarge,
    Refusal,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.records.batch import peek
from ottla.records.control import MarkerType
from tests.client.conftest import client_of
from tests.client.scripted_broker import ScriptedCluster, lose_answer, lose_request

COMMIT, ABORT = MarkerType.COMMIT, MarkerType.ABORT


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def version(request: pytest.FixtureRequest, cluster: ScriptedCluster) -> int:
    cluster.transaction_version = request.param
    cluster.create("t", 2)
    cluster.create("u")
    level: int = request.param
    return level


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[Client]:
    """On the machine's own clock: the blocking producer waits on it."""
    with client_of(cluster, real_time=True, retry_backoff_ms=1, retry_backoff_max_ms=2) as made:
        yield made


@pytest.fixture
def patient(cluster: ScriptedCluster, version: int) -> Iterator[Producer]:
    """On the script's clock, which passes as soon as somebody waits."""
    with client_of(cluster) as made:
        yield made.producer(transactional_id="id")


@pytest.fixture
def producer(client: Client, version: int) -> Producer:
    return client.producer(transactional_id="id")


def decided(cluster: ScriptedCluster) -> list[MarkerType]:
    return [marker_type for _, marker_type, _ in cluster.transactions.ended]


def versions_of(cluster: ScriptedCluster, api_key: ApiKey) -> set[int]:
    return {call.version for call in cluster.calls if call.api_key is api_key}


def interrupted(call: Call, carry_out: Callable[[], Reply]) -> Reply:
    """The user loses patience while the broker does the work."""
    carry_out()
    raise KeyboardInterrupt


def run(producer: Producer, *steps: Callable[[], object]) -> None:
    """A transaction of these steps."""
    with producer.transaction():
        for step in steps:
            step()


def throw(error: Exception) -> None:
    raise error


def refused(code: ErrorCode) -> type[Exception]:
    return error_class(code)


# --- the plain way ---------------------------------------------------------------------------------------


def test_what_was_sent_in_a_transaction_is_committed_at_its_end(cluster: ScriptedCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"1", partition=0)
        producer.submit("u", b"2")

    assert decided(cluster) == [COMMIT]
    assert cluster.partition("t").values() == [b"1"]
    assert cluster.partition("u").values() == [b"2"]
    assert [len(cluster.partition(name).batches) for name in ("t", "u")] == [2, 2]


def test_a_body_that_raises_aborts_and_its_error_goes_on(cluster: ScriptedCluster, producer: Producer) -> None:
    error = ValueError("no good")

    with pytest.raises(ValueError, match="no good") as caught:
        run(producer, lambda: producer.send("t", b"1"), lambda: throw(error))

    assert caught.value is error
    assert decided(cluster) == [ABORT]


def test_transactions_follow_each_other(cluster: ScriptedCluster, producer: Producer) -> None:
    for number in range(3):
        with producer.transaction():
            producer.send("t", b"%d" % number, partition=0)
            producer.send("t", b"%d" % number, partition=0)

    assert decided(cluster) == [COMMIT] * 3
    assert cluster.partition("t").values() == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 1


def test_begin_commit_and_abort_can_be_called_by_themselves(cluster: ScriptedCluster, producer: Producer) -> None:
    states = [producer.in_transaction]
    producer.begin()
    states.append(producer.in_transaction)
    producer.send("t", b"1")
    producer.commit()
    states.append(producer.in_transaction)
    producer.begin()
    producer.send("t", b"2")
    producer.abort()

    assert decided(cluster) == [COMMIT, ABORT]
    assert states == [False, True, False]


def test_a_block_may_end_its_transaction_itself(cluster: ScriptedCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"1")
        producer.abort()

    assert decided(cluster) == [ABORT]


def test_an_empty_transaction_costs_the_coordinator_nothing(cluster: ScriptedCluster, producer: Producer) -> None:
    with producer.transaction():
        pass
    producer.begin()
    producer.abort()

    assert cluster.count(ApiKey.END_TXN) == 0
    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 1


def test_nothing_is_asked_before_the_first_transaction(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.close()

    assert cluster.calls == []


def test_version_2_adds_nothing_explicitly_and_counts_epochs(cluster: ScriptedCluster, client: Client) -> None:
    cluster.create("t", 2)
    producer = client.producer(transactional_id="id")
    for _ in range(3):
        with producer.transaction():
            producer.send("t", b"1", partition=0)
            producer.send("t", b"2", partition=0)

    assert cluster.count(ApiKey.ADD_PARTITIONS_TO_TXN) == 0
    assert min(versions_of(cluster, ApiKey.PRODUCE)) >= 12
    assert versions_of(cluster, ApiKey.END_TXN) == {5}
    headers = [peek(batch) for batch in cluster.partition("t").batches if not peek(batch).is_control]
    assert [(each.producer_epoch, each.base_sequence) for each in headers] == [
        (epoch, sequence) for epoch in range(3) for sequence in range(2)
    ]


@pytest.mark.parametrize("level", [0, 1])
def test_version_1_adds_partitions_first_and_keeps_its_epoch(
    cluster: ScriptedCluster, client: Client, level: int
) -> None:
    cluster.transaction_version = level
    cluster.create("t", 2)
    producer = client.producer(transactional_id="id")
    for _ in range(3):
        with producer.transaction():
            producer.send("t", b"1", partition=0)
            producer.send("t", b"2", partition=0)

    assert cluster.count(ApiKey.ADD_PARTITIONS_TO_TXN) == 3
    assert max(versions_of(cluster, ApiKey.ADD_PARTITIONS_TO_TXN)) <= 3
    assert max(versions_of(cluster, ApiKey.PRODUCE)) <= 11
    assert max(versions_of(cluster, ApiKey.END_TXN)) <= 4
    headers = [peek(batch) for batch in cluster.partition("t").batches if not peek(batch).is_control]
    assert [(each.producer_epoch, each.base_sequence) for each in headers] == [(0, sequence) for sequence in range(6)]


def test_a_cluster_that_is_upgraded_is_used_as_it_is_now(cluster: ScriptedCluster, client: Client) -> None:
    cluster.transaction_version = 1
    cluster.create("t")
    producer = client.producer(transactional_id="id")
    with producer.transaction():
        producer.send("t", b"1")
    cluster.transaction_version = 2
    cluster.fault(ApiKey.METADATA, lose_request)
    cluster.fault(ApiKey.PRODUCE, lose_request)

    for _ in range(2):
        with producer.transaction():
            producer.send("t", b"2")

    assert 5 in versions_of(cluster, ApiKey.END_TXN)
    assert decided(cluster) == [COMMIT] * 3


# --- misuse ----------------------------------------------------------------------------------------------


def test_a_send_outside_a_transaction_is_refused(cluster: ScriptedCluster, producer: Producer) -> None:
    with pytest.raises(InvalidTransactionState, match="no transaction is open"):
        producer.send("t", b"1")
    with pytest.raises(InvalidTransactionState, match="no transaction is open"):
        producer.send_batch("t", [b"1"])

    assert cluster.count(ApiKey.PRODUCE) == 0


def test_a_transaction_inside_another_is_refused(producer: Producer) -> None:
    with producer.transaction(), pytest.raises(InvalidTransactionState, match="commit or abort it first"):
        producer.begin()


@pytest.mark.parametrize("call", ["commit", "abort", "detach"])
def test_what_was_not_begun_cannot_be_ended(producer: Producer, call: str) -> None:
    with pytest.raises(InvalidTransactionState, match="no transaction is open"):
        getattr(producer, call)()


def test_a_producer_without_an_id_has_no_transactions(client: Client, cluster: ScriptedCluster) -> None:
    with pytest.raises(InvalidTransactionState, match="transactional_id="), client.producer().transaction():
        pass


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 1},
        {"idempotent": False},
        {"transactional_id": ""},
        {"transactional_id": "x" * 40_000},
        {"transaction_timeout_ms": 0},
        {"transactional_id": "\ud800"},
    ],
)
def test_settings_that_no_transaction_can_have_are_refused(client: Client, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        client.producer(**{"transactional_id": "id", **settings})


def test_a_record_that_is_refused_before_it_was_sent_spoils_nothing(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    with producer.transaction():
        producer.send("t", b"1")
        with pytest.raises(InvalidRecord):
            producer.send("t", "text")  # type: ignore[arg-type]

    assert decided(cluster) == [COMMIT]


# --- failures --------------------------------------------------------------------------------------------


def test_a_submitted_record_that_fails_makes_the_commit_fail_with_its_error(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.partition("t", 1).refusals.append(ErrorCode.MESSAGE_TOO_LARGE)

    with pytest.raises(RecordTooLarge) as caught:
        run(producer, lambda: producer.submit("t", b"1", partition=0), lambda: producer.submit("t", b"2", partition=1))

    assert decided(cluster) == [ABORT]
    assert "the transaction was aborted" in caught.value.__notes__


def test_after_a_failure_that_was_swallowed_nothing_more_is_sent_and_the_commit_says_why(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.partition("t").refusals.append(ErrorCode.MESSAGE_TOO_LARGE)

    producer.begin()
    with pytest.raises(RecordTooLarge):
        producer.send("t", b"1", partition=0)
    with pytest.raises(TransactionFailed, match="can only be aborted"):
        producer.send("t", b"2", partition=1)
    with pytest.raises(RecordTooLarge):
        producer.commit()

    assert decided(cluster) in ([], [ABORT])
    assert cluster.partition("t", 1).values() == []


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_a_refusal_in_the_middle_aborts_and_the_next_transaction_goes_on(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    with producer.transaction():
        producer.send("t", b"0", partition=0)
    cluster.partition("t").refusals.append(code)
    with pytest.raises(refused(code)):
        run(producer, lambda: producer.send("t", b"1", partition=1), lambda: producer.send("t", b"2", partition=0))
    with producer.transaction():
        producer.send("t", b"3", partition=0)

    assert decided(cluster) == [COMMIT, ABORT, COMMIT]
    assert cluster.partition("t").values() == [b"0", b"3"]


def test_version_1_takes_a_new_epoch_after_a_failure(cluster: ScriptedCluster, client: Client) -> None:
    cluster.transaction_version = 1
    cluster.create("t")
    producer = client.producer(transactional_id="id")
    cluster.partition("t").refusals.append(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(RecordTooLarge), producer.transaction():
        producer.send("t", b"1")
    with producer.transaction():
        producer.send("t", b"2")

    asked = [call.message for call in cluster.calls if call.api_key is ApiKey.INIT_PRODUCER_ID]
    assert [each.producer_epoch for each in asked if isinstance(each, InitProducerIdRequest)] == [-1, 0]
    assert peek(cluster.partition("t").batches[-2]).producer_epoch == 1


def test_version_1_takes_a_new_epoch_when_a_batch_was_dropped_that_may_have_been_written(
    cluster: ScriptedCluster, client: Client
) -> None:
    """Otherwise the next record would have the number of the dropped one, and be taken for its repetition."""
    cluster.transaction_version = 1
    cluster.create("t")
    producer = client.producer(transactional_id="id", retries=100)
    producer.begin()
    cluster.fault(ApiKey.PRODUCE, interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", b"1")
    cluster.fault(ApiKey.PRODUCE, lose_answer, interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", b"2")
    producer.abort()
    with producer.transaction():
        producer.send("t", b"3")

    assert cluster.partition("t").values()[-1] == b"3"
    assert decided(cluster) == [ABORT, COMMIT]


def test_a_record_that_is_not_acknowledged_in_time_aborts_the_transaction(
    cluster: ScriptedCluster, client: Client, version: int
) -> None:
    producer = client.producer(transactional_id="id", delivery_timeout_ms=50)
    with producer.transaction():
        producer.send("t", b"1", partition=0)
    cluster.partition("t").refusals.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000)

    with pytest.raises(OttlaError, match="not acknowledged in time"), producer.transaction():
        producer.submit("t", b"2", partition=0)
    cluster.partition("t").refusals.clear()
    with producer.transaction():
        producer.send("t", b"3", partition=0)

    assert cluster.partition("t").values() == [b"1", b"3"]
    assert decided(cluster)[-1] is COMMIT


@pytest.mark.parametrize("fault", [lose_request, lose_answer])
@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.FIND_COORDINATOR])
def test_a_connection_that_breaks_is_waited_out(
    cluster: ScriptedCluster, producer: Producer, api_key: ApiKey, fault: Callable[[Call, Callable[[], Reply]], Reply]
) -> None:
    cluster.fault(api_key, fault)

    for number in range(2):
        with producer.transaction():
            producer.send("t", b"%d" % number, partition=0)

    assert decided(cluster) == [COMMIT, COMMIT]
    assert cluster.partition("t").values() == [b"0", b"1"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
@pytest.mark.parametrize("api_key", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN])
def test_a_coordinator_that_cannot_yet_is_asked_again(
    cluster: ScriptedCluster, producer: Producer, api_key: ApiKey, code: ErrorCode
) -> None:
    cluster.transactions.refuse(api_key, code, code)

    with producer.transaction():
        producer.send("t", b"1", partition=0)

    assert decided(cluster) == [COMMIT]
    assert cluster.partition("t").values() == [b"1"]


def test_a_coordinator_that_has_moved_is_looked_for(cluster: ScriptedCluster, producer: Producer) -> None:
    cluster.transactions.refuse(ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR)

    with producer.transaction():
        producer.send("t", b"1")

    assert cluster.count(ApiKey.FIND_COORDINATOR) == 2


def test_a_partition_that_waits_for_the_end_of_the_transaction_before_is_tried_again(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.partition("t").refusals.extend([ErrorCode.CONCURRENT_TRANSACTIONS] * 3)

    with producer.transaction():
        producer.send("t", b"1", partition=0)

    assert cluster.partition("t").values() == [b"1"]


# --- fencing ---------------------------------------------------------------------------------------------


def test_a_fenced_producer_finds_out_at_its_commit(
    cluster: ScriptedCluster, client: Client, producer: Producer
) -> None:
    successor = client.producer(transactional_id="id")

    with pytest.raises(ProducerFenced):
        run(producer, lambda: producer.send("t", b"zombie"), successor.begin)

    assert decided(cluster) == [ABORT]


def test_a_fenced_producer_finds_out_at_its_abort(cluster: ScriptedCluster, client: Client, producer: Producer) -> None:
    producer.begin()
    producer.send("t", b"zombie")
    client.producer(transactional_id="id").begin()

    with pytest.raises(ProducerFenced):
        producer.abort()


def test_an_error_of_the_body_is_the_one_to_hear_of_when_the_abort_fails_too(
    cluster: ScriptedCluster, client: Client, producer: Producer
) -> None:
    successor = client.producer(transactional_id="id")

    with pytest.raises(ValueError, match="mine") as caught:
        run(producer, lambda: producer.send("t", b"1"), successor.begin, lambda: throw(ValueError("mine")))

    assert any("could not be aborted" in note for note in caught.value.__notes__)


def test_a_fenced_producer_can_be_closed(client: Client, producer: Producer) -> None:
    successor = client.producer(transactional_id="id")

    with pytest.raises(ProducerFenced), producer:
        run(producer, lambda: producer.send("t", b"1"), successor.begin)

    assert producer.is_closed


# --- commits whose answer is lost ------------------------------------------------------------------------


def test_a_commit_whose_answers_are_all_lost_is_said_to_be_uncertain(
    cluster: ScriptedCluster, patient: Producer
) -> None:
    patient.begin()
    patient.send("t", b"1")
    cluster.fault(ApiKey.END_TXN, *[lose_request] * 1_000)

    with pytest.raises(CommitUncertain, match="it may or may not stand"):
        patient.commit()
    with pytest.raises(CommitUncertain, match="commit again"):
        patient.abort()
    cluster.faults.clear()
    patient.commit()

    assert decided(cluster) == [COMMIT]


def test_the_next_transaction_settles_what_was_uncertain(cluster: ScriptedCluster, patient: Producer) -> None:
    cluster.fault(ApiKey.END_TXN, *[lose_answer] * 1_000)
    with pytest.raises(CommitUncertain), patient.transaction():
        patient.send("t", b"1", partition=0)
    cluster.faults.clear()
    with patient.transaction():
        patient.send("t", b"2", partition=0)

    assert decided(cluster) == [COMMIT, COMMIT]
    assert cluster.partition("t").values() == [b"1", b"2"]


def test_a_commit_that_was_broken_off_can_be_asked_about_again(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.begin()
    producer.send("t", b"1")
    cluster.fault(ApiKey.END_TXN, interrupted)

    with pytest.raises(KeyboardInterrupt):
        producer.commit()
    producer.commit()

    assert decided(cluster) == [COMMIT]


def test_a_commit_that_was_refused_for_sure_is_not_uncertain(cluster: ScriptedCluster, patient: Producer) -> None:
    patient.begin()
    patient.send("t", b"1")
    cluster.transactions.refuse(ApiKey.END_TXN, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 100_000)

    with pytest.raises(ConcurrentTransactions):
        patient.commit()

    assert decided(cluster) == []


def test_a_coordinator_that_cannot_be_reached_leaves_no_doubt(cluster: ScriptedCluster, patient: Producer) -> None:
    patient.begin()
    patient.send("t", b"1")
    cluster.down.add(1)

    with pytest.raises(Refusal) as caught:
        patient.commit()
    cluster.down.clear()
    patient.begin()
    patient.commit()

    assert not isinstance(caught.value, CommitUncertain)
    assert any("could not be aborted yet" in note for note in caught.value.__notes__)
    assert decided(cluster) == [ABORT]


def test_a_fence_after_a_lost_answer_leaves_the_commit_uncertain(
    cluster: ScriptedCluster, client: Client, producer: Producer
) -> None:
    def lose_and_fence(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        try:
            return lose_answer(call, carry_out)
        finally:
            client.producer(transactional_id="id").begin()

    producer.begin()
    producer.send("t", b"1")
    cluster.fault(ApiKey.END_TXN, lose_and_fence)

    with pytest.raises(CommitUncertain) as caught:
        producer.commit()
    with pytest.raises(ProducerFenced):
        producer.begin()

    assert isinstance(caught.value.__cause__, ProducerFenced)
    assert decided(cluster) == [COMMIT]


def test_a_commit_that_the_coordinator_cannot_make_is_aborted(cluster: ScriptedCluster, producer: Producer) -> None:
    cluster.transactions.refuse(ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE)

    with pytest.raises(refused(ErrorCode.TRANSACTION_ABORTABLE)), producer.transaction():
        producer.send("t", b"1")

    assert decided(cluster) == [ABORT]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_an_abort_that_finds_nothing_takes_a_new_epoch_and_goes_on(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    producer.begin()
    producer.send("t", b"1", partition=0)
    cluster.transactions.by_id["id"].is_open = False
    cluster.transactions.refuse(ApiKey.END_TXN, code)
    producer.abort()
    with producer.transaction():
        producer.send("t", b"2", partition=0)

    assert cluster.count(ApiKey.INIT_PRODUCER_ID) == 2
    assert cluster.partition("t").values()[-1] == b"2"
    assert decided(cluster)[-1] is COMMIT


def test_an_abort_that_could_not_be_told_is_made_up_for(cluster: ScriptedCluster, patient: Producer) -> None:
    patient.begin()
    patient.send("t", b"1", partition=0)
    cluster.fault(ApiKey.END_TXN, *[lose_request] * 1_000)
    with pytest.raises(OttlaError, match="scripted loss"):
        patient.abort()
    cluster.faults.clear()
    with patient.transaction():
        patient.send("t", b"2", partition=0)

    assert decided(cluster) == [ABORT, COMMIT]


# --- the end ---------------------------------------------------------------------------------------------


def test_closing_aborts_what_is_open(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.begin()
    producer.send("t", b"1")
    producer.close()

    assert decided(cluster) == [ABORT]


def test_leaving_the_producer_by_an_error_aborts_what_is_open(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.begin()
    producer.send("t", b"1")

    with pytest.raises(ValueError, match="mine"), producer:
        throw(ValueError("mine"))

    assert decided(cluster) == [ABORT]


def test_what_was_submitted_before_an_abort_is_dropped(cluster: ScriptedCluster, client: Client, version: int) -> None:
    producer = client.producer(transactional_id="id", linger_ms=60_000)
    producer.begin()
    producer.send("t", b"1", partition=0)
    future = producer.submit("t", b"2", partition=1)
    producer.abort()

    with pytest.raises(TransactionFailed, match="aborted before"):
        future.result(0)
    assert cluster.partition("t", 1).values() == []


def test_a_cluster_that_was_never_there_is_said_to_be_unreachable(cluster: ScriptedCluster, producer: Producer) -> None:
    cluster.down.add(1)

    with pytest.raises(NoBrokerReachable):
        producer.begin()


def test_a_producer_waits_for_a_cluster_that_has_answered_its_client_before(
    cluster: ScriptedCluster, client: Client, producer: Producer
) -> None:
    cluster.create("t")
    client.admin().list_topics()
    cluster.down.add(1)
    cluster.at(5_000, cluster.down.clear)

    producer.begin()
    producer.send("t", b"1")
    producer.commit()

    assert cluster.partition("t", 0).values() == [b"1"]


@pytest.mark.parametrize("ending", ["commit", "detach"])
def test_an_async_transaction_whose_records_the_task_could_not_send_is_aborted(
    cluster: ScriptedCluster, ending: str
) -> None:
    cluster.create("t")

    def fail(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        raise MemoryError("no room")

    async def main() -> None:
        connected = Cluster(
            cluster.transport(),
            [next(iter(cluster.nodes.values()))],
            settings=ClientSettings(),
            ticks=MonotonicClock(),
        )
        settings = ProducerSettings(transactional_id="id")
        async with AsyncProducer(connected, settings, clock=cluster.clock, chance=Random(1)) as producer:
            await producer.begin()
            await producer.send("t", b"sent")
            cluster.fault(ApiKey.PRODUCE, fail)
            await producer.submit("t", b"not sent")
            with pytest.raises(ClientClosed, match="the producer failed: MemoryError"):
                await getattr(producer, ending)()

    with pytest.raises(ExceptionGroup) as told:
        asyncio.run(main())
    assert told.group_contains(MemoryError)
    assert decided(cluster) == [ABORT]
