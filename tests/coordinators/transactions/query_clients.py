"""Queries whose tasks write in a transaction each, and whose drivers commit all of them as one under a key.

A driver that dies is replaced; the one that was thought dead may go on, and so may the tasks that it has started. What
outlives a driver is the number of the batch; whether that is committed already is the first thing that a new one asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.protocol.messages.commit_together import CommitTogetherRequest, CommitTogetherResponse, OpenTransaction
from ottla.protocol.messages.describe_commit import DescribeCommitRequest, DescribeCommitResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest
from ottla.protocol.schema import Message
from tests.coordinators.transactions.broker_model import ModelBroker
from tests.coordinators.transactions.ledger import Attempt, Ledger
from tests.coordinators.transactions.producer_clients import (
    ABORTABLE,
    FENCED,
    TRIED_AGAIN,
    Connection,
    Late,
    Phase,
    Writer,
)

SLOTS_MAX = 4


@dataclass
class Checkpoint:
    """What a query keeps of its own."""

    query_id: str
    batch_id: int = 0


class Task(Writer):
    """Writes in the transaction of its slot, and leaves it open."""

    phase = Phase.INIT
    is_failed = False

    @property
    def is_done(self) -> bool:
        return self.phase is Phase.END

    def act(self) -> None:
        if self.connection.is_waiting or self.is_done or self.is_failed:
            return
        if self.phase is Phase.INIT:
            self.init(is_resumed=False, hear=self._hear_init)
        elif self.plan:
            self.write(self._refused)
        else:
            self.phase = Phase.END

    def _hear_init(self, reply: Message | Refusal) -> None:
        if isinstance(reply, InitProducerIdResponse):
            self.take(reply.producer_id, epoch=reply.producer_epoch)
            self.phase = Phase.WRITE
        else:
            assert isinstance(reply, Refusal)
            assert reply.code in TRIED_AGAIN, reply.code

    def _refused(self, code: ErrorCode) -> None:
        assert code in FENCED | ABORTABLE | TRIED_AGAIN, code
        self.is_failed = code not in TRIED_AGAIN


class _Stage(Enum):
    ASK = "ask"
    RUN = "run"
    COMMIT = "commit"
    GONE = "gone"


class Driver:
    """Runs the batches of a query, one after the other."""

    def __init__(
        self, checkpoint: Checkpoint, broker: ModelBroker, ledger: Ledger, late: list[Late], *, random: Random
    ) -> None:
        self._checkpoint = checkpoint
        self._broker = broker
        self._ledger = ledger
        self._late = late
        self._random = random
        self.connection = Connection()
        self.is_zombie = False
        """Another one has been started; this one does not begin anything new."""
        self.tasks: list[Task] = []
        self._stage = _Stage.ASK
        self._batch_id = checkpoint.batch_id
        self._attempt = Attempt("", 0)
        self._idle_turns = 0

    @property
    def query_id(self) -> str:
        return self._checkpoint.query_id

    @property
    def checkpoint(self) -> Checkpoint:
        return self._checkpoint

    @property
    def is_gone(self) -> bool:
        return self._stage is _Stage.GONE

    @property
    def is_committing(self) -> bool:
        return self._stage is _Stage.COMMIT

    @property
    def connections(self) -> list[Connection]:
        return [self.connection, *(task.connection for task in self.tasks)]

    def act(self) -> None:
        if self._stage is _Stage.RUN:
            self._run()
        elif self.connection.is_waiting:
            return
        elif self._stage is _Stage.ASK:
            if self.is_zombie:
                self._stage = _Stage.GONE
            else:
                self._ask()
        elif self._stage is _Stage.COMMIT:
            self._commit()

    def _ask(self) -> None:
        batch_id = self._batch_id
        request = DescribeCommitRequest(query_id=self.query_id, batch_id=batch_id)

        def hear(reply: Message | Refusal) -> None:
            if isinstance(reply, Refusal):
                assert reply.code in TRIED_AGAIN, reply.code
                return
            assert isinstance(reply, DescribeCommitResponse)
            if reply.is_committed:
                self._ledger.committed_keys.add((self.query_id, batch_id))
                self._next_batch()
            else:
                self._begin()

        self._send("DescribeCommit", lambda shard, *rest: shard.describe_commit(request, *rest), hear)

    def _begin(self) -> None:
        """Start the tasks of a new attempt."""
        self._attempt = self._ledger.begin_attempt(self.query_id, self._batch_id)
        self.tasks = []
        for slot in range(self._random.randint(1, SLOTS_MAX)):
            task = Task(
                self._broker,
                self._ledger,
                self._late,
                transactional_id=f"{self.query_id}/{slot}",
                version=self._random.choice((5, 5, 5, 4)),
                random=self._random,
            )
            task.begin(places_max=4)
            if slot and self._random.random() < 0.15:
                task.plan.clear()
            self._attempt.transactions.append(task.written)
            self.tasks.append(task)
        self._stage = _Stage.RUN
        self._idle_turns = self._random.choice((0, 0, 0, 20))

    def _run(self) -> None:
        if self._idle_turns:
            # It has not found machines for its tasks yet; whoever was there before may still be at work.
            self._idle_turns -= 1
            return
        if any(task.is_failed for task in self.tasks):
            self._stage = _Stage.ASK
            return
        unfinished = [task for task in self.tasks if not task.is_done]
        if not unfinished:
            self._stage = _Stage.COMMIT
            return
        if self._random.random() < 0.03 and not self.connection.is_waiting:
            self._keep()
        self._random.choice(unfinished).act()

    def _named(self, tasks: list[Task]) -> list[OpenTransaction]:
        return [
            OpenTransaction(
                transactional_id=task.transactional_id, producer_id=task.producer_id, producer_epoch=task.epoch
            )
            for task in tasks
        ]

    def _keep(self) -> None:
        request = KeepTransactionsRequest(
            query_id=self.query_id, transactions=self._named([task for task in self.tasks if task.is_done])
        )
        self._send("KeepTransactions", lambda shard, *rest: shard.keep(request, *rest), lambda reply: None)

    def _commit(self) -> None:
        attempt, batch_id = self._attempt, self._batch_id
        for written in attempt.transactions:
            written.is_commit_asked = True
        request = CommitTogetherRequest(query_id=self.query_id, batch_id=batch_id, transactions=self._named(self.tasks))

        def hear(reply: Message | Refusal) -> None:
            if isinstance(reply, Refusal):
                if reply.code not in TRIED_AGAIN:
                    assert reply.code in FENCED, reply.code
                    self._stage = _Stage.ASK
                return
            assert isinstance(reply, CommitTogetherResponse)
            self._ledger.committed_keys.add((self.query_id, batch_id))
            attempt.is_told |= not reply.is_repeated
            self._next_batch()

        if self._random.random() < 0.1:
            self._late.append(
                lambda: self._broker.ask(
                    "CommitTogether", lambda shard, *rest: shard.commit_together(request, *rest), lambda reply: None
                )
            )
        self._send("CommitTogether", lambda shard, *rest: shard.commit_together(request, *rest), hear)

    def _next_batch(self) -> None:
        self._batch_id += 1
        self._checkpoint.batch_id = max(self._checkpoint.batch_id, self._batch_id)
        self._stage = _Stage.ASK

    def _send(
        self,
        asked: str,
        decide: Callable[..., None],
        hear: Callable[[Message | Refusal], None],
    ) -> None:
        self._broker.ask(asked, decide, self.connection.heard(hear))
