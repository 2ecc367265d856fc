"""Members of one large group, as plain connections that speak the group protocols and read nothing.

Each is a task that does what Kafka's own clients do: the classic one joins, syncs and beats, the leader assigns with
the sticky assignor of Ottla's client; the one of the consumer protocol beats, gives back what it is told to and says
so at once. What is measured is the business of `big_group`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from ottla.client.assignors import ASSIGNORS
from ottla.client.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_previous,
    encode_subscription,
)
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.schema import Message

GROUP = "big"
TOPIC = "wide"
CLASSIC_BEAT_S = 3.0
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
LEAVE_EPOCH = -1
STICKY = ASSIGNORS["sticky"]

Changed = Callable[[], None]
"""Told whenever what a member owns may have changed."""


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, client_id: str) -> None:
        self._connection = ClientConnection(client_id)
        self._waiting: deque[asyncio.Future[Message]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by contract, not by class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for response in self._connection.receive(data):
            waiting = self._waiting.popleft()
            if not waiting.done():
                # Otherwise whoever asked was cancelled meanwhile.
                waiting.set_result(response.message)

    def connection_lost(self, error: Exception | None) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ConnectionError("the server has closed the connection"))

    async def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        """The answer to a request."""
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._transport.writelines(self._connection.send(key, version, request)[1])
        return await waiting

    def close(self) -> None:
        self._transport.close()


async def connect(host: str, port: int, client_id: str) -> Wire:
    """A connection that the server has taken, and not only the system."""
    _, wire = await asyncio.get_running_loop().create_connection(lambda: Wire(client_id), host, port)
    await wire.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("bench", "1"))
    return wire


class Member(Protocol):
    """What the measuring needs of a member of either protocol."""

    owned: frozenset[int]
    generation: int

    async def live(self) -> None:
        """Be a member until the task is cancelled."""
        ...

    async def leave(self) -> None:
        """Say good-bye; after `live` has ended."""
        ...


class ClassicMember:
    """Speaks the classic protocol, with the sticky assignor."""

    def __init__(self, wire: Wire, partition_count: int, changed: Changed) -> None:
        self._wire = wire
        self._partition_count = partition_count
        self._changed = changed
        self._member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()

    async def live(self) -> None:
        while True:
            joined = await self._join()
            answer = await self._wire.ask(ApiKey.SYNC_GROUP, 5, self._sync(joined))
            if answer.error_code:
                continue
            self.generation = joined.generation_id
            self.owned = frozenset(key.partition for key in decode_assignment(answer.assignment))
            self._changed()
            beat = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self._member_id)
            while not (await self._wire.ask(ApiKey.HEARTBEAT, 4, beat)).error_code:
                await asyncio.sleep(CLASSIC_BEAT_S)

    async def _join(self) -> JoinGroupResponse:
        while True:
            had = [TopicPartition(TOPIC, number) for number in self.owned]
            told = encode_previous(had, generation=self.generation)
            metadata = encode_subscription([TOPIC], owned=(), generation=self.generation, user_data=told)
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name=STICKY.name, metadata=metadata)],
            )
            answer: JoinGroupResponse = await self._wire.ask(ApiKey.JOIN_GROUP, 9, request)
            self._member_id = answer.member_id
            if answer.error_code == ErrorCode.NONE:
                return answer

    def _sync(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        assignments = []
        if joined.leader == self._member_id:
            members = [
                decode_subscription(each.metadata, each.member_id, None, previous_in_user_data=True)
                for each in joined.members
            ]
            shares = STICKY.assign(members, {TOPIC: self._partition_count})
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in shares.items()
            ]
        return SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=STICKY.name,
            assignments=assignments,
        )

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self._member_id)])
        await self._wire.ask(ApiKey.LEAVE_GROUP, 5, request)


class ConsumerMember:
    """Speaks the consumer protocol."""

    def __init__(self, wire: Wire, member_id: str, changed: Changed) -> None:
        self._wire = wire
        self._member_id = member_id
        self._changed = changed
        self._topic_id = bytes(16)
        self.generation = 0
        self.owned: frozenset[int] = frozenset()

    async def live(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        while True:
            answer = await self._wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
            assert answer.error_code == ErrorCode.NONE, (answer.error_code, answer.error_message)
            before = self.owned
            self.generation = answer.member_epoch
            if answer.assignment is not None:
                self._take(answer.assignment.topic_partitions)
            self._changed()
            if self.owned == before:
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
            request = self._beat(tells_owned=self.owned != before)

    def _take(self, assigned: Iterable[Any]) -> None:
        self.owned = frozenset(number for each in assigned for number in each.partitions)
        for each in assigned:
            self._topic_id = each.topic_id

    def _beat(self, *, tells_owned: bool, epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        parts = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))] if self.owned else []
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=self.generation if epoch is None else epoch,
            topic_partitions=parts if tells_owned else None,
        )

    async def leave(self) -> None:
        await self._wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, self._beat(tells_owned=False, epoch=LEAVE_EPOCH))
