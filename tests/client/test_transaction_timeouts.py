"""Transactions that end over their producer's head: one that was too slow goes on, one that was replaced does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.errors import CommitUncertain, ProducerFenced, TransactionFailed
from ottla.client.turns import may_be_repeated
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.records.control import MarkerType
from tests.client.conftest import client_of
from tests.client.scripted_broker import Fault, ScriptedCluster, lose_answer, lose_request

COMMIT, ABORT = MarkerType.COMMIT, MarkerType.ABORT
TOO_LONG = "took longer than transaction_timeout_ms=60000 and was aborted: nothing of it counts"
"""What is said once it is known."""
CUT_OFF = "took longer than transaction_timeout_ms=60000 and was aborted, or another producer has taken over"


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def version(request: pytest.FixtureRequest, cluster: ScriptedCluster) -> int:
    cluster.transaction_version = request.param
    cluster.create("t", 2)
    level: int = request.param
    return level


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[Client]:
    """On the script's clock, which passes as soon as somebody waits."""
    with client_of(cluster) as made:
        yield made


@pytest.fixture
def producer(client: Client, version: int) -> Producer:
    """A transaction is open, and its record is in partition 0."""
    made = client.producer(transactional_id="id")
    made.begin()
    made.send("t", b"slow", partition=0)
    return made


@pytest.fixture
def slow(cluster: ScriptedCluster, producer: Producer) -> Producer:
    """The transaction has taken too long, and its producer has not heard of it."""
    cluster.transactions.time_out("id")
    return producer


def decided(cluster: ScriptedCluster) -> list[MarkerType]:
    return [marker_type for _, marker_type, _ in cluster.transactions.ended]


def resumed(cluster: ScriptedCluster) -> int:
    """How often somebody has named an epoch that it had."""
    asked = [call.message for call in cluster.calls if isinstance(call.message, InitProducerIdRequest)]
    return sum(each.producer_id >= 0 for each in asked)


def goes_on(cluster: ScriptedCluster, producer: Producer) -> None:
    """The next transactions of the producer are like any others."""
    before = len(decided(cluster))
    for value in (b"next", b"last"):
        with producer.transaction():
            producer.send("t", value, partition=0)
            producer.send("t", value, partition=1)
    assert decided(cluster)[before:] == [COMMIT, COMMIT]
    assert cluster.partition("t", 0).values()[-2:] == [b"next", b"last"]
    assert cluster.partition("t", 1).values() == [b"next", b"last"]


def run(producer: Producer, between: Callable[[], object]) -> None:
    """A transaction in which something happens between two records."""
    with producer.transaction():
        producer.send("t", b"1", partition=0)
        between()
        producer.send("t", b"late", partition=0)


def take_over(client: Client, *, is_writing: bool) -> Producer:
    successor = client.producer(transactional_id="id")
    successor.begin()
    if is_writing:
        successor.send("t", b"successor", partition=0)
    return successor


# --- too slow --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [0, 1])
def test_a_send_after_the_time_is_over_fails_and_the_producer_goes_on_after_its_abort(
    cluster: ScriptedCluster, slow: Producer, partition: int
) -> None:
    with pytest.raises(TransactionFailed, match=CUT_OFF):
        slow.send("t", b"late", partition=partition)
    with pytest.raises(TransactionFailed, match=CUT_OFF):
        slow.send("t", b"later", partition=partition)
    slow.abort()

    assert decided(cluster) == [ABORT]
    goes_on(cluster, slow)


def test_an_abort_after_the_time_is_over_is_like_any_other(cluster: ScriptedCluster, slow: Producer) -> None:
    slow.abort()

    assert decided(cluster) == [ABORT]
    goes_on(cluster, slow)


def test_a_commit_after_the_time_is_over_says_so_and_the_next_transaction_works(
    cluster: ScriptedCluster, slow: Producer
) -> None:
    with pytest.raises(TransactionFailed, match=TOO_LONG) as caught:
        slow.commit()

    assert may_be_repeated(caught.value)
    assert not slow.in_transaction
    assert decided(cluster) == [ABORT]
    goes_on(cluster, slow)


def test_a_commit_after_a_late_send_was_swallowed_knows_why(cluster: ScriptedCluster, slow: Producer) -> None:
    with pytest.raises(TransactionFailed):
        slow.send("t", b"late", partition=0)
    with pytest.raises(TransactionFailed, match=TOO_LONG) as caught:
        slow.commit()

    assert may_be_repeated(caught.value)
    goes_on(cluster, slow)


def test_a_block_that_is_left_by_a_late_send_has_aborted(
    cluster: ScriptedCluster, client: Client, version: int
) -> None:
    producer = client.producer(transactional_id="id")

    with pytest.raises(TransactionFailed, match=CUT_OFF) as caught:
        run(producer, lambda: cluster.transactions.time_out("id"))

    assert caught.value.__notes__ == ["it had taken too long and was aborted; the next one may begin"]
    goes_on(cluster, producer)


