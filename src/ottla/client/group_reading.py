"""The reader's side of a group: everything that happens to its partitions inside the user's own calls.

Gives partitions up and takes them over when the member says so, with commits and callbacks around it; asks where the
group is in each; commits. Heartbeats and rebalances go on in the keeper meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.background import Background, Promise
from ottla.client.cluster import Cluster
from ottla.client.commits import fetch_offsets
from ottla.client.coordinator import Coordinator
from ottla.client.errors import BufferFull, ClientClosed, NoCommittedOffset
from ottla.client.group_commits import Waiting, commit_together
from ottla.client.group_keeper import Keeper
from ottla.client.group_member import Change, GroupMember, Kind, Subscription
from ottla.client.group_member_classic import ClassicMember
from ottla.client.group_member_consumer import ConsumerMember
from ottla.client.holdings import Holdings
from ottla.client.progress import Progress
from ottla.client.settings import ConsumerSettings
from ottla.client.values import Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError

CLOSE_MS = 5_000
"""How long a close waits for the keeper to say good-bye, if it has so much time."""
LOOK_AGAIN_MS = 50
LOOK_FOR_MISSING_MS = 1_000
"""How often it is asked whether a topic that was deleted is there again."""

Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]
UNSTABLE = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """What the user wants to hear of."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class GroupReading:
    """One reader in one group."""

    def __init__(
        self,
        cluster: Cluster,
        keeper_cluster: Cluster,
        settings: ConsumerSettings,
        holdings: Holdings,
        background: Background,
        *,
        new_id: Callable[[], str],
    ) -> None:
        assert settings.group is not None, "made for a group"
        self._cluster = cluster
        self._keeper_cluster = keeper_cluster
        self._settings = settings
        self._holdings = holdings
        self._background = background
        self._new_id = new_id
        self._coordinator = Coordinator(cluster, settings.group)
        self._listener = Listener()
        self._keeper: Keeper | None = None
        self._member: GroupMember | None = None
        self.news = background.signal()
        """Set when there is something to do."""
        self._wake = background.signal()
        self._idle = background.signal()
        self._auto: dict[TopicPartition, Committed] = {}
        """What auto-commit has handed over last."""
        self._next_auto_ms = 0
        self._next_look_ms = 0
        self.calling_back: object = None
        """Who is in a callback: may use the consumer from there."""

    # --- membership ----------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listener: Listener) -> None:
        """Be a member that wants these topics."""
        self._listener = listener
        if self._member is None:
            keeper = self._started_keeper()
            coordinator = Coordinator(self._keeper_cluster, self._coordinator.group)
            if self._settings.protocol == "consumer":
                self._member = ConsumerMember(
                    coordinator, self._settings, member_id=self._new_id(), news=self.news, wake=self._wake
                )
            else:
                self._member = ClassicMember(coordinator, self._settings, news=self.news, wake=self._wake)
            keeper.member = self._member
        self._member.subscribe(subscription)

    async def unsubscribe(self) -> None:
        """Give everything up and leave."""
        if self.is_member:
            await self._let_go()
        else:
            await self._commit_before_loss()

    def _started_keeper(self) -> Keeper:
        if self._keeper is None:
            coordinator = Coordinator(self._keeper_cluster, self._coordinator.group)
            keeper = Keeper(coordinator, wake=self._wake, idle=self._idle)
            self._background.start(keeper.run)
            self._keeper = keeper
        return self._keeper

    @property
    def is_member(self) -> bool:
        return self._member is not None and self._member.is_subscribed

    async def turn(self) -> None:
        """Do what the group wants to be done, and commit if it is time to."""
        if self._keeper is not None and self._keeper.failure is not None:
            raise ClientClosed("the consumer's background work has failed") from self._keeper.failure
        if self._member is not None:
            self._member.polled()
        await self._commit_if_due()
        await self._look_for_missing()
        while self._member is not None:
            change = self._member.next_change()
            if change is None:
                return
            await self._apply(self._member, change)

    async def _apply(self, member: GroupMember, change: Change) -> None:
        partitions = sorted(change.partitions)
        if change.kind is Kind.ADOPT:
            self._holdings.adopt(partitions)
            member.settled(change)
            await self._tell(self._listener.on_assigned, partitions)
            return
        try:
            if change.kind is Kind.REVOKE:
                await self._commit_before_loss()
                await self._tell(self._listener.on_revoked, partitions)
                await self._commit_submitted()
            else:
                await self._tell(self._listener.on_lost or self._listener.on_revoked, partitions)
        finally:
            self._holdings.drop(partitions)
            member.settled(change)

    async def _tell(self, callback: Callback | None, partitions: list[TopicPartition]) -> None:
        if callback is None or not partitions:
            return
        self.calling_back = self._background.caller()
        try:
            told = callback(partitions)
            if isinstance(told, Awaitable):
                await told
        finally:
            self.calling_back = None

    def topic_is_gone(self, topic: str) -> None:
        """A topic was deleted: nothing is left to be read of it, and the group may want to know."""
        _logger.warning("group %s: topic %s is gone", self._coordinator.group, topic)
        self._holdings.set_aside(topic)
        self._next_look_ms = self._cluster.ticks.now_ms() + LOOK_FOR_MISSING_MS
        if self._member is not None:
            self._member.look_at_topics()

    async def _look_for_missing(self) -> None:
        """A topic that is created anew is ours to read, as long as nobody has noticed that it was gone."""
        missing, now_ms = self._holdings.missing_topics, self._cluster.ticks.now_ms()
        if not missing or now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + LOOK_FOR_MISSING_MS
        try:
            await self._cluster.refresh(missing)
        except OttlaError as e:
            if not self._cluster.may_pass(e):
                raise
        for topic in missing:
            if self._cluster.cached(topic) is not None:
                self._holdings.bring_back(topic)

    # --- positions -----------------------------------------------------------------------------------

    async def place(self) -> OttlaError | None:
        """Ask once where the group is in the partitions that do not know it yet; returns why that failed."""
        wanted = [key for key in self._holdings.unplaced if key in self._holdings.cursors]
        if not wanted:
            return None
        try:
            await self._place(wanted)
        except OttlaError as e:
            if not self._coordinator.failed(e) and getattr(e, "code", None) not in UNSTABLE:
                raise
            return e
        return None

    async def find_place(self, key: TopicPartition) -> None:
        """The same for one partition, as long as one request may take."""
        if key in self._holdings.unplaced:
            await self._coordinator.insist(
                lambda: self._place([key]), deadline_ms=self._coordinator.deadline_ms(), also=UNSTABLE
            )

    async def _place(self, wanted: Collection[TopicPartition]) -> None:
        is_strict = self._settings.isolation == "read_committed"
        found = await fetch_offsets(self._coordinator, wanted, stable_only=is_strict)
        for key in wanted:
            committed = found.get(key)
            if committed is not None:
                self._holdings.cursors[key].seek(committed.offset, sought=False)
            elif self._settings.auto_offset_reset == "error":
                raise NoCommittedOffset(
                    f"group {self._coordinator.group!r} has no position in {key.topic}-{key.partition}, "
                    'and auto_offset_reset is "error"'
                )
            self._holdings.unplaced.discard(key)

    def go_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these again, or from where the group has committed meanwhile."""
        for key, offset in offsets.items():
            cursor = self._holdings.cursors.get(key)
            if cursor is not None:
                cursor.seek(offset, sought=False)
                self._holdings.unplaced.add(key)

    # --- commits -------------------------------------------------------------------------------------

    def progress(self) -> Progress:
        """How far everything has been read, and in whose name it can be stored."""
        return Progress(self._coordinator.group, self._holdings.consumed(), self._member)

    async def commit(self, positions: Mapping[TopicPartition, Committed] | None) -> None:
        """Store positions (None: how far everything has been read) and wait until they are safe."""
        problem = await self._commit_with_submitted([self._waiting(positions)])
        if problem is not None:
            raise problem

    async def _commit_submitted(self) -> None:
        """Make the commits that the keeper has not got round to; whoever submitted them hears what became of them."""
        await self._commit_with_submitted([])

    async def _commit_with_submitted(self, own: Sequence[Waiting]) -> OttlaError | None:
        taken: list[Waiting] = []
        if self._keeper is not None:
            taken = await self._keeper.take_over(self._coordinator.deadline_ms())
        problem = await commit_together(self._coordinator, [*taken, *own], self._member)
        if problem is not None and self._keeper is not None and any(each.promise is None for each in taken):
            self._keeper.has_failed = True
        return problem

    def submit(self, positions: Mapping[TopicPartition, Committed] | None) -> Promise:
        """Store positions soon; the future says what became of it."""
        keeper = self._started_keeper()
        if not keeper.has_room:
            raise BufferFull("too many commits wait; the coordinator does not answer")
        promise = self._background.promise()
        keeper.submit(self._waiting(positions, promise))
        return promise

    def _waiting(self, positions: Mapping[TopicPartition, Committed] | None, promise: Promise | None = None) -> Waiting:
        offsets = self._holdings.consumed() if positions is None else dict(positions)
        releases = 0 if self._member is None else self._member.releases
        return Waiting(offsets, self._holdings.topic_ids(), promise, self._coordinator.deadline_ms(), releases)

    async def committed(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        """What the group has stored."""
        return await self._coordinator.insist(
            lambda: fetch_offsets(self._coordinator, keys, stable_only=False),
            deadline_ms=self._coordinator.deadline_ms(),
        )

    async def _commit_if_due(self) -> None:
        """At the beginning of a poll all that was given out before is done with."""
        if not self._settings.auto_commit:
            return
        now_ms = self._cluster.ticks.now_ms()
        if self._next_auto_ms == 0:
            self._next_auto_ms = now_ms + self._settings.auto_commit_interval_ms
        if now_ms < self._next_auto_ms:
            return
        self._next_auto_ms = now_ms + self._settings.auto_commit_interval_ms
        consumed = self._holdings.consumed()
        if not consumed:
            return
        if self._keeper is None:
            await self._commit_before_loss()
        elif consumed != self._auto or self._keeper.has_failed:
            self._auto, self._keeper.has_failed = consumed, False
            self._keeper.submit(self._waiting(None))

    async def _commit_before_loss(self) -> None:
        """What cannot be committed comes again to whoever reads the partitions next."""
        problem = await self._commit_with_submitted([self._waiting(None)] if self._settings.auto_commit else [])
        if problem is not None:
            _logger.warning("group %s: positions were not committed: %s", self._coordinator.group, problem)

    # --- the end -------------------------------------------------------------------------------------

    async def _let_go(self) -> None:
        await self._commit_before_loss()
        owned = sorted(self._holdings.cursors)
        try:
            if self._member is not None and self._member.owned:
                await self._tell(self._listener.on_revoked, owned)
            await self._commit_submitted()
        finally:
            self._holdings.drop(owned)
            if self._member is not None:
                self._member.subscribe(None)

    async def close(self, *, orderly: bool, undisturbed: bool) -> None:
        """Leave the group.

        `orderly`: whoever reads is the one who closes, so that all that was given out is done with. `undisturbed`:
        nobody is in the middle of a call, so that the reader's connections may be used.
        """
        try:
            if orderly and undisturbed:
                await self._let_go()
        finally:
            await self._end(undisturbed=undisturbed)

    async def _end(self, *, undisturbed: bool) -> None:
        self.news.set()
        if self._keeper is None:
            return
        self._keeper.stop()
        is_over = False
        deadline_ms = self._cluster.ticks.now_ms() + self._cluster.time_ms(CLOSE_MS)
        while not is_over and self._cluster.ticks.now_ms() < deadline_ms:
            if undisturbed and self._member is not None and self._member.is_parked:
                await self._unpark(self._member)
            is_over = await self._background.finished(LOOK_AGAIN_MS)
        if not is_over:
            self._keeper_cluster.transport.interrupt()
            self._background.abandon()
            await self._background.finished(LOOK_AGAIN_MS)

    async def _unpark(self, member: GroupMember) -> None:
        try:
            await member.unpark(self._coordinator)
        except OttlaError as e:
            _logger.debug("group %s: %s", self._coordinator.group, e)
