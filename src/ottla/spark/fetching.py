"""The record batches of a task's ranges, from the leaders of their partitions: a reader for one blocking thread.

While the caller decodes an answer, the next one is on its way. Leaders that move, brokers that go away and come back,
and offsets that are gone are dealt with here; every batch of a range is given out once and in order. Unpacks no record.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from typing import Any

from ottla.client.cluster import STALE_LEADER, UNANSWERED
from ottla.client.errors import NoBrokerReachable, UnknownTopicOrPartition
from ottla.client.errors_by_code import code_of, error_for, is_retriable
from ottla.client.fetch_calls import Wanted, fetch_call
from ottla.client.offsets import list_offsets
from ottla.client.settings import INT32_MAX, Address, Isolation, check_isolation
from ottla.client.transport import Call, run_now
from ottla.client.values import OffsetSpec
from ottla.error_codes import ErrorCode
from ottla.errors import BatchError, OttlaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.schema import NO_UUID
from ottla.spark.errors import DataLost, OttlaSparkError
from ottla.spark.options import FetchSettings
from ottla.spark.planning import OffsetRange
from ottla.spark.pool import Link
from ottla.spark.range_cursor import Cursor, Piece, announced_bytes, hop

RECORD_BYTES_GUESS = 512
"""How large a record is taken to be before any of its topic has been seen."""
PARTITION_BYTES_MIN = 64 * 1024
"""A partition is never asked for less, or a wrong guess would cost many requests."""
BATCH_BYTES_USUAL = 1024 * 1024
"""No batch is larger than this, unless a broker was told to take larger ones."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""However much was set: a longer frame than the connection takes would never be read."""
REQUEST_MS_MIN = 1_000
GRACE_MS = 3_000
"""A broker that has just started may say for a moment that a topic or the end of a log is not there."""
EMPTY_ANSWERS_MIN = 3
"""How often a broker says that a range holds nothing more before that is believed, however fast it answers."""
EARLIEST_LOCAL = -4
"""Asked for in ListOffsets: the first offset that the broker need not get from elsewhere."""
EARLIEST_LOCAL_SINCE = 8

_logger = logging.getLogger(__name__)


class ReadTimedOut(OttlaSparkError):
    """Nothing more could be read for as long as kafkaConsumer.pollTimeoutMs allows."""


class UnreadableBatch(OttlaSparkError):
    """A record batch is damaged, or of a kind that cannot be read."""

    def __init__(self, topic: str, partition: int, *, offset: int, cause: object) -> None:
        super().__init__(f"{topic}-{partition}: the record batch at offset {offset} cannot be read: {cause}")


