"""The admin's part that looks at groups: list, describe, positions and lag, reset, delete.

Coroutines that await the transport alone; see `transport`. Each group is asked for at its own coordinator; what may
pass is tried again for one request's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.cluster import UNANSWERED
from ottla.client.commits import NOBODY, fetch_offsets, forget_offsets, store_offsets
from ottla.client.coordinator import Coordinator
from ottla.client.errors import PartitionNotFound, TopicNotFound, UnsupportedVersion
from ottla.client.errors_by_code import error_for
from ottla.client.group_names import check_group_name
from ottla.client.insistence import Insisting
from ottla.client.offsets import OffsetFound, list_offsets, topic_with
from ottla.client.settings import Isolation, check_isolation
from ottla.client.subscriptions import decode_assignment, decode_subscription
from ottla.client.values import Committed, OffsetSpec, TopicPartition, partitions_named
from ottla.error_codes import ErrorCode
from ottla.errors import InvalidRequest, ProtocolError, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import consumer_group_describe, describe_groups
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
CONSUMER = "consumer"
DEAD = "Dead"
EMPTY = "Empty"
HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
"""What a coordinator answers to somebody who commits for a group that has members."""


class GroupListing(NamedTuple):
    """A group, by name and kind."""

    group: str
    state: str
    """As the broker calls it: Stable, Empty, PreparingRebalance, ...; empty where it is too old to tell."""
    kind: str
    """`classic` or `consumer`, by the protocol that its members use."""
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    """What it wants to read, where it says so in a way that we understand."""
    pattern: str | None
    partitions: tuple[TopicPartition, ...]
    """What it reads."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    group: str
    kind: str
    state: str
    assignor: str
    epoch: int | None
    """Of a consumer group."""
    members: tuple[MemberDescription, ...]

    @property
    def has_members(self) -> bool:
        return bool(self.members) or self.state not in (EMPTY, DEAD)