def test_a_submitted_record_that_comes_too_late_makes_the_commit_fail(cluster: ScriptedCluster, slow: Producer) -> None:
    future = slow.submit("t", b"late", partition=0)

    with pytest.raises(TransactionFailed, match=TOO_LONG):
        slow.commit()
    with pytest.raises(TransactionFailed, match=CUT_OFF):
        future.result(0)
    goes_on(cluster, slow)


def test_positions_that_come_too_late_fail_and_the_producer_goes_on(cluster: ScriptedCluster, slow: Producer) -> None:
    with pytest.raises(TransactionFailed, match=CUT_OFF) as caught:
        slow.send_offsets({("t", 0): 5}, group="g")
    slow.abort()
    with slow.transaction():
        slow.send_offsets({("t", 0): 6}, group="g")

    assert may_be_repeated(caught.value)
    assert cluster.transactions.offsets == {("g", "t", 0): 6}


def test_time_may_be_over_again_and_again(cluster: ScriptedCluster, slow: Producer) -> None:
    for _ in range(3):
        with pytest.raises(TransactionFailed, match=TOO_LONG):
            slow.commit()
        slow.begin()
        slow.send("t", b"slow", partition=0)
        cluster.transactions.time_out("id")
    slow.abort()

    assert decided(cluster) == [ABORT] * 4
    goes_on(cluster, slow)


