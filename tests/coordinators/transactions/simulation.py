"""One seeded life of a transaction coordinator: producers and queries come and go, and the broker crashes.

Everything happens in small steps, in an order that the seed decides. Each life has one crash point that it likes best,
so that even the rare ones are hit; crashes also come at any other time, while the coordinator reads its state back too.
In the end all clients fall silent, and what is left must come to rest by itself; then the ledger is held against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from random import Random

from ottla.coordinators.transactions.records import TransactionLogValue, TransactionStatus, decode
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from tests.coordinators.transactions.broker_model import ADD_WAITS, CRASH_POINTS, GROUP, INIT_WAITS, OPEN, ModelBroker
from tests.coordinators.transactions.ledger import Ledger, check_history
from tests.coordinators.transactions.producer_clients import Connection, Late, Phase, Producer
from tests.coordinators.transactions.query_clients import Checkpoint, Driver

STEPS = 900
CRASHES_MAX = 6
PRODUCERS_MAX = 3
PARTITIONS = 7
QUIET_ROUNDS_MAX = 400
LATE_MAX = 10
COMMON_POINTS = (OPEN, INIT_WAITS, ADD_WAITS)
HOUR_MS = 60 * 60 * 1_000


class Simulation:
    """The life of one broker."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self._random = Random(seed)
        self._counts = counts
        self._has_queries = self._random.random() < 0.6
        # A query that is away for longer than its keys are kept may commit twice; nobody is, here.
        self._expiration_ms = 24 * HOUR_MS if self._has_queries else self._random.choice((6_000, HOUR_MS))
        settings = TransactionSettings(
            id_expiration_ms=self._expiration_ms, expiry_interval_ms=self._expiration_ms // 4
        )
        self._broker = ModelBroker(settings, random=self._random, counts=counts, partition_count=PARTITIONS)
        self._ledger = Ledger()
        self._late: list[Late] = []
        self._producers: list[Producer] = []
        self._drivers: list[Driver] = []
        self._favourite = self._choose_favourite()
        self._crashes = 0
        self._trouble = self._random.choice((0.2, 0.5, 1.0))
        weighted = self._weighted_actions()
        self._actions = [action for _, action in weighted]
        self._cumulative_weights = list(accumulate(weight for weight, _ in weighted))
        if self._random.random() < 0.3:
            self._begin_with_few_epochs()
        if self._has_queries:
            self._drivers.append(self._new_driver(Checkpoint("q")))

    def _choose_favourite(self) -> str:
        of_groups = [point for point in CRASH_POINTS if point.startswith(GROUP)]
        return self._random.choice(of_groups if self._has_queries and self._random.random() < 0.6 else CRASH_POINTS)

    # --- one life ----------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Live it; returns what is left, so that two runs of a seed can be compared."""
        for _ in range(STEPS):
            self._step()
            self._maybe_crash()
        self._come_to_rest()
        self._check()
        coordinator = self._broker.coordinator
        return f"{[partition.entries for partition in self._broker.partitions.values()]} {coordinator.durable}"

    def _weighted_actions(self) -> list[tuple[float, Callable[[], None]]]:
        broker, trouble = self._broker, self._trouble
        return [
            (50, self._let_a_producer_act),
            (50 if self._has_queries else 0, self._let_a_driver_act),
            (40, self._sync_the_coordinator),
            (30, broker.coordinator.release),
            (20, broker.write_a_marker),
            (30, self._sync_partitions),
            (12, broker.tell_completed),
            (3, self._start_a_producer),
            (5 * trouble, self._tick),
            (4 * trouble, self._break_a_connection),
            (6 * trouble, self._deliver_what_is_late),
            (1 * trouble, self._kill_a_producer),
            (3 * trouble, self._replace_a_driver),
            (0.5 * trouble, self._abort_as_admin),
            (1 * trouble, self._take_a_partition_offline),
            (4 * trouble, self._bring_partitions_back),
            (0.5 * trouble, broker.begin_shard_anew),
        ]

    def _step(self) -> None:
        if self._broker.coordinator.is_loading and self._random.random() < 0.3:
            self._broker.coordinator.load_piece()
            return
        (action,) = self._random.choices(self._actions, cum_weights=self._cumulative_weights)
        action()

    def _maybe_crash(self) -> None:
        if self._crashes >= CRASHES_MAX:
            return
        chance = 0.03 if self._favourite in COMMON_POINTS else 0.2
        is_wanted = self._random.random() < chance and self._favourite in self._broker.crash_points()
        if is_wanted or self._random.random() < 0.002 * self._trouble:
            self._crashes += 1
            for connection in self._connections():
                connection.lose()
            self._broker.crash()

    def _come_to_rest(self) -> None:
        """Nobody asks for anything any more, and nothing goes wrong."""
        for connection in self._connections():
            connection.lose()
        broker, coordinator = self._broker, self._broker.coordinator
        self._bring_partitions_back()
        for _ in range(QUIET_ROUNDS_MAX):
            if coordinator.is_loading:
                coordinator.load_piece()
            coordinator.sync(count=len(coordinator.unsynced))
            coordinator.release()
            for _ in range(PARTITIONS):
                broker.write_a_marker()
            for partition in broker.partitions.values():
                partition.sync()
            broker.tell_completed()
            if coordinator.is_quiet and not broker.has_runs:
                return
            coordinator.advance(1_000)
        raise AssertionError(f"it does not come to rest: {coordinator.timers} {coordinator.waiting}")

    def _check(self) -> None:
        coordinator = self._broker.coordinator
        for partition in self._broker.partitions.values():
            assert not partition.has_open, f"{partition.name} has an open transaction"
        for found in coordinator.shard.transactions:
            assert found.ending is None, f"{found.transactional_id} is stuck in {found.status.told}"
            assert found.status is not TransactionStatus.ONGOING
        check_history(change for position in sorted(coordinator.changes) for change in coordinator.changes[position])
        self._ledger.check(self._broker.partitions.values(), self._counts)
        self._check_restored()

    def _check_restored(self) -> None:
        """What the records say is what the coordinator has in mind."""
        coordinator = self._broker.coordinator
        restored = TransactionShard(TransactionSettings())
        for batch in coordinator.durable:
            for key, value in batch.records:
                record = decode(key, value)
                assert record is not None
                restored.replay(record.key, record.value)
        now = {found.transactional_id: found.value for found in coordinator.shard.transactions}
        assert {found.transactional_id: found.value for found in restored.transactions} == now
        assert restored.transactions.batches == coordinator.shard.transactions.batches

    # --- clients -----------------------------------------------------------------------------------------------

    def _connections(self) -> list[Connection]:
        of_drivers = [connection for driver in self._drivers for connection in driver.connections]
        return [*(producer.connection for producer in self._producers), *of_drivers]

    def _let_a_producer_act(self) -> None:
        if not self._producers:
            self._start_a_producer()
        idle = [producer for producer in self._producers if not producer.connection.is_waiting]
        if idle:
            producer = self._random.choice(idle)
            producer.act()
            if producer.phase is Phase.GONE:
                self._producers.remove(producer)

    def _let_a_driver_act(self) -> None:
        if not self._drivers:
            return
        driver = self._random.choice(self._drivers)
        driver.act()
        if driver.is_gone:
            self._drivers.remove(driver)

    def _start_a_producer(self) -> None:
        """Perhaps with the id of one that is still there."""
        if len(self._producers) < PRODUCERS_MAX:
            self._producers.append(
                Producer(
                    self._broker,
                    self._ledger,
                    self._late,
                    transactional_id=self._random.choice(("a", "b", "c", "d")),
                    version=self._random.choice((5, 5, 4)),
                    random=self._random,
                )
            )

    def _new_driver(self, checkpoint: Checkpoint) -> Driver:
        return Driver(checkpoint, self._broker, self._ledger, self._late, random=self._random)

    def _kill_a_producer(self) -> None:
        if self._producers:
            self._producers.remove(self._random.choice(self._producers))

    def _replace_a_driver(self) -> None:
        """The old one is dead, or only thought so."""
        leading = [driver for driver in self._drivers if not driver.is_zombie]
        if not leading:
            return
        old = self._random.choice(leading)
        if not old.is_committing and self._random.random() < 0.5:
            return
        self._drivers.append(self._new_driver(old.checkpoint))
        old.is_zombie = True
        if self._random.random() < 0.3:
            self._drivers.remove(old)

    def _begin_with_few_epochs(self) -> None:
        """Some ids have almost used their epochs up."""
        coordinator = self._broker.coordinator
        for number, transactional_id in enumerate(("a", "q/0", "q/1")):
            value = TransactionLogValue(
                producer_id=number + 1,
                producer_epoch=32_766 - self._random.randint(0, 3),
                transaction_timeout_ms=60_000,
                transaction_status=TransactionStatus.EMPTY,
            )
            coordinator.give(transactional_id, value)

    # --- trouble -----------------------------------------------------------------------------------------------

    def _break_a_connection(self) -> None:
        """A client never hears the answer that it waits for, and asks again."""
        waiting = [connection for connection in self._connections() if connection.is_waiting]
        if waiting:
            self._random.choice(waiting).lose()

    def _deliver_what_is_late(self) -> None:
        """A request arrives, or arrives again, when its client has gone on."""
        if self._late:
            self._late.pop(self._random.randrange(len(self._late)))()
        del self._late[:-LATE_MAX]

    def _tick(self) -> None:
        times = (1, 100, 100, 1_000, 1_000, 1_000, 3_000, 10_000)
        is_patient = self._expiration_ms == HOUR_MS
        self._advance(self._random.choice((*times, HOUR_MS // 2) if is_patient else times))

    def _advance(self, ms: int) -> None:
        if not self._broker.coordinator.is_loading:
            self._broker.coordinator.advance(ms)

    def _abort_as_admin(self) -> None:
        known = [found.transactional_id for found in self._broker.coordinator.shard.transactions]
        if known:
            transactional_id = self._random.choice(known)
            response = WriteTxnMarkersResponse()
            self._broker.ask(
                "abort", lambda shard, *rest: shard.abort(transactional_id, response, *rest), lambda reply: None
            )

    def _sync_the_coordinator(self) -> None:
        coordinator = self._broker.coordinator
        coordinator.sync(count=self._random.randint(0, len(coordinator.unsynced)))
        if self._random.random() < 0.5:
            coordinator.release()

    def _sync_partitions(self) -> None:
        for partition in self._broker.partitions.values():
            if self._random.random() < 0.5:
                partition.sync()

    def _take_a_partition_offline(self) -> None:
        self._random.choice(list(self._broker.partitions.values())).is_offline = True

    def _bring_partitions_back(self) -> None:
        for partition in self._broker.partitions.values():
            partition.is_offline = False
