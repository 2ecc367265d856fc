"""The exactly-once way of the sink, task by task, against a real broker: no Spark, so that every order can be tried."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

import ottla
from ottla.client.blocking.client import Client
from ottla.client.errors import NoBrokerReachable
from ottla.client.transaction_admin import TransactionDescription
from ottla.client.values import OffsetSpec, OpenTransaction
from ottla.clock import ManualClock, SystemClock
from ottla.errors import OttlaError, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.spark import pool, task_writing
from ottla.spark.errors import InvalidOption
from ottla.spark.exactly_once import COUNTS, BatchKey, NotCommitted, StaleBatch
from ottla.spark.exactly_once import commit as commit_together
from ottla.spark.kafka_options import Connection
from ottla.spark.keeper import KEEPER, LIVES_MAX, Keeper, broker_slots
from ottla.spark.options import WriteOptions
from ottla.spark.task_writing import WriteFailed, write
from ottla.spark.writer import Written
from ottla.testing.server_thread import ServerThread
from tests.client.scripted_broker import ScriptedCluster
from tests.client.socket_broker import SocketBroker
from tests.spark.sink_tasks import failing, rows, sink_options, task

PRIVATE = (ApiKey.COMMIT_TOGETHER, ApiKey.DESCRIBE_COMMIT, ApiKey.KEEP_TRANSACTIONS)


def commit(messages: list[Written], options: WriteOptions) -> None:
    task_writing.commit(messages, options, is_lasting=True)


def abort(options: WriteOptions, *, tasks: int, is_final: bool = False) -> None:
    task_writing.abort(BatchKey("query", 0), options, tasks=tasks, is_final=is_final)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    thread = ServerThread(str(tmp_path / "broker"))
    thread.start()
    yield thread
    thread.stop()


@pytest.fixture
def client(server: ServerThread) -> Iterator[Client]:
    with ottla.connect(server.bootstrap) as made:
        made.admin().create_topic("t", partitions=3)
        yield made


@pytest.fixture
def options(server: ServerThread) -> Iterator[WriteOptions]:
    chosen = sink_options(server.bootstrap)
    yield chosen
    pool.drop(chosen.connection)


def visible(client: Client) -> list[str]:
    """What readers of committed records find, sorted."""
    with client.consumer(isolation="read_committed") as consumer:
        consumer.assign([("t", partition) for partition in range(3)])
        return sorted((record.value or b"").decode() for record in consumer.records(idle_ms=200))


def is_held_back(client: Client) -> bool:
    """Whether an open transaction keeps readers from the end of a partition."""
    wanted: dict[tuple[str, int], int] = {("t", partition): OffsetSpec.LATEST for partition in range(3)}
    stable = client.admin().list_offsets(wanted, isolation="read_committed")
    return stable != client.admin().list_offsets(wanted)


def test_the_rows_of_all_tasks_count_from_the_commit_on(client: Client, options: WriteOptions) -> None:
    messages = [write(rows(f"a{slot}", f"b{slot}"), options, task(0, slot)) for slot in range(3)]
    assert visible(client) == []
    commit(messages, options)
    assert visible(client) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_what_tasks_tell_the_driver_can_be_pickled(client: Client, options: WriteOptions) -> None:
    message = write(rows("a"), options, task(0))
    assert pickle.loads(pickle.dumps(message)) == message
    assert message == Written(rows=1, query_id="query", batch_id=0, transaction=message.transaction)


def test_a_batch_that_comes_again_is_read_to_its_end_and_skipped(
    client: Client, options: WriteOptions, caplog: pytest.LogCaptureFixture
) -> None:
    commit([write(rows("a"), options, task(0))], options)
    before = COUNTS.batches_skipped
    again = rows("a")
    message = write(again, options, task(0))
    assert message == Written(rows=1, query_id="query", batch_id=0, was_replay=True)
    assert next(again, None) is None
    assert COUNTS.batches_skipped == before + 1
    assert "batch 0 of query query is committed already: skipped" in caplog.text
    assert visible(client) == ["a"]


def test_a_batch_from_before_the_last_one_is_an_error_and_no_replay(client: Client, options: WriteOptions) -> None:
    for batch_id in range(2):
        commit([write(rows(f"{batch_id}"), options, task(batch_id))], options)
    with pytest.raises(StaleBatch, match="batch 0 of query query was committed before batch 1"):
        write(rows("something else"), options, task(0))


def test_a_batch_of_an_application_that_comes_again_late_is_skipped(client: Client, options: WriteOptions) -> None:
    for batch_id in range(2):
        commit([write(rows(f"{batch_id}"), options, task(batch_id))], options)
    assert write(rows("0"), options, task(0, in_order=False)).was_replay


def test_a_new_attempt_fences_what_a_dead_one_left_open(
    client: Client, options: WriteOptions, caplog: pytest.LogCaptureFixture
) -> None:
    before = COUNTS.attempts_fenced
    write(rows("dead"), options, task(0))
    message = write(rows("alive"), options, task(0, attempt=1))
    assert message.has_fenced
    assert COUNTS.attempts_fenced == before + 1
    assert "an earlier attempt had left a transaction open in slot query/0: fenced" in caplog.text
    commit([message], options)
    assert visible(client) == ["alive"]


def test_a_commit_that_names_a_fenced_attempt_is_refused_whole(client: Client, options: WriteOptions) -> None:
    fenced = write(rows("fenced"), options, task(0, slot=0))
    other = write(rows("other"), options, task(0, slot=1))
    write(rows("speculative"), options, task(0, slot=0, attempt=1))
    with pytest.raises(NotCommitted, match=r"batch 0 of query query was not committed.*spark\.speculation"):
        commit([fenced, other], options)
    abort(options, tasks=2)
    assert visible(client) == []
    assert not is_held_back(client)


def test_a_commit_that_is_refused_for_another_reason_is_told_without_advice_on_slow_tasks(
    client: Client, options: WriteOptions
) -> None:
    message = write(rows("a"), options, task(0))
    assert message.transaction is not None
    with pool.borrowed(options.connection) as link, pytest.raises(NotCommitted, match="does not begin with") as told:
        commit_together(link, BatchKey("another query", 0), [message.transaction], insist_ms=SECOND)
    assert "timeout" not in str(told.value)
    assert "speculation" not in str(told.value)


def test_a_task_that_fails_leaves_nothing_open(client: Client, options: WriteOptions) -> None:
    with pytest.raises(ZeroDivisionError):
        write(failing("a", "b"), options, task(0))
    assert not is_held_back(client)
    commit([write(rows("a", "b"), options, task(0, attempt=1))], options)
    assert visible(client) == ["a", "b"]


def test_an_abort_drops_what_the_tasks_left_open(client: Client, options: WriteOptions) -> None:
    write(rows("a"), options, task(0))
    write(rows("a"), options, task(0, slot=2))
    assert is_held_back(client)
    abort(options, tasks=3)
    assert not is_held_back(client)
    assert visible(client) == []


@pytest.mark.parametrize("is_final", [False, True])
def test_an_abort_after_the_commit_changes_nothing(client: Client, options: WriteOptions, is_final: bool) -> None:
    message = write(rows("a"), options, task(0))
    commit([message], options)
    abort(options, tasks=1, is_final=is_final)
    assert visible(client) == ["a"]


def test_a_task_that_begins_after_its_batch_was_given_up_for_good_writes_nothing(
    client: Client, options: WriteOptions
) -> None:
    abort(options, tasks=2, is_final=True)
    message = write(rows("late"), options, task(0))
    assert message.transaction is None
    assert not is_held_back(client)


def test_a_batch_that_was_given_up_may_be_written_again_by_the_next_run(client: Client, options: WriteOptions) -> None:
    write(rows("a"), options, task(0))
    abort(options, tasks=1)
    commit([write(rows("a"), options, task(0))], options)
    assert visible(client) == ["a"]


def test_a_task_that_is_at_work_when_its_batch_is_given_up_leaves_nothing_open(
    client: Client, options: WriteOptions
) -> None:
    def given_up() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        abort(options, tasks=1)
        yield from rows("b")

    with pytest.raises(OttlaError, match="another one has taken over"):
        write(given_up(), options, task(0))
    assert not is_held_back(client)
    assert visible(client) == []


def test_tasks_that_wrote_while_an_earlier_run_committed_the_batch_are_dropped(
    client: Client, options: WriteOptions
) -> None:
    earlier = write(rows("a"), options, task(0, slot=0))
    late = write(rows("a"), options, task(0, slot=5))
    commit([earlier], options)
    skipped = write(rows("a"), options, task(0, slot=0))
    commit([skipped, late], options)
    assert visible(client) == ["a"]
    assert not is_held_back(client)


def test_what_a_run_with_more_tasks_left_open_is_dropped_with_the_first_commit_of_the_next(
    client: Client, options: WriteOptions, caplog: pytest.LogCaptureFixture
) -> None:
    write(rows("dead"), options, task(0, slot=9))
    write(rows("of another query"), options, task(0, slot=9, query="another"))
    commit([write(rows("alive"), options, task(0))], options)
    assert [each.transactional_id for each in client.admin().list_transactions(states=["Ongoing"])] == ["another/9"]
    assert "an earlier run had left a transaction open in slot query/9: aborted" in caplog.text


def test_a_commit_that_is_repeated_does_nothing(client: Client, options: WriteOptions) -> None:
    message = write(rows("a"), options, task(0))
    commit([message], options)
    commit([message], options)
    assert visible(client) == ["a"]


def test_a_task_without_rows_asks_nobody() -> None:
    nowhere = sink_options("127.0.0.1:1")
    assert write(rows(), nowhere, task(0)) == Written(rows=0)


def test_a_row_that_is_too_large_fails_the_task_with_the_fix(client: Client, options: WriteOptions) -> None:
    client.admin().alter_configs(topic="t", set={"max.message.bytes": "1000"})
    with pytest.raises(WriteFailed, match=r"raise max\.message\.bytes"):
        write(rows("x" * 2_000), options, task(0))
    assert not is_held_back(client)


@pytest.mark.parametrize("guarantee", ["auto", "at-least-once"])
def test_every_codec_and_size_comes_through(client: Client, server: ServerThread, guarantee: str) -> None:
    wanted = []
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        options = sink_options(
            server.bootstrap, kafka_compression_type=codec, kafka_batch_size="3000", deliveryGuarantee=guarantee
        )
        values = [f"{codec} {size} " + "x" * size for size in (0, 10, 1_000, 2_990, 100_000)]
        message = write(rows(*values), options, task(number))
        if message.transaction is not None:
            commit([message], options)
        wanted += values
    assert visible(client) == sorted(wanted)


def test_brokers_without_group_commits_get_rows_at_least_once_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with foreign() as broker:
        options = sink_options(broker.bootstrap)
        assert write(rows("a"), options, task(0)) == Written(rows=1)
        assert write(rows("b"), options, task(1)) == Written(rows=1)
        assert broker.cluster.topics["t"].partitions[0].values() == [b"a", b"b"]
        pool.drop(options.connection)
    assert caplog.text.count("rows are delivered at least once") == 1


def test_brokers_without_group_commits_refuse_who_asks_for_exactly_once() -> None:
    with foreign() as broker:
        options = sink_options(broker.bootstrap, deliveryGuarantee="exactly-once")
        with pytest.raises(InvalidOption, match="deliveryGuarantee: exactly-once needs the group commits of Ottla"):
            write(rows("a"), options, task(0))


@contextmanager
def foreign() -> Iterator[SocketBroker]:
    """A broker as others make them."""
    cluster = ScriptedCluster()
    cluster.create("t")
    for each in PRIVATE:
        del cluster.versions[each]
    with SocketBroker(cluster) as broker:
        yield broker


def test_a_batch_costs_few_questions_once_the_process_knows_the_broker() -> None:
    cluster = ScriptedCluster()
    cluster.create("t", 4)
    with SocketBroker(cluster) as broker:
        options = sink_options(broker.bootstrap)
        for batch_id in range(3):
            del broker.requests[:]
            message = write(rows("a", "b"), options, task(batch_id))
            task_writing.commit([message], options, is_lasting=False)
        asked = [request.header.api_key.name for request in broker.requests]
        pool.drop(options.connection)
    assert asked == ["FIND_COORDINATOR", "INIT_PRODUCER_ID", "DESCRIBE_COMMIT", "PRODUCE", "COMMIT_TOGETHER"]


def test_what_earlier_runs_left_open_is_asked_for_once(client: Client, options: WriteOptions) -> None:
    commit([write(rows("a"), options, task(0))], options)
    write(rows("b"), options, task(1, slot=9))
    commit([write(rows("c"), options, task(1))], options)
    assert [each.transactional_id for each in client.admin().list_transactions(states=["Ongoing"])] == ["query/9"]


def test_at_least_once_costs_one_request() -> None:
    cluster = ScriptedCluster()
    cluster.create("t", 4)
    with SocketBroker(cluster) as broker:
        options = sink_options(broker.bootstrap, deliveryGuarantee="at-least-once")
        for batch_id in range(3):
            del broker.requests[:]
            write(rows("a", "b"), options, task(batch_id))
        asked = [request.header.api_key.name for request in broker.requests]
        pool.drop(options.connection)
    assert asked == ["PRODUCE"]


# --- keeping open --------------------------------------------------------------------------------------

SECOND = 1_000
CONNECTION = sink_options("127.0.0.1:1").connection


class FakeSlots:
    """Slots that a test opens and closes."""

    def __init__(self) -> None:
        self.started_ms: dict[str, int] = {}
        self.renewed: list[str] = []
        self.is_down = False
        self.on_renewal: Callable[[], None] = lambda: None

    @contextmanager
    def __call__(self, connection: Connection) -> Iterator[FakeSlots]:
        if self.is_down:
            raise NoBrokerReachable("down")
        yield self

    def open_slots(self, query_id: str) -> list[str]:
        return [name for name in self.started_ms if name.startswith(f"{query_id}/")]

    def describe(self, slot: str) -> TransactionDescription | None:
        started_ms = self.started_ms.get(slot)
        state = "CompleteCommit" if started_ms is None else "Ongoing"
        return TransactionDescription(slot, state, 7, 1, SECOND, started_ms, ())

    def renew(self, query_id: str, transaction: OpenTransaction) -> None:
        assert transaction == OpenTransaction(transaction.transactional_id, 7, 1)
        self.renewed.append(transaction.transactional_id)
        self.on_renewal()


class Kept:
    """A keeper whose time the test moves."""

    def __init__(self) -> None:
        self.time = ManualClock(0)
        self.slots = FakeSlots()
        self.keeper = Keeper(slots=self.slots, ticks=self.time, clock=self.time)

    def look_after(self, milliseconds: int) -> list[str]:
        """What is renewed at the next look."""
        self.time.advance(milliseconds)
        del self.slots.renewed[:]
        self.keeper.look((CONNECTION, "query"))
        return list(self.slots.renewed)


def test_while_a_task_is_at_work_all_slots_of_its_query_are_kept_open() -> None:
    kept = Kept()
    kept.slots.started_ms.update({"query/0": 0, "query/1": 0, "other/0": 0})
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(400) == ["query/0", "query/1"]
        assert kept.look_after(400) == ["query/0", "query/1"]


def test_nobody_is_asked_about_a_batch_that_has_just_begun() -> None:
    kept = Kept()
    kept.slots.is_down = True
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(200) == []


def test_nothing_is_kept_open_for_ever() -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(LIVES_MAX * SECOND - 1) == ["query/1"]
        assert kept.look_after(1) == []


def test_when_no_task_is_at_work_nothing_is_kept_open() -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(400) == ["query/1"]
    assert kept.look_after(400) == []
    assert kept.look_after(400) == []
    assert kept.keeper.is_idle


def test_a_look_between_two_tasks_does_not_end_the_keeping() -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    for _ in range(3):
        with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
            kept.look_after(250)
        kept.look_after(250)
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(0) == ["query/1"]


def test_the_next_batch_of_a_query_begins_its_own_time() -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(400) == ["query/1"]
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 4), timeout_ms=SECOND):
        assert kept.look_after(200) == []


def test_a_broker_that_does_not_answer_is_asked_again_at_the_next_look(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    kept.slots.is_down = True
    with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
        assert kept.look_after(400) == []
        assert kept.look_after(400) == []
        kept.slots.is_down = False
        assert kept.look_after(400) == ["query/1"]
    assert caplog.text.count("cannot be kept open just now") == 1


def test_the_broker_lists_and_renews_what_is_open_and_nothing_else(client: Client, options: WriteOptions) -> None:
    decided = write(rows("a"), options, task(0, slot=3))
    commit([decided], options)
    left_open = [write(rows("a"), options, task(1, slot=slot)).transaction for slot in range(2)]
    write(rows("a"), options, task(0, query="query.*"))
    with broker_slots(options.connection) as slots:
        assert slots.open_slots("query") == ["query/0", "query/1"]
        for each in left_open:
            assert each is not None
            slots.renew("query", each)
        assert decided.transaction is not None
        with pytest.raises(Refusal):
            slots.renew("query", decided.transaction)


def test_a_task_at_work_is_kept_by_a_thread_of_its_process() -> None:
    slots = FakeSlots()
    looked = Event()
    slots.on_renewal = looked.set
    slots.started_ms["query/0"] = SystemClock().now_ms()
    keeper = Keeper(slots=slots)
    with keeper.at_work(CONNECTION, BatchKey("query", 0), timeout_ms=300):
        keeper.start(CONNECTION)
        assert looked.wait(60)
    slots.started_ms.clear()


def keeper_threads() -> set[Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "ottla-keeper"}


def test_one_thread_serves_all_queries_of_a_cluster() -> None:
    before = keeper_threads()
    keeper = Keeper(slots=FakeSlots())
    for number in range(20):
        with keeper.at_work(CONNECTION, BatchKey(f"save {number}", 0), timeout_ms=60 * SECOND):
            keeper.start(CONNECTION)
    assert len(keeper_threads() - before) == 1


def test_a_thread_that_has_nothing_to_keep_ends() -> None:
    before = keeper_threads()
    keeper = Keeper(slots=FakeSlots())
    with keeper.at_work(CONNECTION, BatchKey("query", 0), timeout_ms=4):
        keeper.start(CONNECTION)
        (thread,) = keeper_threads() - before
    thread.join(60)
    assert not thread.is_alive()
    assert keeper.is_idle


def test_short_tasks_one_after_the_other_are_as_much_work_as_a_long_one() -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    for _ in range(3):
        with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
            pass
        kept.look_after(250)
    assert kept.slots.renewed == ["query/1"]


def test_a_short_batch_is_never_asked_about() -> None:
    kept = Kept()
    kept.slots.started_ms["query/1"] = 0
    for _ in range(3):
        with kept.keeper.at_work(CONNECTION, BatchKey("query", 3), timeout_ms=SECOND):
            pass
    assert kept.look_after(250) == []
    assert kept.look_after(250) == []
    assert kept.keeper.is_idle


@pytest.mark.parametrize(("guarantee", "is_kept"), [("auto", True), ("exactly-once", True), ("at-least-once", False)])
def test_a_task_is_at_work_while_it_waits_for_its_first_row(
    client: Client, server: ServerThread, guarantee: str, is_kept: bool
) -> None:
    options = sink_options(server.bootstrap, deliveryGuarantee=guarantee)
    seen = []

    def slow() -> Iterator[pa.RecordBatch]:
        seen.append(KEEPER.has_task(options.connection, BatchKey("query", 0)))
        yield from rows("a")

    write(slow(), options, task(0))
    pool.drop(options.connection)
    assert seen == [is_kept]
    assert not KEEPER.has_task(options.connection, BatchKey("query", 0))


def test_brokers_without_group_commits_have_nothing_to_keep_and_are_not_asked() -> None:
    with foreign() as broker:
        options = sink_options(broker.bootstrap)
        with broker_slots(options.connection) as slots:
            assert slots.open_slots("query") == []
        asked = {request.header.api_key for request in broker.requests}
        pool.drop(options.connection)
    assert ApiKey.LIST_TRANSACTIONS not in asked
