"""The transaction coordinator as handlers see it: `Coordinator`, and the markers that follow its decisions.

It also tells, at any moment, whether a transaction is open: partitions and groups ask before they take anything of it.
What is decided about transactions is in `ottla.coordinators.transactions`.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.coordinator import Coordinator
from ottla.broker.groups import GroupCoordinator
from ottla.broker.markers import MarkerWriter
from ottla.clock import Clock
from ottla.coordinators.runtime_shard import Decision, Done, Recipe
from ottla.coordinators.transactions.claims import shard_key
from ottla.coordinators.transactions.markers import WriteMarkers
from ottla.coordinators.transactions.records import TransactionStatus, decode, encode
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.errors import InvalidProducerIdMapping
from ottla.metadata.catalog import Catalog
from ottla.metadata.configs import BrokerConfigs
from ottla.metadata.internal_topics import INTERNAL_TOPICS, TRANSACTION_STATE
from ottla.metadata.topics import NewTopic
from ottla.partitions.hosted import HostedPartitions
from ottla.scheduler import Scheduler

TransactionDecision = Decision[TransactionShard]


class TransactionCoordinator(Coordinator[TransactionShard]):
    """All transactional ids of this broker."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        partitions: HostedPartitions,
        groups: GroupCoordinator,
        scheduler: Scheduler,
        clock: Clock,
        wall: Clock,
    ) -> None:
        """`clock` is for waits, `wall` for the timestamps of markers."""
        self._partitions = partitions
        settings = transaction_settings(catalog.broker_configs())
        self._markers = MarkerWriter(
            catalog=catalog,
            partitions=partitions,
            groups=groups,
            scheduler=scheduler,
            clock=wall,
            coordinator_epoch=self._coordinator_epoch,
            completed=self._complete,
        )
        super().__init__(
            lambda: state_topic(catalog.broker_configs()),
            Recipe(
                partition=partial(partitions.by_name, TRANSACTION_STATE),
                machine=lambda index: TransactionShard(settings),
                encode=encode,
                decode=decode,
                carry_out=self._carry_out,
            ),
            catalog=catalog,
            partitions=partitions,
            scheduler=scheduler,
            clock=clock,
            key=shard_key,
        )

    def stop(self) -> None:
        super().stop()
        self._markers.stop()

    def ask(self, key: str, decide: TransactionDecision, done: Done) -> None:
        if self.is_started:
            super().ask(key, decide, done)
        else:
            done(_unknown(key))

    def require_ongoing(self, transactional_id: str, *, producer_id: int, producer_epoch: int) -> None:
        """Raise what a batch or an offset of this transaction is to be refused with now, if it is."""
        if not self.is_started:
            raise _unknown(transactional_id)
        shard = self._runtime.machine_of(shard_key(transactional_id))
        shard.require_ongoing(transactional_id, producer_id=producer_id, producer_epoch=producer_epoch)

    def status_of_producer(self, producer_id: int) -> tuple[str, TransactionStatus] | None:
        """The transactional id that has this producer id, if one has; a Refusal while that cannot be known."""
        for shard in self._runtime.all_machines():
            found = shard.status_of_producer(producer_id)
            if found is not None:
                return found
        return None

    def _carry_out(self, order: object) -> None:
        assert isinstance(order, WriteMarkers), order
        # A shard that begins anew gives its orders again, while those of its last life may come to their end: by now
        # the producer may have begun another transaction, which an old marker would end.
        if self._runtime.machine_of(shard_key(order.transactional_id)).is_due(order):
            self._markers.carry_out(order)

    def _complete(self, order: WriteMarkers) -> None:
        self._runtime.tell_shard_of(
            shard_key(order.transactional_id), lambda shard, outcome, now_ms: shard.completed(order, outcome, now_ms)
        )

    def _coordinator_epoch(self, transactional_id: str) -> int:
        topic = self._catalog.image.topics.get(TRANSACTION_STATE)
        if topic is None or not self._runtime.is_started:
            # Deleted meanwhile; what was decided before is carried out all the same.
            return 0
        return self._partitions.leader_epoch(topic, self._runtime.index_of(shard_key(transactional_id)))


def _unknown(transactional_id: str) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(f"there are no transactions here, so {transactional_id!r} has none")


def state_topic(configs: BrokerConfigs) -> NewTopic:
    """The topic that keeps transactions, as it is made."""
    return NewTopic(
        TRANSACTION_STATE,
        partition_count=configs.integer("transaction.state.log.num.partitions"),
        replication_factor=configs.integer("transaction.state.log.replication.factor"),
        configs={
            **INTERNAL_TOPICS[TRANSACTION_STATE],
            "segment.bytes": str(configs.integer("transaction.state.log.segment.bytes")),
        },
    )


def transaction_settings(configs: BrokerConfigs) -> TransactionSettings:
    """The settings of transactions, as the broker was started with them."""
    return TransactionSettings(
        timeout_ms_max=configs.integer("transaction.max.timeout.ms"),
        id_expiration_ms=configs.integer("transactional.id.expiration.ms"),
        expiry_interval_ms=configs.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )
