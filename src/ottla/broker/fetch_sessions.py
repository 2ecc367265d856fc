"""Fetch sessions (KIP-227): a client names its partitions once, then only what changed.

Pure: a session remembers what was asked and what was last told of each partition. When a session does
not exist or its epoch is not the expected one the client is told so, and begins again with a full fetch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 1000
"""How many sessions are remembered; the one that was used longest ago makes room."""
IDLE_MS_MIN = 120_000
"""A session that was used more recently than this is not pushed out by a new one."""


class FetchKey(NamedTuple):
    """A partition as the client named it: by topic name before version 13, by topic id from then on."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class _Remembered:
    """What was asked of one partition, and what was last told."""

    asked: FetchPartition
    high_watermark: int = -2
    last_stable_offset: int = -2
    log_start_offset: int = -2
    told_error: bool = True


class FetchSession:
    """The partitions that one client follows."""

    __slots__ = ("_partitions", "by_id", "epoch", "session_id", "used_ms")

    def __init__(self, session_id: int, *, now_ms: int, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        """Whether the client names topics by their ids."""
        self.epoch = INITIAL_EPOCH + 1
        """What the next request has to say."""
        self.used_ms = now_ms
        self._partitions: OrderedDict[FetchKey, _Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._partitions)

    def take(self, request: FetchRequest) -> None:
        """Add, change and forget partitions as the request says."""
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self._partitions.pop(FetchKey(topic.topic, topic.topic_id, partition), None)
        for key, asked in asked_for(request):
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = _Remembered(asked)
            else:
                known.asked = asked

    def asked(self) -> list[tuple[FetchKey, FetchPartition]]:
        return [(key, remembered.asked) for key, remembered in self._partitions.items()]

    def is_news(self, key: FetchKey, data: PartitionData) -> bool:
        """Whether the client must be told of this partition; remembers that it was.

        Partitions that gave records go to the back, so that a full response does not starve the others.
        """
        known = self._partitions.get(key)
        if known is None:
            return True
        told = (known.high_watermark, known.last_stable_offset, known.log_start_offset)
        now = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
        has_records = data.records is not None and len(data.records) > 0
        news = has_records or told != now or data.error_code != 0 or known.told_error
        known.high_watermark, known.last_stable_offset, known.log_start_offset = now
        # An error is told again and again, and its end is news as well.
        known.told_error = data.error_code != 0
        if has_records:
            self._partitions.move_to_end(key)
        return news


class FetchSessions:
    """All sessions of a broker."""

    __slots__ = ("_next_id", "_sessions", "_sessions_max")

    def __init__(self, *, first_id: int = 1, sessions_max: int = SESSIONS_MAX) -> None:
        # Ids of an earlier life must not be taken for ours, so the first one is handed in by chance.
        self._next_id = first_id
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, *, now_ms: int, by_id: bool) -> FetchSession | None:
        """The session of a request, brought up to date; None when the request stands for itself alone."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return None
            return self._create(request, now_ms=now_ms, by_id=by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"fetch session {request.session_id} is not known here")
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session.session_id}: epoch {request.session_epoch} came, {session.epoch} was due"
            )
        if by_id != session.by_id:
            raise FetchSessionTopicIdError(f"fetch session {session.session_id}: names and ids of topics are mixed")
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        session.take(request)
        if not len(session):
            # Nothing is left to remember: the client begins anew when it wants something.
            del self._sessions[session.session_id]
            return None
        return session

    def _create(self, request: FetchRequest, *, now_ms: int, by_id: bool) -> FetchSession | None:
        if not request.topics or not self._make_room(now_ms):
            return None
        session = FetchSession(self._next_id, now_ms=now_ms, by_id=by_id)
        self._next_id = 1 if self._next_id == EPOCH_MAX else self._next_id + 1
        self._sessions[session.session_id] = session
        session.take(request)
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms < IDLE_MS_MIN:
            return False
        del self._sessions[oldest.session_id]
        return True


def asked_for(request: FetchRequest) -> Iterator[tuple[FetchKey, FetchPartition]]:
    """Every partition that a request names."""
    for topic in request.topics:
        for partition in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, partition.partition), partition


def grouped(items: Iterable[tuple[FetchKey, PartitionData]]) -> dict[tuple[str, bytes], list[PartitionData]]:
    """By topic, in the order in which they come."""
    topics: dict[tuple[str, bytes], list[PartitionData]] = {}
    for key, data in items:
        topics.setdefault((key.topic, key.topic_id), []).append(data)
    return topics
