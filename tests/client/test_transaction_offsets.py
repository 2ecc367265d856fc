"""Positions of groups in transactions, transactions that are left open, and several of them committed as one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.commits import NOBODY, Identity
from ottla.client.errors import (
    ClientClosed,
    CommitFailed,
    CommitUncertain,
    InvalidGroupName,
    NoGroup,
    ProducerFenced,
    TransactionFailed,
    UnsupportedVersion,
)
from ottla.client.group_member import Change, GroupMember
from ottla.client.progress import Progress
from ottla.client.settings import ConsumerSettings
from ottla.client.values import Committed, OpenTransaction, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, InvalidTransactionState, RecordTooLarge
from ottla.protocol.api_keys import PRIVATE_APIS_TAG, ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.records.control import MarkerType
from tests.client.conftest import client_of
from tests.client.group_script import Stage
from tests.client.scripted_broker import ScriptedCluster, lose_answer, lose_request

KEY = TopicPartition("t", 0)


class Member(GroupMember):
    """A member whose number the test decides."""

    def __init__(self, *numbers: int) -> None:
        stage = Stage()
        super().__init__(stage.coordinator, _settings(), news=stage.news, wake=stage.wake)
        self._numbers = list(numbers)
        self._owned = frozenset({KEY})
        self.fences: list[ErrorCode] = []
        self.is_member = True

    @property
    def is_subscribed(self) -> bool:
        return self.is_member

    @property
    def identity(self) -> Identity:
        """The next number each time, the last one for ever."""
        number = self._numbers.pop(0) if len(self._numbers) > 1 else self._numbers[0]
        return NOBODY if number < 0 else Identity("member-1", number, "instance-1")

    def fenced(self, code: ErrorCode, identity: Identity) -> None:
        self.fences.append(code)

    def look_at_topics(self) -> None: ...

    def _subscription_changed(self) -> None: ...

    def _change_settled(self, change: Change) -> None: ...

    async def _advance(self) -> int | None:
        return None

    async def _say_goodbye(self, identity: Identity, coordinator: Any) -> None: ...


class RenumberedMember(Member):
    """One whose epoch goes up by itself."""

    is_renumbered = True


def _settings() -> ConsumerSettings:
    return ConsumerSettings(group="g")


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def producer(request: pytest.FixtureRequest, cluster: ScriptedCluster) -> Iterator[Producer]:
    """On the script's clock; a transaction is open."""
    cluster.transaction_version = request.param
    cluster.create("t")
    with client_of(cluster) as client:
        made = client.producer(transactional_id="q/0")
        made.begin()
        yield made


def progress(member: GroupMember | None, offset: int = 7) -> Progress:
    return Progress("g", {KEY: Committed(offset)}, member)


def stored(cluster: ScriptedCluster) -> dict[tuple[str, str, int], int]:
    return cluster.transactions.offsets


def asked(cluster: ScriptedCluster) -> list[TxnOffsetCommitRequest]:
    return [call.message for call in cluster.calls if isinstance(call.message, TxnOffsetCommitRequest)]


# --- positions -------------------------------------------------------------------------------------------


