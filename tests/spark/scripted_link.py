"""The scripted cluster as a reader of ranges meets it: requests are sent now and answered later, in manual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ottla.client.cluster import Cluster
from ottla.client.errors import Unreachable
from ottla.client.settings import ClientSettings
from ottla.client.transport import Call, Reply
from ottla.errors import OttlaError
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.schema import Message
from ottla.records.batch import walk
from ottla.records.reader import read_batch
from ottla.spark.fetching import RangeFetcher
from ottla.spark.options import FetchSettings
from ottla.spark.planning import OffsetRange
from ottla.spark.pool import Link
from ottla.spark.range_cursor import Piece
from tests.client.scripted_broker import Fault, ScriptedCluster

POLL_TIMEOUT_MS = 60_000
TINY = FetchSettings(request_bytes_max=1, partition_bytes_max=1)
"""Every answer holds one batch, since a broker gives at least one."""


class ScriptedPipeline:
    """Carries a request out when it is sent, and says what became of it when the answer is asked for."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        self._direct = cluster.transport()
        self.under_way: list[Reply | OttlaError] = []
        self.abandoned = 0

    def begin(self, call: Call) -> Any:
        outcome: Reply | OttlaError
        try:
            outcome = self._cluster.answer(call)
        except Unreachable:
            raise
        except OttlaError as e:
            outcome = e
        self.under_way.append(outcome)
        return outcome

    def finish(self, ticket: Any) -> Message:
        self.under_way.remove(ticket)
        if isinstance(ticket, OttlaError):
            raise ticket
        assert isinstance(ticket, Message)
        return ticket

    def abandon(self, ticket: Any) -> None:
        self.under_way.remove(ticket)
        self.abandoned += 1

    async def sleep(self, delay_ms: int) -> None:
        await self._direct.sleep(delay_ms)

    async def close(self) -> None:
        await self._direct.close()


def cluster_of(script: ScriptedCluster) -> Cluster:
    nodes = list(script.nodes.values())
    return Cluster(script.transport(), nodes[:1], settings=ClientSettings(), ticks=script.clock)


def fetcher_of(
    script: ScriptedCluster,
    ranges: Sequence[OffsetRange],
    *,
    settings: FetchSettings | None = None,
    committed_only: bool = False,
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = POLL_TIMEOUT_MS,
    cluster: Cluster | None = None,
) -> tuple[RangeFetcher, ScriptedPipeline]:
    """A reader of these ranges whose brokers and time are the script's; `cluster` is what an earlier one knew."""
    pipeline = ScriptedPipeline(script)
    fetcher = RangeFetcher(
        Link(cluster or cluster_of(script), pipeline),
        ranges,
        settings=settings or FetchSettings(),
        isolation="read_committed" if committed_only else "read_uncommitted",
        fail_on_data_loss=fail_on_data_loss,
        poll_timeout_ms=poll_timeout_ms,
    )
    return fetcher, pipeline


def values_of(piece: Piece) -> list[bytes | None]:
    """The wanted records of a piece; transactions are not looked at."""
    return [
        record.value
        for position, header in walk(piece.batches)
        if not header.is_control
        for record in read_batch(piece.batches[position:])
        if piece.start <= record.offset < piece.end
    ]


def read_all(script: ScriptedCluster, ranges: Sequence[OffsetRange], **settings: Any) -> dict[Any, list[bytes | None]]:
    """All values of each partition, in the order that they came in."""
    fetcher, pipeline = fetcher_of(script, ranges, **settings)
    found: dict[Any, list[bytes | None]] = {}
    for piece in fetcher.pieces():
        found.setdefault((piece.topic, piece.partition), []).extend(values_of(piece))
    assert not pipeline.under_way, "what was asked for was read"
    return found


def filled(script: ScriptedCluster, topic: str = "t", *, partitions: int = 1, batches: int = 5, each: int = 2) -> None:
    """A topic whose records are named by their offsets."""
    script.create(topic, partitions)
    for partition in range(partitions):
        for batch in range(batches):
            script.write(topic, partition, *(b"%d" % (batch * each + n) for n in range(each)))


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def edited(**fields: object) -> Fault:
    """An answer to Fetch that says something else about every partition."""

    def fault(call: Call, carry_out: Callable[[], Reply]) -> Reply:
        reply = carry_out()
        assert isinstance(reply, FetchResponse)
        topics = [
            replace(topic, partitions=[replace(each, **fields) for each in topic.partitions])
            for topic in reply.responses
        ]
        return replace(reply, responses=topics)

    return fault
