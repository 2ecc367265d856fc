"""What the sink does in a task, and on the driver when all tasks are done.

Chooses clock and chance, the connections, and which way rows are delivered; loaded only where something is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from random import Random
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from ottla.client.errors import NoBrokerReachable, ProducerFenced
from ottla.client.transport import run_now
from ottla.clock import SystemClock
from ottla.errors import RecordTooLarge
from ottla.spark import exactly_once, pool
from ottla.spark.errors import InvalidOption, OttlaSparkError
from ottla.spark.exactly_once import BatchKey, Slot
from ottla.spark.keeper import KEEPER
from ottla.spark.kept_producers import discard_producer, kept_producer
from ottla.spark.options import WriteOptions
from ottla.spark.pool import Link
from ottla.spark.row_sender import PackedProducer, RowSender
from ottla.spark.writer import BATCH_ID, QUERY_ID, Written

_logger = logging.getLogger(__name__)
_SAID: set[object] = set()
"""The connections of which it was said what their brokers cannot do."""


class WriteFailed(OttlaSparkError):
    """Rows that could not be delivered."""


class Task(NamedTuple):
    """Which part of which batch this is."""

    key: BatchKey
    slot: int
    attempt: int
    in_order: bool
    """Whether it is a batch of a query that repeats none but its last one."""

    @classmethod
    def of_stream(cls) -> Task:
        """The task that runs here, of a streaming query."""
        context = _context()
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise WriteFailed(f"Spark does not say which query this task works for ({QUERY_ID}, {BATCH_ID})")
        return cls(BatchKey(query_id, int(batch_id)), context.partitionId(), context.attemptNumber(), in_order=True)

    @classmethod
    def of_batch(cls, query_id: str, batch_id: int) -> Task:
        """The task that runs here, of a batch that goes by this name."""
        context = _context()
        return cls(BatchKey(query_id, batch_id), context.partitionId(), context.attemptNumber(), in_order=False)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise WriteFailed("the sink writes in tasks of Spark, and this is none")
    return context


def write(iterator: Iterator[pa.RecordBatch], options: WriteOptions, task: Task) -> Written:
    """Write one task's rows, with what the options and the broker promise."""
    if options.guarantee == "at-least-once":
        rows = _begun(iterator)
        return Written(rows=0) if rows is None else _write_at_least_once(rows, options)
    # Before the first row is there: what other tasks have left open waits for this one while it computes.
    with KEEPER.at_work(options.connection, task.key, timeout_ms=options.transaction_timeout_ms):
        KEEPER.start(options.connection)
        rows = _begun(iterator)
        if rows is None:
            return Written(rows=0)
        with pool.borrowed(options.connection) as link:
            reach(link, options)
            if run_now(exactly_once.queries(link).serves_group_commits()):
                return _write_once(rows, options, task, link)
    _fall_back(options, task)
    return _write_at_least_once(rows, options)