def test_positions_count_with_the_commit(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.send_offsets({("t", 0): 5, ("t", 1): Committed(6, "note")}, group="g")
    before = dict(stored(cluster))
    producer.commit()

    assert before == {}
    assert stored(cluster) == {("g", "t", 0): 5, ("g", "t", 1): 6}


def test_positions_of_an_aborted_transaction_do_not_count(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.send_offsets({("t", 0): 5}, group="g")
    producer.abort()

    assert stored(cluster) == {}


def test_version_1_adds_the_group_once_and_version_2_not_at_all(cluster: ScriptedCluster, producer: Producer) -> None:
    for offset in (5, 6):
        producer.send_offsets({("t", 0): offset}, group="g")
    producer.commit()

    is_implicit = cluster.transaction_version == 2
    assert cluster.count(ApiKey.ADD_OFFSETS_TO_TXN) == (0 if is_implicit else 1)
    versions = {call.version for call in cluster.calls if call.api_key is ApiKey.TXN_OFFSET_COMMIT}
    assert versions == ({5} if is_implicit else {4})
    assert stored(cluster) == {("g", "t", 0): 6}


def test_a_members_positions_are_stored_in_its_name(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.send_offsets(progress(Member(3)))
    producer.commit()

    (request,) = asked(cluster)
    assert (request.member_id, request.generation_id, request.group_instance_id) == ("member-1", 3, "instance-1")
    assert stored(cluster) == {("g", "t", 0): 7}


def test_no_positions_are_no_request(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.send_offsets({}, group="g")
    producer.commit()

    assert asked(cluster) == []
    assert cluster.count(ApiKey.END_TXN) == 0


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID]
)
def test_a_member_that_the_group_has_gone_on_without_spoils_its_transaction(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    member = Member(3)
    producer.send("t", b"1")
    cluster.transactions.refuse(ApiKey.TXN_OFFSET_COMMIT, code)

    with pytest.raises(CommitFailed, match="gone on without"):
        producer.send_offsets(progress(member))
    with pytest.raises(TransactionFailed):
        producer.send("t", b"2")
    with pytest.raises(CommitFailed):
        producer.commit()

    assert member.fences == [code]
    assert [each[1] for each in cluster.transactions.ended] == [MarkerType.ABORT]


def test_a_member_that_has_lost_its_place_stores_nothing(cluster: ScriptedCluster, producer: Producer) -> None:
    with pytest.raises(CommitFailed, match="not a member at present"):
        producer.send_offsets(progress(Member(-1)))

    assert asked(cluster) == []


def test_a_member_whose_epoch_has_gone_up_stores_under_the_new_one(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.transactions.refuse(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)
    member = RenumberedMember(3, 3, 4)
    producer.send_offsets(progress(member))
    producer.commit()

    assert [request.generation_id for request in asked(cluster)] == [3, 3, 4]
    assert member.fences == []
    assert stored(cluster) == {("g", "t", 0): 7}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ],
)
def test_a_group_coordinator_that_cannot_yet_is_asked_again(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    cluster.transactions.refuse(ApiKey.TXN_OFFSET_COMMIT, code, code)
    cluster.fault(ApiKey.TXN_OFFSET_COMMIT, lose_answer)
    producer.send_offsets(progress(Member(3)))
    producer.commit()

    assert stored(cluster) == {("g", "t", 0): 7}


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
def test_a_refusal_of_positions_aborts_and_the_next_transaction_goes_on(
    cluster: ScriptedCluster, producer: Producer, code: ErrorCode
) -> None:
    cluster.transactions.refuse(ApiKey.TXN_OFFSET_COMMIT, code)
    with pytest.raises(Exception, match=code.name):
        producer.send_offsets({("t", 0): 5}, group="g")
    producer.abort()
    producer.begin()
    producer.send_offsets({("t", 0): 6}, group="g")
    producer.commit()

    assert stored(cluster) == {("g", "t", 0): 6}


def test_positions_of_a_topic_that_is_gone_spoil_the_transaction(cluster: ScriptedCluster, producer: Producer) -> None:
    cluster.transactions.refuse(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    with pytest.raises(CommitFailed):
        producer.send_offsets({("t", 0): 5}, group="g")


def test_a_fenced_producer_finds_out_when_it_stores_positions(cluster: ScriptedCluster, producer: Producer) -> None:
    with client_of(cluster) as other:
        other.producer(transactional_id="q/0").begin()

        with pytest.raises(TransactionFailed, match="another producer has taken over"):
            producer.send_offsets({("t", 0): 5}, group="g")
        with pytest.raises(ProducerFenced):
            producer.abort()


def test_positions_outside_a_transaction_are_refused(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.commit()

    with pytest.raises(InvalidTransactionState):
        producer.send_offsets({("t", 0): 5}, group="g")


@pytest.mark.parametrize(
    ("source", "group", "error"),
    [
        ({("t", 0): 5}, None, NoGroup),
        ({("t", 0): 5}, "", InvalidGroupName),
        ({("t", 0): -5}, "g", InvalidRequest),
        (Progress("g", {}), "other", InvalidRequest),
    ],
)
def test_positions_that_cannot_be_are_refused_and_spoil_nothing(
    cluster: ScriptedCluster, producer: Producer, source: Any, group: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        producer.send_offsets(source, group=group)
    producer.send("t", b"1")
    producer.commit()

    assert [each[1] for each in cluster.transactions.ended] == [MarkerType.COMMIT]


def test_a_consumer_without_a_group_has_no_positions_to_store(cluster: ScriptedCluster, producer: Producer) -> None:
    with client_of(cluster) as other, pytest.raises(NoGroup):
        producer.send_offsets(other.consumer())


# --- left open -------------------------------------------------------------------------------------------


def test_a_producer_can_leave_its_transaction_open(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.submit("t", b"1")
    left_open = producer.detach()

    found = cluster.transactions.by_id["q/0"]
    assert left_open == OpenTransaction("q/0", found.producer_id, found.epoch)
    assert found.is_open
    assert producer.is_closed
    assert cluster.partition("t").values() == [b"1"]


def test_a_detached_producer_is_closed(producer: Producer) -> None:
    producer.send("t", b"1")
    producer.detach()

    with pytest.raises(ClientClosed):
        producer.begin()


def test_nothing_sent_is_nothing_left_open(cluster: ScriptedCluster, producer: Producer) -> None:
    assert producer.detach() is None
    assert not cluster.transactions.by_id["q/0"].is_open


def test_what_could_not_be_sent_is_not_left_open(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.send("t", b"0")
    cluster.partition("t").refusals.append(ErrorCode.MESSAGE_TOO_LARGE)
    producer.submit("t", b"1")

    with pytest.raises(RecordTooLarge):
        producer.detach()

    assert [each[1] for each in cluster.transactions.ended] == [MarkerType.ABORT]


# --- several as one --------------------------------------------------------------------------------------


@pytest.fixture
def client(cluster: ScriptedCluster) -> Iterator[Client]:
    cluster.create("t", 3)
    with client_of(cluster) as made:
        yield made


def left_open(client: Client, count: int) -> list[OpenTransaction]:
    found = []
    for slot in range(count):
        with client.producer(transactional_id=f"q/{slot}") as producer:
            producer.begin()
            producer.send("t", b"%d" % slot, partition=slot)
            one = producer.detach()
            assert one is not None
            found.append(one)
    return found


def test_transactions_are_committed_together_once(cluster: ScriptedCluster, client: Client) -> None:
    transactions = left_open(client, 3)
    admin = client.admin()

    assert (admin.is_committed("q", 7), admin.last_committed("q")) == (False, None)
    assert admin.commit_together("q", 7, transactions) is False
    assert admin.commit_together("q", 7, transactions) is True
    assert (admin.is_committed("q", 7), admin.last_committed("q")) == (True, 7)
    assert [name for name, _, _ in cluster.transactions.ended] == ["q/0", "q/1", "q/2"]


def test_a_commit_of_several_whose_answer_is_lost_is_asked_for_again(cluster: ScriptedCluster, client: Client) -> None:
    transactions = left_open(client, 2)
    cluster.fault(ApiKey.COMMIT_TOGETHER, lose_answer)

    assert client.admin().commit_together("q", 7, transactions) is True
    assert len(cluster.transactions.ended) == 2


def test_a_commit_of_several_without_any_answer_is_uncertain(cluster: ScriptedCluster, client: Client) -> None:
    transactions = left_open(client, 2)
    cluster.fault(ApiKey.COMMIT_TOGETHER, *[lose_request] * 1_000)

    with pytest.raises(CommitUncertain, match="not known whether"):
        client.admin().commit_together("q", 7, transactions)


def test_a_commit_of_several_that_is_refused_is_not_uncertain(cluster: ScriptedCluster, client: Client) -> None:
    transactions = left_open(client, 2)
    cluster.transactions.refuse(ApiKey.COMMIT_TOGETHER, ErrorCode.PRODUCER_FENCED)

    with pytest.raises(ProducerFenced):
        client.admin().commit_together("q", 7, transactions)


def test_transactions_can_be_kept_open(cluster: ScriptedCluster, client: Client) -> None:
    transactions = left_open(client, 2)
    client.admin().keep_transactions("q", transactions)
    cluster.transactions.refuse(ApiKey.KEEP_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE)

    with pytest.raises(InvalidTransactionState):
        client.admin().keep_transactions("q", transactions)


def test_other_brokers_are_said_not_to_have_it(cluster: ScriptedCluster, client: Client) -> None:
    for key in (ApiKey.COMMIT_TOGETHER, ApiKey.DESCRIBE_COMMIT, ApiKey.KEEP_TRANSACTIONS):
        del cluster.versions[key]
    admin = client.admin()

    with pytest.raises(UnsupportedVersion, match="Ottla's own"):
        admin.commit_together("q", 7, [])
    with pytest.raises(UnsupportedVersion, match="Ottla's own"):
        admin.is_committed("q", 7)
    with pytest.raises(UnsupportedVersion, match="Ottla's own"):
        admin.keep_transactions("q", [])


def test_the_private_apis_are_asked_for_where_the_version_can_carry_it(
    cluster: ScriptedCluster, client: Client
) -> None:
    client.admin().list_topics()
    cluster.versions[ApiKey.API_VERSIONS] = (0, 2)
    cluster.fault(ApiKey.METADATA, lose_request)
    client.admin().list_topics()

    told = [
        (call.version, dict(call.message.unknown_tags))
        for call in cluster.calls
        if isinstance(call.message, ApiVersionsRequest)
    ]
    assert told == [(4, {PRIVATE_APIS_TAG: b""}), (4, {PRIVATE_APIS_TAG: b""}), (2, {})]
