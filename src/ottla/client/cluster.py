"""One user's way to a cluster: finds brokers, agrees on versions with each, keeps the metadata fresh.

A broker is asked for its versions before anything else, and again after its connection broke: it may have
been replaced. The highest version that both sides know is used. Which requests are sent, and what is done
about errors in responses, is the producer's, consumer's and admin's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

from ottla.client.errors import NetworkException, NoBrokerReachable, RequestTimedOut, TopicNotFound, UnsupportedVersion
from ottla.client.errors_by_code import error_for, is_retriable
from ottla.client.settings import Address, ClientSettings
from ottla.client.topology import TopicView, Topology
from ottla.client.transport import Call, Transport
from ottla.clock import Clock
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.api_keys import APIS, PRIVATE_APIS_TAG, ApiKey, is_private
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import Message

M = TypeVar("M", bound=Message)

SOFTWARE_NAME = "ottla"
SOFTWARE_VERSION = "0.1"
NAMED_TOPICS_SINCE = 1
"""Metadata 0 cannot ask for no topics at all."""
TAGS_SINCE = 3
"""The first version of ApiVersions that can carry what not everybody knows."""
AUTO_CREATE_SINCE = 4
"""Before this version of Metadata every question may create a topic."""

NOT_OTTLA = ": this is an API of Ottla's own, which other brokers do not have"

UNANSWERED = (NetworkException, RequestTimedOut)
"""Failures after which nobody knows what the broker did, and a new connection is needed."""
STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
"""Answers that say: what you know of this partition is out of date."""


class Acquaintance:
    """What everything that is made by one client knows of its brokers: whether one of them has ever answered."""

    def __init__(self) -> None:
        self.is_made = False


class Cluster:
    """The brokers that one producer, consumer or admin talks to."""

    def __init__(
        self,
        transport: Transport,
        bootstrap: Sequence[Address],
        *,
        settings: ClientSettings,
        ticks: Clock,
        acquaintance: Acquaintance | None = None,
    ) -> None:
        self.transport = transport
        self.settings = settings
        self.topology = Topology()
        self.ticks = ticks
        self._bootstrap = list(bootstrap)
        self._versions: dict[Address, dict[int, tuple[int, int]]] = {}
        self._features: dict[str, int] = {}
        """The levels that the cluster runs its features at, as told last."""
        self._features_epoch = -1
        self._stale: set[str] = set()
        self._acquaintance = acquaintance or Acquaintance()
        self._end_ms: int | None = None

    # --- time ----------------------------------------------------------------------------------------

    def end_by(self, deadline_ms: int) -> None:
        """The user is about to let go: nothing that is asked from now on may take longer than until then."""
        self._end_ms = deadline_ms

    def deadline_ms(self) -> int:
        """One request's time from now."""
        return self.ticks.now_ms() + self.time_ms(self.settings.request_timeout_ms)

    def time_ms(self, timeout_ms: int) -> int:
        """How long something may take that would like so much time."""
        if self._end_ms is None:
            return timeout_ms
        return max(1, min(timeout_ms, self._end_ms - self.ticks.now_ms()))

    # --- versions ------------------------------------------------------------------------------------

    def version(self, address: Address, api_key: ApiKey, *, version_max: int | None = None) -> int:
        """The highest version that both sides know, and not above `version_max`; after `meet`."""
        ours = APIS[api_key].versions
        first, last = self._versions[address].get(api_key, (0, -1))
        chosen = min(last, ours.last) if version_max is None else min(last, ours.last, version_max)
        if chosen < max(first, ours.first):
            raise UnsupportedVersion(
                f"{address}: {api_key.name} is served in versions {first}-{last}, this client knows {ours}"
                if last >= first
                else f"{address} does not serve {api_key.name}{NOT_OTTLA if is_private(api_key) else ''}"
            )
        return chosen

    def has_met(self, address: Address) -> bool:
        return address in self._versions

    async def meet(self, address: Address) -> None:
        """Learn which versions a broker serves, unless that is known."""
        if address in self._versions:
            return
        version = APIS[ApiKey.API_VERSIONS].versions.last
        response = await self._ask_versions(address, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker answers in version 0 and says up to where it goes.
            known = next((each for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS), None)
            version = min(version, known.max_version) if known is not None else 0
            response = await self._ask_versions(address, version)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, about=f"{address}: ApiVersions")
        self._acquaintance.is_made = True
        self._versions[address] = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self._learn_features(response)

    def _learn_features(self, response: ApiVersionsResponse) -> None:
        """A broker that is behind the others tells of an older epoch."""
        if response.finalized_features_epoch >= self._features_epoch:
            self._features_epoch = response.finalized_features_epoch
            self._features = {each.name: each.max_version_level for each in response.finalized_features}

    def feature(self, name: str) -> int:
        """The level that the cluster runs a feature at; 0 where it has told of none."""
        return self._features.get(name, 0)

    async def _ask_versions(self, address: Address, version: int) -> ApiVersionsResponse:
        # Brokers that do not know the tag pass over it; ours then tells of its own APIs too.
        message = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME,
            client_software_version=SOFTWARE_VERSION,
            unknown_tags=((PRIVATE_APIS_TAG, b""),) if version >= TAGS_SINCE else (),
        )
        call = Call(address, ApiKey.API_VERSIONS, version, message, self.time_ms(self.settings.request_timeout_ms))
        reply = await self.transport.request(call)
        assert isinstance(reply, ApiVersionsResponse), "a response is of its request's kind"
        return reply

    def may_pass(self, error: Exception) -> bool:
        """Whether it is worth trying again later.

        A cluster that cannot be reached is waited for, unless it never was: then the address is likely wrong.
        """
        return is_retriable(error) or (isinstance(error, NoBrokerReachable) and self._acquaintance.is_made)

    def lost(self, address: Address) -> None:
        """The connection broke: whoever answers there next may be another version of the broker."""
        self._versions.pop(address, None)

    # --- requests ------------------------------------------------------------------------------------

    async def ask(
        self,
        address: Address,
        api_key: ApiKey,
        message: Message,
        expected: type[M],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> M:
        """One request to one broker."""
        try:
            await self.meet(address)
            version = self.version(address, api_key, version_max=version_max)
            wait_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
            reply = await self.transport.request(Call(address, api_key, version, message, self.time_ms(wait_ms)))
        except UNANSWERED:
            self.lost(address)
            raise
        assert isinstance(reply, expected), "a response is of its request's kind"
        return reply

    def addresses(self) -> list[Address]:
        """Every address that may answer, those already met first."""
        known = dict.fromkeys(itertools.chain(self.topology.nodes.values(), self._bootstrap))
        return sorted(known, key=lambda address: address not in self._versions)

    async def ask_any(
        self, api_key: ApiKey, message: Message, expected: type[M], *, timeout_ms: int | None = None
    ) -> M:
        """One request to whichever broker answers first; NoBrokerReachable when none does."""
        failures: list[str] = []
        for address in self.addresses():
            try:
                return await self.ask(address, api_key, message, expected, timeout_ms=timeout_ms)
            except UNANSWERED as e:
                failures.append(str(e))
        raise NoBrokerReachable(f"no broker can be reached; tried: {'; '.join(failures)}")

    async def ask_controller(self, api_key: ApiKey, message: Message, expected: type[M], *, timeout_ms: int) -> M:
        """One request to the broker that decides about topics, or to any while that one is not known."""
        if not self.topology.nodes:
            await self.refresh(())
        address = self.topology.nodes.get(self.topology.controller)
        if address is None:
            return await self.ask_any(api_key, message, expected, timeout_ms=timeout_ms)
        return await self.ask(address, api_key, message, expected, timeout_ms=timeout_ms)

    # --- metadata ------------------------------------------------------------------------------------

    def cached(self, topic: str) -> TopicView | None:
        """What is known of a topic, if it is fresh enough to act on."""
        view = self.topology.topics.get(topic)
        if view is None or topic in self._stale:
            return None
        if self.ticks.now_ms() - view.learned_ms > self.settings.metadata_age_max_ms:
            return None
        return view

    def mark_stale(self, topic: str) -> None:
        """An answer showed that what is known of the topic is out of date: ask again before acting on it."""
        self._stale.add(topic)

    async def refresh(self, topics: Sequence[str] | None, *, create: bool = False) -> dict[str, ErrorCode]:
        """Ask for metadata once (None: of all topics); returns the topics that have something wrong."""
        failures: list[str] = []
        for address in self.addresses():
            try:
                return await self._refresh_from(address, topics, create)
            except UNANSWERED as e:
                self.lost(address)
                failures.append(str(e))
        raise NoBrokerReachable(f"no broker can be reached; tried: {'; '.join(failures)}")

    async def _refresh_from(self, address: Address, topics: Sequence[str] | None, create: bool) -> dict[str, ErrorCode]:
        await self.meet(address)
        version = self.version(address, ApiKey.METADATA)
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        message = MetadataRequest(
            topics=() if asked is None and version < NAMED_TOPICS_SINCE else asked,
            allow_auto_topic_creation=create or version < AUTO_CREATE_SINCE,
        )
        call = Call(address, ApiKey.METADATA, version, message, self.time_ms(self.settings.request_timeout_ms))
        reply = await self.transport.request(call)
        assert isinstance(reply, MetadataResponse), "a response is of its request's kind"
        if reply.error_code:
            raise error_for(reply.error_code, about=f"{address}: Metadata")
        wrong = self.topology.absorb(reply, version=version, now_ms=self.ticks.now_ms())
        self._stale.difference_update(self.topology.topics if topics is None else topics)
        return wrong

    async def topic(
        self, name: str, *, create: bool = False, wait_ms: int = 0, deadline_ms: int | None = None
    ) -> TopicView:
        """A topic's partitions, asked for if they are not known.

        A topic that is not there is waited for as long as `wait_ms`: one that is being created shows up late.
        Anything that may pass is tried again until the deadline (by `ticks`; default: one request's time).
        """
        view = self.cached(name)
        if view is not None:
            return view
        started_ms = self.ticks.now_ms()
        end_ms = started_ms + self.settings.request_timeout_ms if deadline_ms is None else deadline_ms
        for attempt in itertools.count(1):
            problem: OttlaError
            try:
                code = (await self.refresh([name], create=create)).get(name, ErrorCode.NONE)
            except NoBrokerReachable as e:
                problem, may_pass = e, self._acquaintance.is_made
            else:
                view = self.topology.topics.get(name)
                if view is not None and code is ErrorCode.NONE:
                    return view
                if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE):
                    problem = TopicNotFound(name)
                    may_pass = self.ticks.now_ms() - started_ms < wait_ms
                else:
                    problem = error_for(code, about=f"topic {name!r}")
                    may_pass = code.retriable
            delay_ms = self.settings.backoff_ms(attempt)
            if not may_pass or self.ticks.now_ms() + delay_ms >= end_ms:
                raise problem
            await self.transport.sleep(delay_ms)
        raise AssertionError("unreachable")
