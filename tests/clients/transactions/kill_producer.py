"""A transactional producer by hand, version 2, that writes to many partitions with one request.

It tries again what a client would try again, and can ask for the end of a transaction without waiting for the answer,
so that a test may kill the server at that very moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.schema import Message
from ottla.records.builder import build_batch
from tests.clients.server_process import ServerProcess
from tests.server.wire import ACKS_ALL, Wire

FIND_COORDINATOR_VERSION = 4
INIT_VERSION = 5
PRODUCE_VERSION = 12
END_VERSION = 5
OFFSET_VERSION = 5
TRANSACTION = 1
ANSWER_SECONDS_MAX = 60
TRY_AGAIN_SECONDS = 0.02
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What every client waits out."""

M = TypeVar("M", bound=Message)


class KillProducer:
    """One transactional id, over as many connections as the server's lives ask for."""

    def __init__(self, server: ServerProcess, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._server = server
        self._wire: Wire | None = None
        self._sequences: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    @property
    def wire(self) -> Wire:
        """The connection, a new one if there is none."""
        if self._wire is None:
            self._wire = Wire(self._server)
        return self._wire

    def init(self, *, timeout_ms: int = 60_000) -> None:
        """Take the id over from whoever had it; what they have left open is aborted."""
        find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])

        def found() -> ErrorCode:
            answer = self._ask(ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, find, FindCoordinatorResponse)
            return ErrorCode(answer.coordinators[0].error_code)

        until_it_works(found)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )

        def initiated() -> ErrorCode:
            answer = self._ask(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, request, InitProducerIdResponse)
            if answer.error_code == ErrorCode.NONE:
                self._go_on_as(answer.producer_id, answer.producer_epoch)
            return ErrorCode(answer.error_code)

        until_it_works(initiated)

    def send(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> None:
        """Write to these partitions; all of it is acknowledged when this returns."""
        left = dict(values)

        def sent() -> ErrorCode:
            answers = self._produce(topic, left)
            for number, code in answers.items():
                if code == ErrorCode.NONE:
                    at = topic, number
                    self._sequences[at] = self._sequences.get(at, 0) + len(left.pop(number))
            return next((code for code in answers.values() if code != ErrorCode.NONE), ErrorCode.NONE)

        until_it_works(sent)

    def send_offset(self, group: str, topic: str, *, partition: int, offset: int) -> None:
        """Make an offset of a group, which has no members, part of the transaction."""
        place = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )

        def sent() -> ErrorCode:
            answer = self._ask(ApiKey.TXN_OFFSET_COMMIT, OFFSET_VERSION, request, TxnOffsetCommitResponse)
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        until_it_works(sent)

    def ask_end(self, *, is_commit: bool) -> None:
        """Send the request and go on."""
        self.wire.send(ApiKey.END_TXN, END_VERSION, self._end_request(is_commit=is_commit))

    def hear_end(self) -> ErrorCode:
        """The answer to `ask_end`. Raises ConnectionError if none has come before the end of the connection."""
        answer = self.wire.receive().message
        assert isinstance(answer, EndTxnResponse)
        return self._take(answer)

    def end(self, *, is_commit: bool) -> None:
        """Commit or abort; asked again until it is done."""
        request = self._end_request(is_commit=is_commit)
        until_it_works(lambda: self._take(self._ask(ApiKey.END_TXN, END_VERSION, request, EndTxnResponse)))

    def try_end(self, *, is_commit: bool) -> ErrorCode:
        """Ask once; what the answer is."""
        return self._take(
            self._ask(ApiKey.END_TXN, END_VERSION, self._end_request(is_commit=is_commit), EndTxnResponse)
        )

    def _end_request(self, *, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )

    def _take(self, answer: EndTxnResponse) -> ErrorCode:
        if answer.error_code == ErrorCode.NONE:
            self._go_on_as(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self._sequences.clear()

    def _produce(self, topic: str, values: Mapping[int, Sequence[bytes]]) -> dict[int, ErrorCode]:
        now_ms = time.time_ns() // 1_000_000
        data = []
        for number, records in values.items():
            batch = build_batch(
                [(None, value, now_ms, ()) for value in records],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self._sequences.get((topic, number), 0),
                transactional=True,
            )
            data.append(PartitionProduceData(index=number, records=bytes(batch)))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        (answer,) = self._ask(ApiKey.PRODUCE, PRODUCE_VERSION, request, ProduceResponse).responses
        return {each.index: ErrorCode(each.error_code) for each in answer.partition_responses}

    def _ask(self, key: ApiKey, version: int, request: Message, kind: type[M]) -> M:
        answer = self.wire.call(key, version, request)
        assert isinstance(answer, kind)
        return answer


def until_it_works(ask: Callable[[], ErrorCode]) -> None:
    """Ask again while the answer is one that passes; any other is a failure."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while (code := ask()) != ErrorCode.NONE:
        assert code in PASSING, code.name
        assert time.monotonic() < deadline, f"still {code.name} after {ANSWER_SECONDS_MAX} s"
        pause(TRY_AGAIN_SECONDS)


def pause(seconds: float) -> None:
    """Let that much time pass, as a client does that backs off, or as chance has it before a kill."""
    threading.Event().wait(seconds)
