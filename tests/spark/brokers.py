"""A broker that the tests of the Spark side share, and the short ways to fill and to read its topics.

The ways go through our own client, whose own tests hold it against other clients. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import ottla
from ottla.client.blocking.client import Client
from ottla.client.values import NewRecord, OffsetSpec, Record
from tests.clients.server_process import ServerProcess

NO_AUTO_CREATION = {"auto.create.topics.enable": "false"}
READ_IDLE_MS = 30_000
"""What is known to be there has come long before; without an end a test of ours that lost a record would hang."""
READ_LOOK_MS = 100
"""A poll that meets only aborted records and markers goes on waiting, though the reader may be where it has to be."""

_numbers = count()


class Broker:
    """One running broker, Ottla or Apache Kafka."""

    def __init__(self, bootstrap: str, *, kind: str, server: ServerProcess | None = None) -> None:
        self.bootstrap = bootstrap
        """For `option("kafka.bootstrap.servers", ...)`."""
        self.kind = kind
        """`ottla` or `kafka`."""
        self.server = server
        """The process of an Ottla broker, to kill and to start again; None for Apache Kafka."""
        self.client: Client = ottla.connect(bootstrap)

    @property
    def is_ottla(self) -> bool:
        return self.kind == "ottla"

    def options(self, **more: object) -> dict[str, str]:
        """The address and `more` as options of a source or a sink: `options(subscribe=topic, minPartitions=4)`.

        For names with a dot: `broker.options(**{"kafka.group.id": "g"})`.
        """
        words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **words}

    def topic(self, partitions: int = 1, *, stem: str = "topic", configs: Mapping[str, str] | None = None) -> str:
        """The name of a fresh topic."""
        name = f"{stem}-{next(_numbers)}"
        self.client.admin().create_topic(name, partitions=partitions, configs=configs)
        return name

    def produce(
        self,
        topic: str,
        records: Iterable[bytes | str | NewRecord | None],
        *,
        partition: int | None = None,
        compression: str = "none",
        batch_records_max: int = 1_000,
    ) -> None:
        """Write records in their order; those without a partition of their own go to `partition`, if it is given.

        One call makes at least one record batch for each `batch_records_max` records.
        """
        wanted = [_record(each, partition) for each in records]
        with self.client.producer(compression=compression) as producer:
            for first in range(0, len(wanted), batch_records_max):
                producer.send_batch(topic, wanted[first : first + batch_records_max])

    def produce_in_transaction(
        self,
        topic: str,
        records: Sequence[bytes | str | NewRecord | None],
        *,
        commit: bool,
        partition: int | None = None,
    ) -> None:
        """Write records in one transaction, and commit or abort it."""
        with self.client.producer(transactional_id=f"transaction-{next(_numbers)}") as producer:
            producer.begin()
            producer.send_batch(topic, [_record(each, partition) for each in records])
            if commit:
                producer.commit()
            else:
                producer.abort()

    def ends(self, topic: str) -> dict[int, int]:
        """The end of each partition: the offset that its next record gets."""
        return self._offsets(topic, OffsetSpec.LATEST)

    def starts(self, topic: str) -> dict[int, int]:
        """The offset of the first record that each partition still has."""
        return self._offsets(topic, OffsetSpec.EARLIEST)

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        partition_count = self.client.admin().partition_count(topic)
        assert partition_count is not None, f"there is no topic {topic}"
        wanted: dict[tuple[str, int], int] = {(topic, partition): spec for partition in range(partition_count)}
        found = self.client.admin().list_offsets(wanted)
        return {target.partition: offset.offset for target, offset in found.items() if offset is not None}

    def records(self, topic: str, *, committed: bool = True) -> list[Record]:
        """All that is in a topic now, in order of partition and offset; `committed`: without aborted records."""
        isolation = "read_committed" if committed else "read_uncommitted"
        ends = {partition: end for partition, end in self.ends(topic).items() if end > self.starts(topic)[partition]}
        read: list[Record] = []
        with self.client.consumer(isolation=isolation, records_max=10_000) as consumer:
            consumer.assign([(topic, partition) for partition in ends])
            looks_left = READ_IDLE_MS // READ_LOOK_MS
            # Control records take offsets too, so what counts is how far the reader is, not how much it has.
            while behind := {p: position for p, end in ends.items() if (position := consumer.position(topic, p)) < end}:
                assert looks_left, f"{topic} does not give what it has: {ends}, read up to {behind}"
                read += consumer.poll(READ_LOOK_MS)
                moved = any(consumer.position(topic, p) != position for p, position in behind.items())
                looks_left = READ_IDLE_MS // READ_LOOK_MS if moved else looks_left - 1
        return sorted(read, key=lambda record: (record.partition, record.offset))

    def values(self, topic: str, *, committed: bool = True) -> list[bytes | None]:
        """The values of `records`."""
        return [record.value for record in self.records(topic, committed=committed)]

    def delete_before(self, topic: str, partition: int, *, offset: int) -> None:
        """Delete the records before `offset`, as retention does."""
        self.client.admin().delete_records({(topic, partition): offset})

    def close(self) -> None:
        self.client.close()


def _record(given: bytes | str | NewRecord | None, partition: int | None) -> NewRecord:
    if isinstance(given, NewRecord):
        return given if partition is None or given.partition is not None else given._replace(partition=partition)
    return NewRecord(given.encode() if isinstance(given, str) else given, partition=partition)


def ottla_process(directory: Path) -> Iterator[Broker]:
    """An Ottla server in a process of its own, for as long as the caller goes on with the generator."""
    server = ServerProcess(directory, NO_AUTO_CREATION)
    try:
        server.start()
        broker = Broker(server.address, kind="ottla", server=server)
        yield broker
        broker.close()
    finally:
        server.end()