def test_a_commit_that_was_lost_before_the_time_was_over_is_known_not_to_stand(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.fault(ApiKey.END_TXN, lose_request)
    cluster.at(1, lambda: cluster.transactions.time_out("id"))

    with pytest.raises(TransactionFailed, match=TOO_LONG):
        producer.commit()

    assert decided(cluster) == [ABORT]
    goes_on(cluster, producer)


def test_what_was_uncertain_is_known_when_the_next_transaction_begins(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.fault(ApiKey.END_TXN, *[lose_request] * 1_000)
    with pytest.raises(CommitUncertain):
        producer.commit()
    cluster.faults.clear()
    cluster.transactions.time_out("id")

    with pytest.raises(TransactionFailed, match=TOO_LONG):
        producer.begin()

    goes_on(cluster, producer)


def test_a_commit_that_stands_is_confirmed_whatever_time_it_is(cluster: ScriptedCluster, producer: Producer) -> None:
    cluster.fault(ApiKey.END_TXN, *[lose_answer] * 3)

    producer.commit()

    assert decided(cluster) == [COMMIT]
    goes_on(cluster, producer)


@pytest.mark.parametrize("api_key", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.INIT_PRODUCER_ID])
@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_version_1_finds_out_later_what_it_could_not_ask_about_now(
    cluster: ScriptedCluster, client: Client, api_key: ApiKey, fault: Fault
) -> None:
    cluster.transaction_version = 1
    cluster.create("t", 2)
    producer = client.producer(transactional_id="id")
    producer.begin()
    producer.send("t", b"slow", partition=0)
    cluster.transactions.time_out("id")
    cluster.fault(api_key, *[fault] * 1_000)
    with pytest.raises(TransactionFailed, match=CUT_OFF) as caught:
        producer.commit()
    cluster.faults.clear()

    assert may_be_repeated(caught.value)
    assert "could not be aborted yet" in caught.value.__notes__[0]
    goes_on(cluster, producer)


def test_version_1_gets_the_answer_to_its_new_epoch_later(cluster: ScriptedCluster, client: Client) -> None:
    cluster.transaction_version = 1
    cluster.create("t", 2)
    producer = client.producer(transactional_id="id")
    producer.begin()
    producer.send("t", b"slow", partition=0)
    cluster.partition("t").refusals.append(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(OttlaError, match="MESSAGE_TOO_LARGE"):
        producer.send("t", b"large", partition=0)
    cluster.fault(ApiKey.INIT_PRODUCER_ID, *[lose_answer] * 1_000)
    with pytest.raises(OttlaError, match="scripted loss"):
        producer.abort()
    cluster.faults.clear()

    goes_on(cluster, producer)


# --- replaced --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_writing", [True, False])
@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_producer_that_was_replaced_is_told_at_the_end_and_changes_nothing(
    cluster: ScriptedCluster, client: Client, producer: Producer, call: str, *, is_writing: bool
) -> None:
    successor = take_over(client, is_writing=is_writing)

    with pytest.raises(TransactionFailed, match=CUT_OFF):
        producer.send("t", b"late", partition=0)
    with pytest.raises(ProducerFenced, match="another one has taken over; it cannot be used any more"):
        getattr(producer, call)()
    for final in (producer.begin, producer.commit, producer.abort, producer.detach):
        with pytest.raises(ProducerFenced, match="cannot be used any more"):
            final()
    with pytest.raises(ProducerFenced):
        producer.send("t", b"later", partition=0)

    assert successor.in_transaction
    successor.send("t", b"successor", partition=0)
    successor.commit()
    assert decided(cluster) == [ABORT, COMMIT]
    assert b"late" not in cluster.partition("t").values()


def test_a_producer_that_was_replaced_between_two_transactions_is_told_too(
    cluster: ScriptedCluster, client: Client, producer: Producer
) -> None:
    producer.commit()
    producer.begin()
    successor = take_over(client, is_writing=False)

    with pytest.raises(TransactionFailed, match=CUT_OFF):
        producer.send("t", b"late", partition=0)
    with pytest.raises(ProducerFenced, match="another one has taken over"):
        producer.abort()

    successor.send("t", b"successor", partition=0)
    successor.commit()
    assert decided(cluster) == [COMMIT, COMMIT]


def test_a_block_that_is_left_by_a_late_send_of_a_replaced_producer_says_that_it_is_fenced(
    client: Client, version: int
) -> None:
    producer = client.producer(transactional_id="id")

    with pytest.raises(ProducerFenced, match="another one has taken over") as caught:
        run(producer, lambda: take_over(client, is_writing=False))

    assert isinstance(caught.value.__cause__, TransactionFailed)


def test_a_producer_that_was_too_slow_and_then_replaced_is_fenced(
    cluster: ScriptedCluster, client: Client, slow: Producer
) -> None:
    successor = take_over(client, is_writing=True)

    with pytest.raises(ProducerFenced, match="another one has taken over"):
        slow.commit()

    successor.commit()
    assert decided(cluster) == [ABORT, COMMIT]


@pytest.mark.parametrize(("was_open", "is_writing"), [(True, True), (True, False), (False, True)])
def test_version_1_does_not_name_an_old_epoch_where_the_successor_can_be_seen(
    cluster: ScriptedCluster, client: Client, *, was_open: bool, is_writing: bool
) -> None:
    """Apache Kafka would abort the successor's transaction."""
    cluster.transaction_version = 1
    cluster.create("t", 2)
    producer = client.producer(transactional_id="id")
    producer.begin()
    if was_open:
        producer.send("t", b"1", partition=0)
    successor = take_over(client, is_writing=is_writing)
    with pytest.raises(TransactionFailed):
        producer.send("t", b"late", partition=0)

    with pytest.raises(ProducerFenced, match="another one has taken over; it cannot be used any more"):
        producer.abort()

    assert (cluster.count(ApiKey.DESCRIBE_TRANSACTIONS), resumed(cluster)) == (1, 0)
    successor.send("t", b"successor", partition=0)
    successor.commit()
    assert decided(cluster) == [ABORT, COMMIT][not was_open :]


def test_a_coordinator_of_the_first_version_that_fences_for_slowness_is_believed(
    cluster: ScriptedCluster, client: Client
) -> None:
    """As Apache Kafka does."""
    cluster.transaction_version = 1
    cluster.create("t", 2)
    producer = client.producer(transactional_id="id")
    producer.begin()
    producer.send("t", b"1", partition=0)
    cluster.transactions.time_out("id")
    cluster.transactions.refuse(ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED)

    with pytest.raises(ProducerFenced, match="or transaction_timeout_ms=60000 is over; it cannot be used any more"):
        producer.abort()


@pytest.mark.parametrize("is_late", [True, False])
def test_a_brokers_first_version_that_cannot_be_asked_why_is_not_trusted(
    cluster: ScriptedCluster, client: Client, *, is_late: bool
) -> None:
    cluster.transaction_version = 1
    cluster.create("t", 2)
    del cluster.versions[ApiKey.DESCRIBE_TRANSACTIONS]
    producer = client.producer(transactional_id="id")
    producer.begin()
    producer.send("t", b"1", partition=0)
    if is_late:
        cluster.transactions.time_out("id")
    else:
        take_over(client, is_writing=False)

    with pytest.raises(ProducerFenced, match="or transaction_timeout_ms=60000 is over; it cannot be used any more"):
        producer.abort()

    assert resumed(cluster) == 0


@pytest.mark.parametrize("steps", [[ErrorCode.INVALID_PRODUCER_EPOCH], [ErrorCode.PRODUCER_FENCED]])
def test_the_coordinators_word_is_final_in_either_spelling(
    cluster: ScriptedCluster, client: Client, producer: Producer, steps: list[ErrorCode]
) -> None:
    take_over(client, is_writing=False)
    cluster.transactions.refuse(ApiKey.END_TXN, *steps)
    cluster.transactions.refuse(ApiKey.INIT_PRODUCER_ID, *steps)

    with pytest.raises(ProducerFenced, match="cannot be used any more"):
        producer.abort()


def test_a_replaced_producer_whose_commit_was_lost_does_not_know_what_became_of_it(
    cluster: ScriptedCluster, client: Client, producer: Producer
) -> None:
    cluster.fault(ApiKey.END_TXN, lose_answer)
    cluster.at(1, lambda: take_over(client, is_writing=False))

    with pytest.raises(CommitUncertain) as caught:
        producer.commit()

    assert isinstance(caught.value.__cause__, ProducerFenced)
    assert decided(cluster) == [COMMIT]
