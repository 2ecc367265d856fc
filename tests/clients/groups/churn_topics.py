"""The topics of a churn test: made, filled with records that are remembered, and asked what is committed on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.groups.churn_checks import Spot
from tests.clients.groups.members import Place

ANSWER_SECONDS_MAX = 60


class Topics:
    """Some topics, and every record that was acknowledged to be in them."""

    def __init__(self, address: str) -> None:
        self.partition_counts: dict[str, int] = {}
        self.produced: dict[Spot, str] = {}
        self._address = address
        self._admin = self._new_admin()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self.sent = 0

    def make(self, name: str, *, partitions: int) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(ANSWER_SECONDS_MAX)
        self.partition_counts[name] = partitions

    @property
    def places(self) -> frozenset[Place]:
        return frozenset((name, each) for name, count in self.partition_counts.items() for each in range(count))

    def send(self, names: Sequence[str], count: int) -> None:
        """Some records for each of these topics, over all their partitions; not waited for."""
        for name in names:
            for _ in range(count):
                self.sent += 1
                partition = self.sent % self.partition_counts[name]
                value = f"{name} {self.sent}"
                self._producer.produce(name, value.encode(), partition=partition, on_delivery=self._on_delivery)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all that was sent is acknowledged."""
        left = self._producer.flush(ANSWER_SECONDS_MAX)
        assert left == 0, f"{left} records are not acknowledged"
        assert len(self.produced) == self.sent

    def ends(self) -> dict[Place, int]:
        """The offset after the last record of each partition that has one, by the acknowledgements."""
        highest: dict[Place, int] = {}
        for topic, partition, offset in self.produced:
            highest[topic, partition] = max(offset + 1, highest.get((topic, partition), 0))
        return highest

    def commit_beginnings(self, group: str) -> None:
        """Commit offset 0 everywhere, so that no member has to ask where a partition begins.

        librdkafka 2.16 may be given back a partition while it waits for that answer. It takes the next answer, but asks
        once more by a timer that it forgot, and then reads and commits from the beginning again, without a rebalance.
        """
        beginnings = [TopicPartition(*place, 0) for place in sorted(self.places)]
        asked = self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, beginnings)])
        asked[group].result(ANSWER_SECONDS_MAX)

    def committed(self, group: str) -> dict[Place, int]:
        """All committed offsets of a group, as the broker tells them; asked again while it reads them back."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            try:
                found = asked[group].result(ANSWER_SECONDS_MAX).topic_partitions or []
            except KafkaException as error:
                is_loading = error.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
                if not is_loading or time.monotonic() > deadline:
                    raise
            else:
                return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def protocol(self, group: str) -> str:
        """Which protocol a group speaks: CLASSIC or CONSUMER."""
        found = self._admin.describe_consumer_groups([group])[group].result(ANSWER_SECONDS_MAX)
        return str(found.type.name)

    def described(self, group: str) -> str:
        """What the broker says of a group, for whoever wonders."""
        found = self._admin.describe_consumer_groups([group])[group].result(ANSWER_SECONDS_MAX)
        members = [f"{each.client_id}: {sorted(_places(each.assignment))}" for each in found.members]
        return f"{found.type.name} {found.state.name}, members {members}"

    def reconnect(self) -> None:
        """Ask by a new client: librdkafka 2.16's goes on to wait for a coordinator that it has given up on."""
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._address, "log_level": 0})

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.produced[topic, partition, offset] = value.decode()


class Watch:
    """Asks again and again who owns what, and remembers where two members own the same."""

    def __init__(self, address: str, group: str) -> None:
        self.doubles: list[str] = []
        self.looks = 0
        self.failures: list[str] = []
        self._group = group
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"watch {group}", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(ANSWER_SECONDS_MAX)

    def _look(self) -> None:
        while not self._is_over.wait(0.1):
            try:
                described = self._admin.describe_consumer_groups([self._group])[self._group].result(ANSWER_SECONDS_MAX)
            except Exception as error:  # Whatever it is, the test must hear of it, and this is another thread.
                if self.looks:
                    # Before, there may be no such group yet.
                    self.failures.append(repr(error))
                continue
            self.looks += 1
            owned = ((member.member_id, _places(member.assignment)) for member in described.members)
            self.doubles += _doubles(owned)


def _places(assignment: object) -> set[Place]:
    partitions = getattr(assignment, "topic_partitions", None) or ()
    return {(each.topic, each.partition) for each in partitions}


def _doubles(owned: Iterable[tuple[str, set[Place]]]) -> list[str]:
    owners: dict[Place, str] = {}
    found = []
    for name, places in owned:
        for place in places:
            if place in owners:
                found.append(f"{place[0]}-{place[1]}: {owners[place]} and {name}")
            owners[place] = name
    return found