class RangeFetcher:
    """Reads the ranges of one task over one set of connections."""

    def __init__(
        self,
        link: Link,
        ranges: Sequence[OffsetRange],
        *,
        settings: FetchSettings,
        isolation: Isolation,
        fail_on_data_loss: bool,
        poll_timeout_ms: int,
    ) -> None:
        self._cluster = link.cluster
        self._transport = link.transport
        self._now_ms = link.cluster.ticks.now_ms
        self._cursors = [Cursor(each) for each in ranges if each.start < each.end]
        self._settings = settings
        self._answer_bytes_max = min(settings.request_bytes_max, ANSWER_BYTES_MAX)
        self._isolation = check_isolation(isolation)
        self._committed_only = isolation == "read_committed"
        self._fail_on_data_loss = fail_on_data_loss
        self._poll_timeout_ms = poll_timeout_ms
        self._grace_ms = min(GRACE_MS, poll_timeout_ms // 2)
        self._tickets: dict[Address, tuple[Any, list[Cursor]]] = {}
        self._record_bytes: dict[str, float] = {}
        """What an offset of a topic took in the batches that came last."""
        self._unknown: set[str] = set()
        """Topics that the cluster did not know when it was asked last."""
        self._progress_ms = self._now_ms()
        self._problem: str = "no answer held anything"

    def pieces(self) -> Generator[Piece, None, None]:
        """Everything in the ranges. Whoever stops early closes the iterator, and the connections stay usable."""
        self._progress_ms = self._now_ms()
        try:
            while self._cursors:
                self._ask()
                if self._tickets:
                    pieces = self._answer()
                    # The next answer is on its way while the caller decodes this one.
                    self._ask()
                    yield from pieces
                    if pieces:
                        # How long the caller took is not the broker's fault.
                        self._progressed()
                elif self._cursors:
                    self._pause()
        finally:
            for ticket, _ in self._tickets.values():
                self._transport.abandon(ticket)
            self._tickets.clear()

    # --- time ----------------------------------------------------------------------------------------

    def _progressed(self) -> None:
        self._progress_ms = self._now_ms()

    def _time_left_ms(self) -> int:
        return self._progress_ms + self._poll_timeout_ms - self._now_ms()

    def _request_time_ms(self) -> int:
        """How long one request may take. The last one gets its chance too, or it would hide what the trouble was."""
        return min(self._cluster.settings.request_timeout_ms, max(REQUEST_MS_MIN, self._time_left_ms()))

    def _pause(self) -> None:
        """Wait until somebody may be asked again."""
        left_ms = self._time_left_ms()
        if left_ms <= 0:
            self._give_up()
        soonest_ms = min(cursor.blocked_until_ms for cursor in self._cursors) - self._now_ms()
        if soonest_ms > 0:
            run_now(self._transport.sleep(min(soonest_ms, left_ms)))

    def _give_up(self) -> None:
        cursor = self._cursors[0]
        raise ReadTimedOut(
            f"{cursor.name}: offset {cursor.position} (of those up to {cursor.end - 1}) could not be read within "
            f"{self._poll_timeout_ms} ms; last: {self._problem}. kafkaConsumer.pollTimeoutMs says how long to wait"
        )

    def _block(self, cursors: Sequence[Cursor], problem: object) -> None:
        """Leave these alone for a while."""
        self._problem = str(problem)
        for cursor in cursors:
            cursor.attempts += 1
            cursor.blocked_until_ms = self._now_ms() + self._cluster.settings.backoff_ms(cursor.attempts)

    # --- asking --------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """One request to every leader that has something to be asked and is not working on one already."""
        now_ms = self._now_ms()
        ready = [each for each in self._cursors if not each.asked and each.blocked_until_ms <= now_ms]
        stale = dict.fromkeys(each.key.topic for each in ready if not self._is_known(each))
        if stale:
            self._refresh(list(stale))
        by_leader: dict[Address, list[Cursor]] = {}
        for cursor in ready:
            address = self._leader(cursor)
            if address is not None and address not in self._tickets:
                by_leader.setdefault(address, []).append(cursor)
        for address, cursors in by_leader.items():
            self._send(address, self._chosen(cursors))
        self._cursors = [each for each in self._cursors if each.left > 0]

    def _is_known(self, cursor: Cursor) -> bool:
        """Whether metadata need not be asked for: a partition may have been added since it was."""
        view = self._cluster.cached(cursor.key.topic)
        return view is not None and cursor.key.partition < len(view.partitions)

    def _refresh(self, topics: Sequence[str]) -> None:
        self._unknown.difference_update(topics)
        try:
            wrong = run_now(self._cluster.refresh(topics))
        except OttlaError as e:
            if not _may_pass(e):
                raise
            self._problem = str(e)
            return
        for topic, code in wrong.items():
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown.add(topic)
                self._cluster.mark_stale(topic)
            elif not code.retriable:
                raise error_for(code, about=f"topic {topic!r}")

    def _leader(self, cursor: Cursor) -> Address | None:
        """Who is to be asked; None where that is not known now, or where there is nothing left to ask for."""
        topic, partition = cursor.key
        view = self._cluster.cached(topic)
        if topic in self._unknown or (view is not None and partition >= len(view.partitions)):
            self._cluster.mark_stale(topic)
            self._missing(cursor)
            return None
        if view is None:
            self._block([cursor], self._problem)
            return None
        cursor.missing_since_ms = None
        if view.has_id and cursor.topic_id not in (NO_UUID, view.topic_id):
            self._lost(cursor, start=cursor.position, end=cursor.end, reason="the topic was deleted and created anew")
            return None
        address = self._cluster.topology.leader_address(view, partition)
        if address is None:
            self._cluster.mark_stale(topic)
            self._block([cursor], f"{cursor.name} has no leader")
        return address

    def _missing(self, cursor: Cursor) -> None:
        now_ms = self._now_ms()
        if cursor.missing_since_ms is None:
            cursor.missing_since_ms = now_ms
        if now_ms - cursor.missing_since_ms >= self._grace_ms:
            self._lost(cursor, start=cursor.position, end=cursor.end, reason="there is no such partition any more")
        else:
            self._block([cursor], f"{cursor.name} is not there")

    def _chosen(self, cursors: Sequence[Cursor]) -> list[Cursor]:
        """As many as are likely to fit into one answer, in order: a broker fills it in the order of the request."""
        single = next((each for each in cursors if each.alone), None)
        if single is not None:
            return [single]
        chosen: dict[tuple[str, int], Cursor] = {}
        expected = 0
        for cursor in cursors:
            # Of two ranges of one partition the second has to wait: a request can name a partition once only.
            if cursor.key not in chosen:
                chosen[cursor.key] = cursor
                expected += self._expected_bytes(cursor)
                if expected >= self._answer_bytes_max:
                    break
        return list(chosen.values())

    def _expected_bytes(self, cursor: Cursor) -> int:
        return int(cursor.left * self._record_bytes.get(cursor.key.topic, RECORD_BYTES_GUESS)) + 1

    def _send(self, address: Address, cursors: list[Cursor]) -> None:
        try:
            run_now(self._cluster.meet(address))
            ticket = self._transport.begin(self._call(address, cursors))
        except OttlaError as e:
            self._failed(address, cursors, e)
            return
        for cursor in cursors:
            cursor.asked = True
        self._tickets[address] = ticket, cursors

    def _call(self, address: Address, cursors: Sequence[Cursor]) -> Call:
        wanted: list[Wanted] = []
        for cursor in cursors:
            cursor.asked_id = self._cluster.topology.topics[cursor.key.topic].topic_id
            # What lies behind the end of the range would be sent for nothing.
            enough = max(PARTITION_BYTES_MIN, 2 * self._expected_bytes(cursor))
            room = max(min(enough, self._settings.partition_bytes_max), cursor.room_bytes)
            wanted.append(Wanted(cursor.key, cursor.position, min(INT32_MAX, room)))
        return fetch_call(
            self._cluster,
            address,
            wanted,
            isolation=self._isolation,
            # What is asked for is there, so there is nothing to wait for; what is not is asked for again later.
            wait_ms=self._settings.wait_ms,
            bytes_min=0,
            bytes_max=min(INT32_MAX, max(self._answer_bytes_max, *(each.room_bytes for each in cursors))),
            timeout_ms=self._request_time_ms(),
        )

    def _failed(self, address: Address, cursors: Sequence[Cursor], error: OttlaError) -> None:
        """A request got no answer."""
        if isinstance(error, UNANSWERED):
            self._cluster.lost(address)
        elif not _may_pass(error):
            raise error
        for cursor in cursors:
            self._cluster.mark_stale(cursor.key.topic)
        self._block(cursors, error)

    # --- answers -------------------------------------------------------------------------------------

    def _answer(self) -> list[Piece]:
        """Take in the answer to the request that was sent first."""
        address = next(iter(self._tickets))
        ticket, cursors = self._tickets.pop(address)
        for cursor in cursors:
            cursor.asked = False
        try:
            response = self._transport.finish(ticket)
        except OttlaError as e:
            self._failed(address, cursors, e)
            return []
        assert isinstance(response, FetchResponse), "a response is of its request's kind"
        if response.error_code:
            error = error_for(response.error_code, about=f"{address}: Fetch")
            self._failed(address, cursors, error)
            return []
        names = {cursor.asked_id: cursor.key.topic for cursor in cursors}
        found = {
            (topic.topic or names.get(topic.topic_id, ""), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        pieces: list[Piece] = []
        for cursor in cursors:
            data = found.get(cursor.key)
            if data is None:
                self._block([cursor], f"{address} did not answer for {cursor.name}")
            elif data.error_code != ErrorCode.NONE:
                self._refused(cursor, data)
            else:
                cursor.topic_id = cursor.asked_id
                pieces += self._absorb(cursor, data, is_first=cursor is cursors[0], is_single=len(cursors) == 1)
        self._cursors = [each for each in self._cursors if each.left > 0]
        return pieces

    def _absorb(self, cursor: Cursor, data: PartitionData, *, is_first: bool, is_single: bool) -> list[Piece]:
        view = memoryview(data.records or b"")
        try:
            run = hop(view, end_offset=cursor.end)
        except BatchError as e:
            raise UnreadableBatch(*cursor.key, offset=cursor.position, cause=e) from e
        if run is None or run.next_offset <= cursor.position:
            self._nothing(cursor, data, view, is_first=is_first, is_single=is_single)
            return []
        if run.first_offset > cursor.position < data.log_start_offset:
            log_start = data.log_start_offset
            self._lost(cursor, start=cursor.position, end=log_start, reason=f"the log begins at {log_start}")
        start = cursor.position
        cursor.advance(max(cursor.position, run.next_offset))
        self._progressed()
        if not run.size or start >= cursor.end:
            return []
        self._record_bytes[cursor.key.topic] = run.size / max(1, run.next_offset - run.first_offset)
        aborted = data.aborted_transactions if self._committed_only else None
        hidden = [(each.producer_id, each.first_offset) for each in aborted or ()]
        return [Piece(*cursor.key, start, cursor.end, view[: run.size], run.cuts, hidden)]

    def _nothing(
        self, cursor: Cursor, data: PartitionData, view: memoryview, *, is_first: bool, is_single: bool
    ) -> None:
        """An answer without a whole batch: there is none, or others took the room, or it is too large for the room."""
        needed = announced_bytes(view)
        if needed:
            if cursor.alone and needed <= cursor.room_bytes:
                self._block([cursor], f"{cursor.name}: a batch of {needed} bytes comes only in part")
            cursor.alone, cursor.room_bytes = True, needed
            return
        readable = data.last_stable_offset if self._committed_only else data.high_watermark
        if readable < cursor.end:
            self._short(cursor, readable=readable, high_watermark=data.high_watermark)
        elif is_single:
            self._empty(cursor)
        elif is_first:
            # No other partition was served before it. It is asked for alone, to be sure that it holds nothing.
            cursor.alone = True
        else:
            # Only the first partition of an answer gets a batch that is larger than it asked for.
            cursor.room_bytes = BATCH_BYTES_USUAL

    def _empty(self, cursor: Cursor) -> None:
        """No batch is left in the range, although the log goes on: compaction took them, or they are only late.

        Brokers that keep old records in other storage answer like this while they wait for it.
        """
        now_ms = self._now_ms()
        if cursor.empty_since_ms is None:
            cursor.empty_since_ms = now_ms
        cursor.empty_answers += 1
        cursor.alone = True
        self._block([cursor], f"{cursor.name}: the broker gives nothing from offset {cursor.position} on")
        is_settled = cursor.empty_answers >= EMPTY_ANSWERS_MIN and now_ms - cursor.empty_since_ms >= self._grace_ms
        if is_settled and not self._may_be_late(cursor):
            cursor.advance(cursor.end)
            self._progressed()

    def _may_be_late(self, cursor: Cursor) -> bool:
        """Whether what is asked for lies in other storage than the broker's own, as far as the broker can tell."""
        view = self._cluster.cached(cursor.key.topic)
        address = None if view is None else self._cluster.topology.leader_address(view, cursor.key.partition)
        if address is None:
            return True
        if self._cluster.version(address, ApiKey.LIST_OFFSETS) < EARLIEST_LOCAL_SINCE:
            return False
        deadline_ms = self._now_ms() + self._request_time_ms()
        asking = list_offsets(self._cluster, {cursor.key: EARLIEST_LOCAL}, isolation=0, deadline_ms=deadline_ms)
        try:
            place = run_now(asking)[cursor.key]
        except OttlaError as e:
            self._cluster.mark_stale(cursor.key.topic)
            # A broker that knows no such place has no other storage.
            return _may_pass(e) or isinstance(e, UnknownTopicOrPartition)
        return place is not None and cursor.position < place.offset

    def _short(self, cursor: Cursor, *, readable: int, high_watermark: int) -> None:
        """The log can be read up to a place before the end of the range only."""
        now_ms = self._now_ms()
        if cursor.short_since_ms is None:
            cursor.short_since_ms = now_ms
        problem = f"{cursor.name} can be read up to offset {readable} only"
        if readable < high_watermark:
            problem += ", where a transaction is open"
        self._block([cursor], problem)
        if now_ms - cursor.short_since_ms < self._grace_ms:
            return
        log_end = self._bound(cursor, OffsetSpec.LATEST)
        if log_end is not None and log_end < cursor.end:
            first = max(cursor.position, log_end)
            self._lost(cursor, start=first, end=cursor.end, reason=f"the log ends at {log_end}")

    def _refused(self, cursor: Cursor, data: PartitionData) -> None:
        code = code_of(data.error_code)
        error = error_for(data.error_code, about=f"{cursor.name} at offset {cursor.position}")
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(cursor)
            return
        if not code.retriable:
            raise error
        if code in STALE_LEADER:
            self._cluster.mark_stale(cursor.key.topic)
        self._block([cursor], error)

    def _out_of_range(self, cursor: Cursor) -> None:
        """The broker has no such offset: not any more, or the log has become shorter."""
        log_start = self._bound(cursor, OffsetSpec.EARLIEST)
        log_end = self._bound(cursor, OffsetSpec.LATEST)
        if log_start is None or log_end is None:
            self._block([cursor], self._problem)
        elif cursor.position < log_start:
            self._lost(cursor, start=cursor.position, end=log_start, reason=f"the log begins at {log_start}")
        elif cursor.position > log_end:
            self._short(cursor, readable=log_end, high_watermark=log_end)
        else:
            self._cluster.mark_stale(cursor.key.topic)
            self._block([cursor], f"{cursor.name}: offset {cursor.position} was out of range")

    def _bound(self, cursor: Cursor, which: OffsetSpec) -> int | None:
        """Where the log begins or ends; None when that cannot be had now."""
        asking = list_offsets(
            self._cluster, {cursor.key: which}, isolation=0, deadline_ms=self._now_ms() + self._request_time_ms()
        )
        try:
            place = run_now(asking)[cursor.key]
        except OttlaError as e:
            if not (_may_pass(e) or isinstance(e, UnknownTopicOrPartition)):
                raise
            self._problem = str(e)
            self._cluster.mark_stale(cursor.key.topic)
            return None
        return None if place is None else place.offset

    def _lost(self, cursor: Cursor, *, start: int, end: int, reason: str) -> None:
        """Records that were to be read are gone: say so, or go on behind them."""
        end = min(end, cursor.end)
        what = f"{cursor.name}: offsets {start} to {end - 1} are gone, because {reason}"
        if self._fail_on_data_loss:
            raise DataLost(what)
        if not cursor.warned:
            cursor.warned = True
            _logger.warning("%s; failOnDataLoss is false, so reading goes on without them", what)
        cursor.advance(end)
        self._progressed()


def _may_pass(error: Exception) -> bool:
    return is_retriable(error) or isinstance(error, NoBrokerReachable)
