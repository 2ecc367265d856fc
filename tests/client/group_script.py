"""A group's coordinator that says what a test has written down, for a member that is driven step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.coordinator import Coordinator
from ottla.client.group_member import Change, GroupMember, Subscription
from ottla.client.settings import ClientSettings
from ottla.client.transport import Call, Reply, run_now
from ottla.client.values import TopicPartition
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode_bytes
from ottla.protocol.messages.find_coordinator import Coordinator as Found
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
from ottla.protocol.schema import Message
from tests.client.scripted_broker import ScriptedCluster

M = TypeVar("M", bound=Message)


class Flag:
    """A signal that only counts."""

    def __init__(self) -> None:
        self.times = 0

    def set(self) -> None:
        self.times += 1

    async def wait(self, timeout_ms: int | None) -> None:
        raise AssertionError("a member does not wait by itself")


class Stage:
    """A member, the coordinator that it talks to, and what was said."""

    def __init__(self) -> None:
        self.world = ScriptedCluster()
        self.news = Flag()
        self.wake = Flag()
        self.asked: list[Any] = []
        self.cluster = Cluster(
            self.world.transport(), [self.world.nodes[1]], settings=ClientSettings(), ticks=self.world.clock
        )
        self.coordinator = Coordinator(self.cluster, "g")
        self.is_coordinator()

    def is_coordinator(self) -> None:
        """The next one who asks for the coordinator is told of the only broker."""
        address = self.world.nodes[1]
        found = Found(key="g", node_id=1, host=address.host, port=address.port)
        self.world.fault(ApiKey.FIND_COORDINATOR, lambda call, do: FindCoordinatorResponse(coordinators=[found]))

    def says(self, api_key: ApiKey, *answers: Message | Exception) -> None:
        """What the coordinator answers next to requests of this kind."""
        for answer in answers:
            self.world.fault(api_key, self._answering(answer))

    def _answering(self, answer: Message | Exception) -> Callable[[Call, Callable[[], Reply]], Reply]:
        def give(call: Call, carry_out: Callable[[], Reply]) -> Reply:
            # What the version cannot carry must not be said.
            encode_bytes(call.message, call.version)
            self.asked.append(call.message)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return give

    def requests(self, kind: type[M]) -> list[M]:
        return [message for message in self.asked if isinstance(message, kind)]

    def pass_time(self, by_ms: int) -> None:
        self.world.clock.advance(by_ms)


def step(member: GroupMember) -> int | None:
    return run_now(member.step())


def settle(member: GroupMember) -> list[Change]:
    """Do everything that the member wants to be done, as a reader would."""
    done = []
    while (change := member.next_change()) is not None:
        done.append(change)
        member.settled(change)
    return done


def to_topics(*names: str, pattern: str | None = None) -> Subscription:
    return Subscription(frozenset(names), pattern)


def parts(text: str, topic: str = "t") -> frozenset[TopicPartition]:
    """ "0 1" are two partitions of topic t."""
    return frozenset(TopicPartition(topic, int(number)) for number in text.split())
