"""What a transactional producer asks of coordinators: one request and its answer each.

Raises what was refused. When to try again, and what a refusal means for the transaction, is `transactions`' business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.client.accumulator import NOBODY, Identity
from ottla.client.commits import NOBODY as NO_MEMBER
from ottla.client.commits import Identity as MemberIdentity
from ottla.client.coordinator import Coordinator
from ottla.client.errors import UnsupportedVersion
from ottla.client.errors_by_code import error_for
from ottla.client.subscriptions import by_topic
from ottla.client.values import Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import ProtocolError, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

RESUME_SINCE = 3
"""The first version of InitProducerId that lets a producer say who it has been."""
CLIENT_ADDS_LAST = 3
"""The last version of AddPartitionsToTxn that is for clients."""
END_EXPLICIT_LAST = 4
"""The last version of EndTxn that leaves the epoch as it is; the next one belongs to transactions version 2."""
OFFSETS_EXPLICIT_LAST = 4
"""The last version of TxnOffsetCommit that does not add the group itself."""
MEMBERS_SINCE = 3
"""The first version of TxnOffsetCommit that says which member commits."""


async def init_producer(coordinator: Coordinator, *, timeout_ms: int, resumed: Identity = NOBODY) -> Identity:
    """Who to be from now on; `resumed`: who we have been, so that we are refused if somebody has taken over."""
    if resumed != NOBODY and await coordinator.version(ApiKey.INIT_PRODUCER_ID) < RESUME_SINCE:
        raise UnsupportedVersion(
            f"{coordinator.about}: this broker is too old to go on after a failure; make a new producer"
        )
    request = InitProducerIdRequest(
        transactional_id=coordinator.group,
        transaction_timeout_ms=timeout_ms,
        producer_id=resumed.producer_id,
        producer_epoch=resumed.epoch,
    )
    response = await coordinator.ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
    if response.error_code:
        raise _refused(response.error_code, coordinator)
    return Identity(response.producer_id, response.producer_epoch)


async def add_partitions(coordinator: Coordinator, identity: Identity, partitions: Collection[TopicPartition]) -> None:
    """Make partitions part of the transaction, all or none (version 1)."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=coordinator.group,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ],
    )
    response = await coordinator.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, version_max=CLIENT_ADDS_LAST
    )
    problem: Refusal | None = None
    for topic in response.results_by_topic_v3_and_below:
        for answer in topic.results_by_partition:
            if answer.partition_error_code in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED):
                continue
            about = f"{coordinator.about}: {topic.name}-{answer.partition_index}"
            found = error_for(answer.partition_error_code, about=about)
            # One that will not pass says more than one that may.
            problem = found if problem is None or problem.code.retriable else problem
    if problem is not None:
        raise problem


async def add_group(coordinator: Coordinator, identity: Identity, group: str) -> None:
    """Make the offsets of a group part of the transaction (version 1)."""
    request = AddOffsetsToTxnRequest(
        transactional_id=coordinator.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )
    response = await coordinator.ask(ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse)
    if response.error_code:
        raise _refused(response.error_code, coordinator)


async def store_offsets(
    group: Coordinator,
    transactional_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, Committed],
    member: MemberIdentity,
    *,
    implicit: bool,
) -> None:
    """Store positions of a group as part of the transaction; `implicit`: which makes the group part of it, too."""
    version_max = None if implicit else OFFSETS_EXPLICIT_LAST
    version = await group.version(ApiKey.TXN_OFFSET_COMMIT)
    if implicit and version <= OFFSETS_EXPLICIT_LAST:
        raise UnsupportedVersion(f"{group.about}: its broker does not know transactions version 2")
    if member != NO_MEMBER and version < MEMBERS_SINCE:
        raise UnsupportedVersion(f"{group.about}: its broker is too old to keep an outdated member from committing")
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.epoch,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic, partitions=[_stored(number, offsets[TopicPartition(topic, number)]) for number in numbers]
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    response = await group.ask(ApiKey.TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse, version_max=version_max)
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code:
                raise error_for(answer.error_code, about=f"{group.about}: {topic.name}-{answer.partition_index}")


def _stored(number: int, committed: Committed) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


async def end(coordinator: Coordinator, identity: Identity, *, committed: bool, implicit: bool) -> Identity:
    """End the transaction; returns who to be afterwards: in version 2 (`implicit`) somebody else."""
    if implicit and await coordinator.version(ApiKey.END_TXN) <= END_EXPLICIT_LAST:
        raise UnsupportedVersion(f"{coordinator.about}: its broker does not know transactions version 2")
    request = EndTxnRequest(
        transactional_id=coordinator.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=committed,
    )
    response = await coordinator.ask(
        ApiKey.END_TXN, request, EndTxnResponse, version_max=None if implicit else END_EXPLICIT_LAST
    )
    if response.error_code:
        raise _refused(response.error_code, coordinator)
    if not implicit or response.producer_id < 0:
        return identity
    return Identity(response.producer_id, response.producer_epoch)


async def describe(coordinator: Coordinator) -> TransactionState | None:
    """What the coordinator knows of the transactional id; None: nothing."""
    request = DescribeTransactionsRequest(transactional_ids=[coordinator.group])
    response = await coordinator.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, DescribeTransactionsResponse)
    if not response.transaction_states:
        raise ProtocolError(f"{coordinator.about}: the coordinator did not answer for it")
    told = response.transaction_states[0]
    if told.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if told.error_code:
        raise _refused(told.error_code, coordinator)
    return told


def _refused(code: int, coordinator: Coordinator) -> Refusal:
    return error_for(code, about=coordinator.about)
