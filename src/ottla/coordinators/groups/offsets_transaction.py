"""TxnOffsetCommit, and what becomes of its offsets when the transaction ends.

A pending offset is a record of its own, and the end of a transaction is one decision: the offsets of all groups of this
shard that it has stored are committed, and their pending records cleared, in one batch, so that a crash keeps all of it
or nothing. Whether there is such a transaction at all is asked of its coordinator before anything comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.coordinators.groups.groups import Groups, check_group_id
from ottla.coordinators.groups.offsets import Offsets
from ottla.coordinators.groups.offsets_limits import check_offset, check_sizes
from ottla.coordinators.groups.offsets_pending import (
    Pending,
    PendingOffsets,
    deleting_bytes,
    ending_bytes,
    forgetting_bytes,
    storing_bytes,
)
from ottla.coordinators.groups.records import PendingOffsetKey, PendingOffsetValue
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.error_codes import ErrorCode
from ottla.errors import IllegalGeneration, InvalidProducerEpoch, Refusal, StaleMemberEpoch
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema import NO_UUID, Message
from ottla.records.control import MarkerType


class TransactionalCommits:
    """Decides what a transaction stores, and what of it is committed."""

    def __init__(
        self,
        pending: PendingOffsets,
        offsets: Offsets,
        groups: Groups,
        settings: GroupSettings,
        topics: Callable[[], TopicsView],
    ) -> None:
        self._pending = pending
        self._offsets = offsets
        self._groups = groups
        self._settings = settings
        self._topics = topics

    # --- TxnOffsetCommit ---------------------------------------------------------------------------------

    def commit(self, request: TxnOffsetCommitRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Store what may be stored until the transaction ends, and say so once it is durable."""
        check_group_id(request.group_id)
        self._may_commit(request)
        stale = self._stale(request)
        topics = self._topics()
        order = self._pending.next_order
        # A partition that is named twice has the offset that comes last.
        wanted: dict[PendingOffsetKey, PendingOffsetValue] = {}
        answers = []
        for topic in request.topics:
            topic_id = topics.topic_id(topic.name) or NO_UUID
            partitions = []
            for partition in topic.partitions:
                index, metadata = partition.partition_index, partition.committed_metadata
                code = ErrorCode.NONE
                try:
                    check_offset(topic.name, index, metadata, topics=topics, settings=self._settings)
                except Refusal as refusal:
                    code = refusal.code
                else:
                    key = PendingOffsetKey(
                        producer_id=request.producer_id, group=request.group_id, topic=topic.name, partition=index
                    )
                    wanted[key] = PendingOffsetValue(
                        offset=partition.committed_offset,
                        leader_epoch=partition.committed_leader_epoch,
                        metadata=metadata or "",
                        commit_timestamp=now_ms,
                        producer_epoch=request.producer_epoch,
                        order=order,
                        topic_id=topic_id,
                    )
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
            answers.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        self._check_sizes(request, wanted, stale)
        for pending in stale:
            outcome.write(pending.key, None)
        for key, value in wanted.items():
            outcome.write(key, value)
        outcome.reply(ticket, TxnOffsetCommitResponse(topics=answers))

    def _may_commit(self, request: TxnOffsetCommitRequest) -> None:
        """As Kafka: a producer that tells nothing of a member may commit for any group, also for one with members.

        It does not keep the member alive, either: that is for plain commits and heartbeats.
        """
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise IllegalGeneration(
                    f"there is no group {request.group_id!r}, so it has no generation {request.generation_id}"
                )
            return
        try:
            group.check_commit(
                request.member_id, request.group_instance_id, request.generation_id, is_transactional=True
            )
        except StaleMemberEpoch as error:
            # No producer knows that code; this one makes it abort the transaction and go on.
            raise IllegalGeneration(str(error)) from error

    def _stale(self, request: TxnOffsetCommitRequest) -> list[Pending]:
        """What an older epoch of the producer has left behind.

        A new epoch begins only when all that the old one did is at its end, so nothing can commit these any more.
        """
        stale = []
        for pending in self._pending.of_producer(request.producer_id):
            if pending.value.producer_epoch > request.producer_epoch:
                raise InvalidProducerEpoch(
                    f"producer {request.producer_id} has come to epoch {pending.value.producer_epoch}"
                )
            if pending.value.producer_epoch < request.producer_epoch:
                stale.append(pending)
        return stale

    def _check_sizes(
        self,
        request: TxnOffsetCommitRequest,
        wanted: Mapping[PendingOffsetKey, PendingOffsetValue],
        stale: list[Pending],
    ) -> None:
        """See to it that this can be written, and that the transaction can be ended and the group deleted in one go."""
        group_id = request.group_id
        commit_bytes = sum(forgetting_bytes(each.key.group, each.topic) for each in stale)
        group_bytes = self._offsets.tombstones_bytes(group_id) + self._pending.deleting_bytes(group_id)
        transaction_bytes = 0 if stale else self._pending.ending_bytes(request.producer_id)
        for key, value in wanted.items():
            commit_bytes += storing_bytes(key, value)
            transaction_bytes += ending_bytes(key, value)
            known = self._pending.get(key)
            if known is None:
                group_bytes += deleting_bytes(group_id, key.topic)
            elif not stale:
                transaction_bytes -= ending_bytes(key, known)
        check_sizes(commit_bytes=commit_bytes, group_bytes=group_bytes, transaction_bytes=transaction_bytes)

    # --- the end of a transaction ------------------------------------------------------------------------

    def end(
        self,
        response: Message,
        ticket: Ticket,
        outcome: Outcome,
        *,
        producer_id: int,
        producer_epoch: int,
        marker_type: MarkerType,
    ) -> None:
        """Commit or forget what the producer's transaction has stored; where there is nothing, just answer.

        The marker's epoch is the transaction's own, or the one after it where the end raises the epoch.
        """
        topics = self._topics()
        for pending in self._pending.of_producer(producer_id):
            key, value = pending
            if value.producer_epoch > producer_epoch:
                # The end of an earlier transaction, told once more: this one has begun since.
                continue
            is_of_transaction = value.producer_epoch >= producer_epoch - 1
            is_wanted = is_of_transaction and not self._pending.is_overtaken(key)
            if marker_type is MarkerType.COMMIT and is_wanted and topics.topic_id(key.topic) == value.topic_id:
                outcome.write(pending.committed_key, pending.committed_value)
            outcome.write(key, None)
        outcome.reply(ticket, response)
