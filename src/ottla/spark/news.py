"""What a Fetch tells beside records: where partitions end, as soon as one has something new, and what records weigh.

A Fetch at the end of every partition is held by the broker until something comes, so that a stream that waits costs
two requests a second and hears of a record at once. The records themselves are read elsewhere, on the executors.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.cluster import STALE_LEADER, UNANSWERED, Cluster
from ottla.client.errors_by_code import code_of, error_for
from ottla.client.fetch_calls import Wanted, fetch_call
from ottla.client.settings import Address
from ottla.client.values import TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.records.batch import walk
from ottla.spark.offsets import Offsets

SHORT_WAIT_MS = 50
"""With several leaders: how long each may hold its answer, so that a quiet one does not hold up the news of another."""
NEWS_BYTES_MAX = 1
"""Whoever waits wants to know that there are records, not which; a broker sends one batch all the same."""
SAMPLE_PARTITION_BYTES_MAX = 64 * 1024
SAMPLE_BYTES_MAX = 1024 * 1024
COMMITTED = 1

Answers = dict[TopicPartition, PartitionData]


async def wait_for_news(cluster: Cluster, ends: Offsets, *, isolation: int, wait_ms: int) -> Offsets:
    """The ends that are beyond those given, as soon as there is one; empty when none came in time.

    What goes wrong is no news: whoever asks for the ends next hears of it.
    """
    ticks = cluster.ticks
    deadline_ms = ticks.now_ms() + wait_ms
    while True:
        left_ms = max(0, deadline_ms - ticks.now_ms())
        answers, is_sound = await _fetch(
            cluster,
            ends,
            isolation=isolation,
            wait_ms=left_ms,
            partition_bytes=NEWS_BYTES_MAX,
            bytes_max=NEWS_BYTES_MAX,
        )
        found = {key: _end(data, isolation) for key, data in answers.items()}
        news = {key: end for key, end in found.items() if end > ends[key]}
        left_ms = deadline_ms - ticks.now_ms()
        if news or left_ms <= 0:
            return news
        if not is_sound:
            # Somebody did not wait as asked; without a pause we would ask as fast as it refuses.
            await cluster.transport.sleep(left_ms)
            return {}


async def sampled_sizes(cluster: Cluster, starts: Offsets, *, isolation: int) -> dict[TopicPartition, float]:
    """Bytes for each offset in the batches that begin at these places, of the partitions that told."""
    answers, _ = await _fetch(
        cluster,
        starts,
        isolation=isolation,
        wait_ms=0,
        partition_bytes=SAMPLE_PARTITION_BYTES_MAX,
        bytes_max=SAMPLE_BYTES_MAX,
    )
    found: dict[TopicPartition, float] = {}
    for key, data in answers.items():
        byte_count, first, end = 0, None, 0
        for _, header in walk(data.records or b""):
            first = header.base_offset if first is None else first
            byte_count, end = byte_count + header.size, header.next_offset
        if first is not None and end > first:
            found[key] = byte_count / (end - first)
    return found


def _end(data: PartitionData, isolation: int) -> int:
    return data.last_stable_offset if isolation == COMMITTED else data.high_watermark


async def _fetch(
    cluster: Cluster, positions: Offsets, *, isolation: int, wait_ms: int, partition_bytes: int, bytes_max: int
) -> tuple[Answers, bool]:
    """One Fetch to every leader; what was answered, and whether all went well."""
    by_leader, is_sound = await _by_leader(cluster, positions)
    wait_ms = wait_ms if len(by_leader) == 1 else min(wait_ms, SHORT_WAIT_MS)
    calls = [
        fetch_call(
            cluster,
            address,
            [Wanted(key, positions[key], partition_bytes) for keys in topics.values() for key in keys],
            isolation=isolation,
            wait_ms=wait_ms,
            bytes_min=1,
            bytes_max=bytes_max,
            timeout_ms=wait_ms + cluster.settings.request_timeout_ms,
        )
        for address, topics in by_leader.items()
    ]
    answers: Answers = {}
    for call, reply in zip(calls, await cluster.transport.exchange(calls), strict=True):
        if isinstance(reply, FetchResponse):
            is_sound = _absorb(cluster, reply, positions, answers) and is_sound
        else:
            assert isinstance(reply, OttlaError), "a fetch is answered or fails"
            _lost(cluster, call.address, by_leader[call.address], reply)
            is_sound = False
    return answers, is_sound


async def _by_leader(
    cluster: Cluster, positions: Offsets
) -> tuple[dict[Address, dict[str, list[TopicPartition]]], bool]:
    """Who is asked for what; partitions without a leader that can be reached are left out."""
    stale = [name for name in dict.fromkeys(key.topic for key in positions) if cluster.cached(name) is None]
    if stale:
        await cluster.refresh(stale)
    found: dict[Address, dict[str, list[TopicPartition]]] = {}
    is_sound = True
    for key in positions:
        view = cluster.topology.topics.get(key.topic)
        has_partition = view is not None and key.partition < len(view.partitions)
        address = cluster.topology.leader_address(view, key.partition) if view is not None and has_partition else None
        if address is None:
            cluster.mark_stale(key.topic)
            is_sound = False
            continue
        found.setdefault(address, {}).setdefault(key.topic, []).append(key)
    for address in list(found):
        try:
            await cluster.meet(address)
        except UNANSWERED as e:
            _lost(cluster, address, found.pop(address), e)
            is_sound = False
    return found, is_sound


def _absorb(cluster: Cluster, response: FetchResponse, positions: Offsets, answers: Answers) -> bool:
    if response.error_code:
        raise error_for(response.error_code, about="Fetch")
    is_sound = True
    names = {view.topic_id: view.name for view in cluster.topology.topics.values() if view.has_id}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            key = TopicPartition(name, data.partition_index)
            if data.error_code == ErrorCode.NONE and key in positions:
                answers[key] = data
                continue
            is_sound = False
            if code_of(data.error_code) in STALE_LEADER:
                cluster.mark_stale(name)
    return is_sound


def _lost(cluster: Cluster, address: Address, topics: Mapping[str, object], error: OttlaError) -> None:
    if not isinstance(error, UNANSWERED):
        raise error
    cluster.lost(address)
    for name in topics:
        cluster.mark_stale(name)