def _begun(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """The rows, once the first one is there; None if there are none, so that nobody has to be asked."""
    first = next((rows for rows in iterator if rows.num_rows), None)
    return None if first is None else chain([first], iterator)


def reach(link: Link, options: WriteOptions) -> None:
    """Wait for a broker to answer, as long as a producer may be held up: one that restarts comes back."""
    cluster = link.cluster
    if any(cluster.has_met(address) for address in cluster.addresses()):
        return
    deadline_ms = cluster.ticks.now_ms() + options.producer.block_ms
    while True:
        try:
            run_now(cluster.refresh(()))
            return
        except NoBrokerReachable:
            if cluster.ticks.now_ms() >= deadline_ms:
                raise
        run_now(link.transport.sleep(cluster.settings.retry_backoff_ms))


def _fall_back(options: WriteOptions, task: Task) -> None:
    """The brokers are not Ottla's."""
    if options.guarantee == "exactly-once":
        raise InvalidOption(
            "deliveryGuarantee",
            "exactly-once needs the group commits of Ottla, which these brokers do not have",
            fix="Set it to at-least-once, or write to Ottla",
        )
    if options.connection not in _SAID and task.slot == 0:
        _logger.warning("these brokers do not have Ottla's group commits: rows are delivered at least once")
        _SAID.add(options.connection)


def _write_at_least_once(rows: Iterable[pa.RecordBatch], options: WriteOptions) -> Written:
    producer, is_new = kept_producer(options.connection, options.producer)
    try:
        if is_new:
            with pool.borrowed(options.connection) as link:
                reach(link, options)
        row_count = _send(rows, producer, options)
        producer.flush()
    except BaseException as e:
        discard_producer(options.connection, options.producer)
        _tell(e)
        raise
    return Written(rows=row_count)


def _write_once(rows: Iterable[pa.RecordBatch], options: WriteOptions, task: Task, link: Link) -> Written:
    key = task.key
    slot = Slot(
        link,
        key,
        number=task.slot,
        attempt=task.attempt,
        options=options,
        clock=SystemClock(),
        chance=Random(),
    )
    left_open, was_replay = None, False
    try:
        # In this order: whoever decides about the key from now on finds the slot taken, or has been heard of.
        slot.begin()
        was_replay = exactly_once.is_replay(link, key, in_order=task.in_order)
        if was_replay:
            slot.abandon()
            row_count = sum(each.num_rows for each in rows)
        else:
            row_count = _send(rows, slot.producer, options)
            left_open = slot.detach()
    except BaseException as e:
        slot.abandon()
        _tell(e)
        raise
    return Written(
        rows=row_count,
        query_id=key.query_id,
        batch_id=key.batch_id,
        transaction=left_open,
        was_replay=was_replay,
        has_fenced=slot.has_fenced,
    )


def _send(rows: Iterable[pa.RecordBatch], producer: PackedProducer, options: WriteOptions) -> int:
    """Hand all rows to a producer; returns how many there were."""
    sender = RowSender(
        producer,
        topic=options.topic,
        batch_bytes=options.producer.batch_bytes,
        clock=SystemClock(),
        chance=Random(),
    )
    for each in rows:
        sender.take(each)
    sender.finish()
    return sender.rows_taken


def _tell(error: BaseException) -> None:
    """Raise an error that the user of the sink can act on, where there is one that says more."""
    if isinstance(error, RecordTooLarge):
        raise WriteFailed(
            f"{error}. A single row is larger than its topic takes: raise max.message.bytes of the topic, or leave "
            "such rows out"
        ) from error
    if isinstance(error, ProducerFenced):
        raise WriteFailed(
            f"{error}. Another attempt of this task has taken over, or another run of the query. spark.speculation "
            "must be off with this sink, and a checkpoint is for one query at a time"
        ) from error


# --- the driver's side ---------------------------------------------------------------------------------


def commit(messages: Sequence[Written], options: WriteOptions, *, is_lasting: bool) -> None:
    """Make what the tasks have left open count, all at once. `is_lasting`: the query may have had earlier runs."""
    key = _key(messages)
    transactions = [message.transaction for message in messages if message.transaction is not None]
    with pool.borrowed(options.connection) as link:
        reach(link, options)
        exactly_once.commit(link, key, transactions, insist_ms=options.producer.delivery_timeout_ms)
        if is_lasting:
            exactly_once.sweep(link, key)
    replays = sum(message.was_replay for message in messages)
    fenced = sum(message.has_fenced for message in messages)
    _logger.info(
        "%s is committed: %d transactions, %d rows, %d tasks skipped as replays, %d slots fenced",
        key,
        len(transactions),
        sum(message.rows for message in messages),
        replays,
        fenced,
    )


def abort(key: BatchKey, options: WriteOptions, *, tasks: int, is_final: bool) -> None:
    """Drop what the tasks have left open, unless it is committed. `is_final`: nobody will write this batch again."""
    with pool.borrowed(options.connection) as link:
        reach(link, options)
        if run_now(exactly_once.queries(link).serves_group_commits()):
            exactly_once.abort(link, key, tasks=tasks, is_final=is_final)


def _key(messages: Iterable[Written]) -> BatchKey:
    keys = set(filter(None, (message.key for message in messages)))
    assert len(keys) == 1, "the tasks of one batch have one key"
    return BatchKey(*keys.pop())
