"""Finds the offsets that "as of when" stands for, and looks whether those of a snapshot are still there.

Coroutines that await the cluster alone. Everything is asked once: what is written afterwards is not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ottla.client.cluster import Cluster
from ottla.client.errors import InvalidSetting
from ottla.client.offsets import OffsetFound, list_offsets, topic_with
from ottla.client.settings import Isolation, check_isolation
from ottla.client.snapshots import Ago, AtTime, Moment, Now, Snapshot, SnapshotUnreadable, listed
from ottla.client.values import OffsetSpec, TopicPartition

UNCOMMITTED = 0

Offsets = dict[TopicPartition, int]


async def take(
    cluster: Cluster, topics: Sequence[str], moment: Moment, *, isolation: Isolation, now_ms: int
) -> Snapshot:
    """The snapshot of these topics as of a moment; offsets that were given are taken if they are there.

    Raises TopicNotFound or PartitionNotFound, and SnapshotUnreadable for offsets that there are not.
    """
    if isinstance(moment, Snapshot):
        found, _ = await verified(cluster, moment.of(topics) if topics else moment, isolation=isolation)
        return found
    if not topics:
        raise InvalidSetting("name the topics that the snapshot is of")
    keys: list[TopicPartition] = []
    topic_ids: dict[str, bytes] = {}
    for name in dict.fromkeys(topics):
        view = await cluster.topic(name)
        keys += view.keys
        if view.has_id:
            topic_ids[name] = view.topic_id
    wire_isolation = check_isolation(isolation)
    starts = await _named(cluster, keys, OffsetSpec.EARLIEST, wire_isolation)
    ends = await ends_as_of(cluster, keys, moment, isolation=wire_isolation, now_ms=now_ms)
    return Snapshot(ends, starts, topic_ids, isolation)


async def ends_as_of(
    cluster: Cluster, keys: Iterable[TopicPartition], moment: Now | Ago | AtTime, *, isolation: int, now_ms: int
) -> Offsets:
    """For each partition the first offset that does not count.

    The ends are asked for first: where no record turns out to be as young as the time, everything before the end
    that was found then is older. Asked for afterwards, the end might lie behind a younger record.
    """
    wanted = list(keys)
    ends = await _named(cluster, wanted, OffsetSpec.LATEST, isolation)
    if isinstance(moment, Now):
        return ends
    timestamp_ms = moment.timestamp_ms if isinstance(moment, AtTime) else max(0, now_ms - moment.back_ms)
    found = await _found(cluster, dict.fromkeys(wanted, timestamp_ms), isolation)
    return ends | {key: place.offset for key, place in found.items() if place is not None}


async def verified(cluster: Cluster, snapshot: Snapshot, *, isolation: Isolation) -> tuple[Snapshot, Offsets]:
    """The same with what is known of its topics now, and where its partitions begin now.

    SnapshotUnreadable where it cannot be what it was. Beginnings and ids that it does not tell are those of now.
    """
    topic_ids: dict[str, bytes] = {}
    for key in sorted(snapshot.ends):
        view = await topic_with(cluster, key, cluster.deadline_ms())
        if view.has_id:
            topic_ids[key.topic] = view.topic_id
    check_ids(snapshot, topic_ids)
    await _check_ends(cluster, snapshot, check_isolation(isolation))
    begins = await _named(cluster, snapshot.ends, OffsetSpec.EARLIEST, UNCOMMITTED)
    found = replace(
        snapshot,
        starts=begins | dict(snapshot.starts),
        topic_ids=topic_ids | dict(snapshot.topic_ids),
        isolation=isolation,
    )
    return found, begins


def check_ids(snapshot: Snapshot, topic_ids: Mapping[str, bytes]) -> None:
    """Whether the topics are the ones that the snapshot was taken of; SnapshotUnreadable if not."""
    for name, topic_id in snapshot.topic_ids.items():
        if topic_ids.get(name, topic_id) != topic_id:
            raise SnapshotUnreadable(f"topic {name} was made anew since the snapshot was taken: its records are gone")


async def _check_ends(cluster: Cluster, snapshot: Snapshot, isolation: int) -> None:
    ends = await _named(cluster, snapshot.ends, OffsetSpec.LATEST, isolation)
    beyond = [key for key, end in sorted(snapshot.ends.items()) if end > ends[key]]
    if not beyond:
        return
    log_ends = await _named(cluster, beyond, OffsetSpec.LATEST, UNCOMMITTED)
    first = next((key for key in beyond if snapshot.ends[key] > log_ends[key]), None)
    if first is not None:
        raise SnapshotUnreadable(
            f"{listed([first])} ends at {log_ends[first]}, before offset {snapshot.ends[first]} of the snapshot: "
            "there is nothing that far yet, or the topic was cut off or made anew"
        )
    first = beyond[0]
    raise SnapshotUnreadable(
        f"{listed([first])} is committed only up to offset {ends[first]}: a transaction is open before offset "
        f"{snapshot.ends[first]} of the snapshot; read again when it has ended, or read uncommitted records"
    )


async def _named(cluster: Cluster, keys: Iterable[TopicPartition], spec: OffsetSpec, isolation: int) -> Offsets:
    found = await _found(cluster, dict.fromkeys(keys, int(spec)), isolation)
    return {key: place.offset for key, place in found.items() if place is not None}


async def _found(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, OffsetFound | None]:
    if not wanted:
        return {}
    return await list_offsets(cluster, wanted, isolation=isolation, deadline_ms=cluster.deadline_ms())
