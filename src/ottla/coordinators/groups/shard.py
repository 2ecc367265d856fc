"""One shard of the group coordinator: the groups and offsets that one partition of `__consumer_offsets` holds.

Decides which protocol a request belongs to, by the kind of the group that it names, and no more: the classic protocol
is in `classic`, the consumer protocol in `consumer`, offsets in `offsets_*`. A group may change its kind while it is
used, so each request looks anew.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinators.groups.classic import ClassicProtocol
from ottla.coordinators.groups.classic_group import ClassicGroup
from ottla.coordinators.groups.classic_member import ApiVersion, check_protocols
from ottla.coordinators.groups.consumer import ConsumerProtocol
from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.listing import EMPTY, Listing
from ottla.coordinators.groups.member_facts import ClientFacts
from ottla.coordinators.groups.offsets import Offsets
from ottla.coordinators.groups.offsets_commit import OffsetCommits
from ottla.coordinators.groups.offsets_expiry import OffsetExpiry
from ottla.coordinators.groups.offsets_fetch import OffsetFetches
from ottla.coordinators.groups.offsets_pending import PendingOffsets
from ottla.coordinators.groups.offsets_transaction import TransactionalCommits
from ottla.coordinators.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    PendingOffsetValue,
)
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.errors import GroupIdNotFound
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.schema import Message
from ottla.records.control import MarkerType


class GroupShard:
    """The state machine of a shard."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Callable[[], TopicsView],
        new_member_id: Callable[[str], str],
        *,
        is_first_life: bool = True,
    ) -> None:
        """`is_first_life` says that nothing of this shard was in this process before."""
        self.groups = Groups()
        self.offsets = Offsets()
        self.pending = PendingOffsets()
        self._classic = ClassicProtocol(self.groups, settings, new_member_id)
        self._consumer = ConsumerProtocol(self.groups, settings, topics, new_member_id)
        self._commits = OffsetCommits(self.offsets, self.pending, self.groups, settings, topics)
        self._transactional = TransactionalCommits(self.pending, self.offsets, self.groups, settings, topics)
        self._fetches = OffsetFetches(self.offsets, self.pending, self.groups, topics)
        self._expiry = OffsetExpiry(self.offsets, self.pending, self.groups, settings, topics)
        self._listing = Listing(self.groups, self.offsets, self.pending)
        self._is_first_life = is_first_life

    # --- membership ------------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """A consumer group that nobody is in is begun anew, as a classic one, whatever its members will be."""
        check_protocols(request)
        group = self.groups.of_kind(request.group_id, ConsumerGroup)
        if group is not None and group.members:
            self._consumer.join(request, version, client, ticket, outcome, now_ms)
            return
        self._classic.join(request, version, client, ticket, outcome, now_ms)
        if group is not None:
            # Not before: a join that was refused must leave nothing written. The classic group has its place by now,
            # so these only clear the log.
            group.delete(outcome)

    def sync(self, request: SyncGroupRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        if self._is_consumer(request.group_id):
            self._consumer.sync(request, ticket, outcome, now_ms)
        else:
            self._classic.sync(request, ticket, outcome, now_ms)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        if self._is_consumer(request.group_id):
            self._consumer.heartbeat_classic(request, ticket, outcome, now_ms)
        else:
            self._classic.heartbeat(request, ticket, outcome, now_ms)

    def leave(
        self, request: LeaveGroupRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        if self._is_consumer(request.group_id):
            self._consumer.leave(request, version, ticket, outcome, now_ms)
        else:
            self._classic.leave(request, version, ticket, outcome, now_ms)

    def heartbeat_consumer(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: ApiVersion,
        client: ClientFacts,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
    ) -> None:
        """Whether a classic group may become a consumer group is the consumer protocol's to say."""
        self._consumer.heartbeat(request, version, client, ticket, outcome, now_ms)

    # --- offsets -----------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        self._commits.commit(request, version, ticket, outcome, now_ms)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, version: ApiVersion, ticket: Ticket, outcome: Outcome, now_ms: int
    ) -> None:
        """Store offsets until their transaction ends. That it is open is the caller's to know, in this very moment."""
        self._transactional.commit(request, ticket, outcome, now_ms)

    def end_transaction(
        self,
        response: Message,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
        *,
        producer_id: int,
        producer_epoch: int,
        marker_type: MarkerType,
    ) -> None:
        """Commit or forget what a transaction has stored; answered with `response` once that is durable."""
        self._transactional.end(
            response,
            ticket,
            outcome,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            marker_type=marker_type,
        )

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        version: ApiVersion,
        ticket: Ticket,
        outcome: Outcome,
        now_ms: int,
        *,
        require_stable: bool = False,
    ) -> None:
        """With `require_stable`, partitions for which a transaction holds an offset are refused until it has ended."""
        self._fetches.fetch(request, version, ticket, outcome, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._commits.delete(request, ticket, outcome, now_ms)

    # --- tools -------------------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        outcome.reply(ticket, ListGroupsResponse(groups=self._listing.listed(request)))

    def describe_classic(self, group_id: str, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Answer with a DescribedGroup. A consumer group is told as if it were classic.

        Kafka says that there is none; but clients that know no other API would take it for dead then.
        """
        group = self.groups.of_kind(group_id, ClassicGroup)
        if group is not None:
            outcome.reply(ticket, group.described())
        elif self._is_consumer(group_id):
            outcome.reply(ticket, self._consumer.described_as_classic(group_id))
        elif not self._listing.is_group(group_id):
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        else:
            outcome.reply(ticket, DescribedGroup(group_id=group_id, group_state=EMPTY))

    def describe_consumer(self, group_id: str, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        """Answer with a DescribedGroup of ConsumerGroupDescribe."""
        if not self._is_consumer(group_id):
            raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
        outcome.reply(ticket, self._consumer.described(group_id))

    def delete_group(self, group_id: str, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        self._listing.delete(group_id, outcome)
        outcome.reply(ticket, DeletableGroupResult(group_id=group_id))

    # --- what the runtime and the broker tell ------------------------------------------------------------

    def topics_changed(self, outcome: Outcome, now_ms: int, *, is_any_deleted: bool) -> None:
        """There are other topics than before, or other partitions."""
        if is_any_deleted:
            self._expiry.topics_deleted(outcome, now_ms)
        self._consumer.topics_changed(outcome, now_ms)

    def replay(self, key: Message, value: Message | None) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)
            if value is not None:
                self.pending.replay_committed(key, value)
        elif isinstance(key, PendingOffsetKey):
            assert value is None or isinstance(value, PendingOffsetValue)
            self.pending.replay(key, value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._classic.replay(key, value)
        else:
            self._consumer.replay(key, value)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        self._classic.loaded(outcome, now_ms)
        self._consumer.loaded(outcome, now_ms)
        if self._is_first_life:
            self._classic.expire_embedded(outcome, now_ms)
            self._consumer.expire_embedded(outcome, now_ms)
        self._expiry.loaded(outcome, now_ms)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        if key[0] == "classic":
            self._classic.on_timer(key, outcome, now_ms)
        elif key[0] == "consumer":
            self._consumer.on_timer(key, outcome, now_ms)
        else:
            self._expiry.on_timer(key, outcome, now_ms)

    def _is_consumer(self, group_id: str) -> bool:
        return self.groups.of_kind(group_id, ConsumerGroup) is not None