class PartitionLag(NamedTuple):
    """How far a group is in a partition."""

    committed: Committed | None
    start: int | None
    end: int | None
    """None: the topic is gone, or its leader cannot be asked."""

    @property
    def lag(self) -> int | None:
        """Records that are still to be read; None where that is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed.offset)


class AsyncGroupAdmin(Insisting):
    """Looks at groups."""

    async def list_groups(self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()) -> list[GroupListing]:
        """All groups of the cluster, or those in these states and of these kinds."""
        found: dict[str, GroupListing] = {}

        async def attempt() -> None:
            await self._cluster.refresh(())
            for address in list(self._cluster.topology.nodes.values()):
                response = await self._cluster.ask(address, ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
                if response.error_code:
                    raise error_for(response.error_code, about=f"{address}: ListGroups")
                for each in response.groups:
                    kind = each.group_type.lower() or CLASSIC
                    found[each.group_id] = GroupListing(each.group_id, each.group_state, kind, each.protocol_type)

        await self._insist(attempt)
        wanted_states = {state.lower() for state in states}
        wanted_kinds = {kind.lower() for kind in kinds}
        return sorted(
            each
            for each in found.values()
            if (not wanted_states or each.state.lower() in wanted_states)
            and (not wanted_kinds or each.kind in wanted_kinds)
        )

    async def describe_group(self, group: str) -> GroupDescription | None:
        """A group's state, members and what they read; None when there is no such group."""
        coordinator = self._coordinator(group)
        return await coordinator.insist(lambda: self._describe(coordinator), deadline_ms=coordinator.deadline_ms())

    async def describe_groups(self, groups: Iterable[str]) -> dict[str, GroupDescription | None]:
        """The same for several."""
        return {group: await self.describe_group(group) for group in dict.fromkeys(groups)}

    async def _describe(self, coordinator: Coordinator) -> GroupDescription | None:
        """A group of one kind is unknown to those who ask for the other."""
        try:
            await coordinator.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
        except UnsupportedVersion:
            return await self._describe_classic(coordinator)
        request = ConsumerGroupDescribeRequest(group_ids=[coordinator.group])
        response = await coordinator.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request, ConsumerGroupDescribeResponse)
        described = response.groups[0]
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return await self._describe_classic(coordinator)
        if described.error_code:
            about = f"group {coordinator.group!r}"
            raise error_for(described.error_code, about=about, message=described.error_message)
        members = tuple(_consumer_member(each) for each in described.members)
        return GroupDescription(
            coordinator.group, CONSUMER, described.group_state, described.assignor_name, described.group_epoch, members
        )

    async def _describe_classic(self, coordinator: Coordinator) -> GroupDescription | None:
        request = DescribeGroupsRequest(groups=[coordinator.group])
        response = await coordinator.ask(ApiKey.DESCRIBE_GROUPS, request, DescribeGroupsResponse)
        described = response.groups[0]
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == DEAD:
            return None
        if described.error_code:
            raise error_for(described.error_code, about=f"group {coordinator.group!r}", message=described.error_message)
        members = tuple(_classic_member(each) for each in described.members)
        return GroupDescription(
            coordinator.group, CLASSIC, described.group_state, described.protocol_data, None, members
        )

    # --- positions -----------------------------------------------------------------------------------

    async def group_offsets(self, group: str) -> dict[TopicPartition, Committed]:
        """All positions that a group has committed; none for a group that is not there."""
        coordinator = self._coordinator(group)

        async def attempt() -> dict[TopicPartition, Committed]:
            try:
                return await fetch_offsets(coordinator, None, stable_only=False)
            except Refusal as e:
                if e.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return {}
                raise

        return await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())

    async def group_lag(
        self, group: str, *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, PartitionLag]:
        """How far a group is in every partition that it has committed or that a member reads.

        For readers of committed records a partition ends where the first open transaction begins.
        """
        level = check_isolation(isolation)
        committed = await self.group_offsets(group)
        described = await self.describe_group(group)
        members = described.members if described is not None else ()
        read = {key for member in members for key in member.partitions}
        keys = sorted(committed.keys() | read)
        starts = await self._offsets(keys, OffsetSpec.EARLIEST, level)
        ends = await self._offsets(keys, OffsetSpec.LATEST, level)
        return {key: PartitionLag(committed.get(key), starts.get(key), ends.get(key)) for key in keys}

    async def _offsets(
        self, keys: Iterable[TopicPartition], spec: OffsetSpec, isolation: int
    ) -> dict[TopicPartition, int]:
        """Offsets of the partitions that are there."""
        deadline_ms = self._cluster.ticks.now_ms() + self._cluster.settings.request_timeout_ms
        wanted: dict[TopicPartition, int] = {}
        for key in keys:
            try:
                view = await topic_with(self._cluster, key, deadline_ms)
            except (TopicNotFound, PartitionNotFound):
                continue
            if key.partition in view.available:
                wanted[key] = spec
        found: dict[TopicPartition, OffsetFound | None] = await list_offsets(
            self._cluster, wanted, isolation=isolation, deadline_ms=deadline_ms
        )
        return {key: place.offset for key, place in found.items() if place is not None}

    async def alter_group_offsets(self, group: str, positions: Mapping[tuple[str, int], int | Committed]) -> None:
        """Set a group's positions; refused (NON_EMPTY_GROUP) while it has members, who would not notice."""
        coordinator = self._coordinator(group)
        wanted: dict[TopicPartition, Committed] = {}
        for (topic, partition), place in positions.items():
            entry = place if isinstance(place, Committed) else Committed(place)
            if entry.offset < 0:
                raise InvalidRequest(f"{topic}-{partition}: {entry.offset} is no offset")
            wanted[TopicPartition(topic, partition)] = entry
        for key in wanted:
            await topic_with(self._cluster, key, coordinator.deadline_ms())

        async def attempt() -> None:
            try:
                await store_offsets(coordinator, wanted, NOBODY, ids={})
            except Refusal as e:
                if e.code in HAS_MEMBERS:
                    raise _has_members(group) from e
                raise

        if wanted:
            await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())

    async def delete_group_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget positions of a group; refused (GROUP_SUBSCRIBED_TO_TOPIC) for topics that a member reads."""
        coordinator = self._coordinator(group)
        wanted = partitions_named(partitions)
        refused = await coordinator.insist(
            lambda: forget_offsets(coordinator, wanted), deadline_ms=coordinator.deadline_ms()
        )
        for key, code in refused.items():
            raise error_for(code, about=f"{key.topic}-{key.partition} of group {group!r}")

    # --- deletion ------------------------------------------------------------------------------------

    async def delete_group(self, group: str) -> None:
        """Delete a group with all its positions; refused (NON_EMPTY_GROUP) while it has members."""
        coordinator = self._coordinator(group)

        may_be_done = False

        async def attempt() -> None:
            nonlocal may_be_done
            request = DeleteGroupsRequest(groups_names=[group])
            try:
                response = await coordinator.ask(ApiKey.DELETE_GROUPS, request, DeleteGroupsResponse)
            except UNANSWERED:
                may_be_done = True
                raise
            for result in response.results:
                if result.error_code == ErrorCode.NON_EMPTY_GROUP:
                    raise _has_members(group)
                if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND and may_be_done:
                    return
                if result.error_code:
                    raise error_for(result.error_code, about=f"group {group!r}")

        await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms())

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Delete several, whatever becomes of the others; raises the first refusal afterwards."""
        problem: Refusal | None = None
        for group in dict.fromkeys(groups):
            try:
                await self.delete_group(group)
            except Refusal as e:
                problem = problem or e
        if problem is not None:
            raise problem

    def _coordinator(self, group: str) -> Coordinator:
        return Coordinator(self._cluster, check_group_name(group))


def _has_members(group: str) -> Refusal:
    return error_for(
        ErrorCode.NON_EMPTY_GROUP, about=f"group {group!r}", message="it has members; stop them and try again"
    )


def _consumer_member(told: consumer_group_describe.Member) -> MemberDescription:
    return MemberDescription(
        told.member_id,
        told.instance_id,
        told.client_id,
        told.client_host,
        tuple(sorted(told.subscribed_topic_names)),
        told.subscribed_topic_regex or None,
        tuple(
            sorted(
                TopicPartition(topic.topic_name, number)
                for topic in told.assignment.topic_partitions
                for number in topic.partitions
            )
        ),
    )


def _classic_member(told: describe_groups.DescribedGroupMember) -> MemberDescription:
    """Members of other kinds of groups (Connect, say) tell each other things that we do not understand."""
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    try:
        partitions = tuple(sorted(decode_assignment(told.member_assignment)))
        wanted = decode_subscription(told.member_metadata, told.member_id, None, previous_in_user_data=False)
        topics = tuple(sorted(wanted.topics))
    except ProtocolError:
        # In the middle of a rebalance there is nothing to read yet, either.
        pass
    return MemberDescription(
        told.member_id, told.group_instance_id, told.client_id, told.client_host, topics, None, partitions
    )
