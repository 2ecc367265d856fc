"""The broker that looks after one group or one transactional id: finds it, asks it, and looks again when it has moved.

Knows nothing of what is asked. The codes that an answer carries are raised by whoever understands it; those that
say "not here" or "not yet" bring the question back.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.client.cluster import UNANSWERED, Cluster
from ottla.client.errors import NoBrokerReachable
from ottla.client.errors_by_code import error_for
from ottla.client.settings import Address
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schema import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

GROUP_KEY = 0
TRANSACTION_KEY = 1
_WHAT = {GROUP_KEY: "group", TRANSACTION_KEY: "transactional id"}
SEVERAL_KEYS_SINCE = 4
"""From this version on FindCoordinator has its keys in another field."""
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_logger = logging.getLogger(__name__)


class Coordinator:
    """The coordinator of one group, or of one transactional id, over one user's connections."""

    def __init__(self, cluster: Cluster, group: str, *, key_type: int = GROUP_KEY) -> None:
        self._cluster = cluster
        self.group = group
        """The group's name; the transactional id where it is about one."""
        self.about = f"{_WHAT[key_type]} {group!r}"
        self._key_type = key_type
        self._address: Address | None = None

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    async def ask(
        self,
        api_key: ApiKey,
        message: Message,
        expected: type[M],
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> M:
        """One request to the coordinator, looked up first if it is not known."""
        address = await self.address()
        try:
            return await self._cluster.ask(
                address, api_key, message, expected, version_max=version_max, timeout_ms=timeout_ms
            )
        except UNANSWERED:
            self._address = None
            raise

    async def version(self, api_key: ApiKey) -> int:
        """The version that a request to the coordinator will have."""
        address = await self.address()
        try:
            await self._cluster.meet(address)
        except UNANSWERED:
            self._cluster.lost(address)
            self._address = None
            raise
        return self._cluster.version(address, api_key)

    async def address(self) -> Address:
        if self._address is None:
            self._address = await self._find()
        return self._address

    async def _find(self) -> Address:
        problem: OttlaError | None = None
        for address in self._cluster.addresses():
            try:
                await self._cluster.meet(address)
                is_new = self._cluster.version(address, ApiKey.FIND_COORDINATOR) >= SEVERAL_KEYS_SINCE
                if is_new:
                    request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self.group])
                else:
                    request = FindCoordinatorRequest(key=self.group, key_type=self._key_type)
                response = await self._cluster.ask(address, ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
            except UNANSWERED as e:
                self._cluster.lost(address)
                problem = e
                continue
            found = response.coordinators[0] if response.coordinators else response
            if found.error_code:
                raise error_for(found.error_code, about=self.about, message=found.error_message)
            return Address(found.host, found.port)
        raise NoBrokerReachable(f"no broker can be reached to ask for {self.about}; last: {problem}")

    def failed(self, error: OttlaError) -> bool:
        """Note an error; says whether the same question may succeed later."""
        if isinstance(error, UNANSWERED) or (isinstance(error, Refusal) and error.code in MOVED):
            self._address = None
        return self._cluster.may_pass(error)

    async def insist(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        deadline_ms: int,
        also: frozenset[ErrorCode] = frozenset(),
    ) -> T:
        """Try until it works, fails for good, or the deadline is there; `also` are further codes that may pass."""
        for tries in itertools.count(1):
            try:
                return await attempt()
            except OttlaError as e:
                may_pass = self.failed(e) or (isinstance(e, Refusal) and e.code in also)
                delay_ms = self._cluster.settings.backoff_after_ms(e, tries)
                if not may_pass or self._cluster.ticks.now_ms() + delay_ms >= deadline_ms:
                    raise
                _logger.debug("%s: %s; trying again", self.about, e)
            await self._cluster.transport.sleep(delay_ms)
        raise AssertionError("unreachable")

    def deadline_ms(self) -> int:
        """One request's time from now."""
        return self._cluster.deadline_ms()
