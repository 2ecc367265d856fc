"""A stage for transactions: commands in, what came of them out, all of it text. Time stands still between commands.

    init a                    a command: its name, then words and options
    add a p-0 p-1
    ----
    record t ...              what came out, up to the next empty line
    reply a: InitProducerId producer=1 epoch=0

Records come first, then replies, then orders, as they do in a broker, where both wait for the records to be durable.
Who is neither answered nor refused is `parked`. A client remembers its transactional id and what it was told; options
send something else for once. `heard=no` lets the answer be lost on its way.

    settings name=value ...               begin with these settings
    init a id=t timeout=60000 held=       InitProducerId; `held=own`, or `held=7:3` for producer 7, epoch 3
    add a p-0 p-1 ...                     partitions join the transaction
    verify a p-0 ...                      do they belong to it?
    ongoing a                             would a batch of it be taken now?
    end a commit version=5                EndTxn; also `abort`
    written t order=                      all markers of the last order for this id stand; or of an earlier one, from 1
    abort t as=admin                      an admin's abort
    describe t / list states= producers= longer= pattern= / producer 7
    together q 5 a b ...                  CommitTogether under the key (q, 5); `a:3` sends epoch 3
    committed q 5                         DescribeCommit
    keep q a b ...                        KeepTransactions
    tick MS                               let time pass; timers run when they are due
    restart                               forget all but the records, and load them again; who is parked is `lost`
    given t producer=7 epoch=32766 ...    a record as if it had been written before: status=, last=, previous=, updated=
    records / timers                      every record so far; what is due when

`add`, `verify`, `ongoing`, `end`, `together` and `keep` take `producer=` and `epoch=`; `id=` is for all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ottla.clock import ManualClock
from ottla.coordinators.outcome import CoordinatorRecord, Outcome, Ticket, TimerKey
from ottla.coordinators.transactions.claims import Claim
from ottla.coordinators.transactions.markers import TopicPartition, WriteMarkers
from ottla.coordinators.transactions.records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    decode,
    encode,
)
from ottla.coordinators.transactions.settings import TransactionSettings
from ottla.coordinators.transactions.shard import TransactionShard
from ottla.coordinators.transactions.transactions import TIMEOUT
from ottla.errors import Refusal
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.commit_together import CommitTogetherRequest, OpenTransaction
from ottla.protocol.messages.describe_commit import DescribeCommitRequest
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.keep_transactions import KeepTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from ottla.protocol.schema import Message
from tests.coordinators.groups.stage import Line
from tests.coordinators.transactions.told import shown_order, shown_record, shown_reply

NOTHING = "nothing"
EXHAUSTED_EPOCH = 32_766
"""From here on whoever sends an EndTxn brings a new producer id along, as the broker does."""


@dataclass
class Client:
    """What a client has been told."""

    transactional_id: str = "t"
    producer_id: int = -1
    epoch: int = -1


@dataclass
class Seen:
    """What has happened on stages, to find out what never has."""

    decisions: set[tuple[str, str]] = field(default_factory=set)
    """The state that an id was in, and what was decided about it."""
    refusals: set[tuple[str, str]] = field(default_factory=set)
    """What was asked, and the error that came, at once or later."""
    moves: set[tuple[str, str]] = field(default_factory=set)
    """From which state to which an id went."""


@dataclass(frozen=True)
class _Waiting:
    who: str
    decision: str
    is_heard: bool


class Stage:
    """One shard, its clock, its log and its clients."""

    def __init__(self, seen: Seen | None = None) -> None:
        self._seen = Seen() if seen is None else seen
        self._settings = TransactionSettings()
        self._clock = ManualClock(0)
        self._log: list[tuple[bytes, bytes | None]] = []
        self._timers: dict[TimerKey, int] = {}
        self._waiting: dict[Ticket, _Waiting] = {}
        self._tickets = 0
        self._producer_ids = 0
        self._clients: dict[str, Client] = {}
        self._orders: dict[str, list[WriteMarkers]] = {}
        self._timed_out: set[str] = set()
        self._out: list[str] = []
        self._shard = TransactionShard(self._settings)
        self._commands: dict[str, Callable[[Line], None]] = {
            "settings": self._set,
            "init": self._init,
            "add": self._add,
            "verify": self._verify,
            "ongoing": self._require_ongoing,
            "end": self._end,
            "written": self._complete,
            "abort": self._abort,
            "describe": self._describe,
            "list": self._list,
            "producer": self._tell_producer,
            "together": self._commit_together,
            "committed": self._describe_commit,
            "keep": self._keep,
            "tick": self._tick,
            "restart": self._restart,
            "given": self._give,
            "records": self._tell_records,
            "timers": self._tell_timers,
        }
        self._load()

    def run(self, commands: Sequence[str]) -> list[str]:
        """Play these commands; returns what came out."""
        self._out = []
        for text in commands:
            line = Line.parse(text)
            self._commands[line.name](line)
        return self._out

    # --- the coordinator around the machine -----------------------------------------------------------------

    def _ask(
        self,
        line: Line,
        who: str,
        decision: str,
        transactional_ids: Sequence[str],
        decide: Callable[[Ticket, Outcome, int], None],
    ) -> None:
        for transactional_id in transactional_ids:
            self._note(decision, transactional_id)
        self._tickets += 1
        ticket, outcome = self._tickets, Outcome(self._replay)
        self._waiting[ticket] = _Waiting(who, decision, line.options.get("heard") != "no")
        try:
            decide(ticket, outcome, self._clock.now_ms())
        except Refusal as refusal:
            done = [*outcome.records, *outcome.replies, *outcome.timers, *outcome.orders]
            assert done == [], "refused after it was decided"
            outcome.reply(ticket, refusal)
        self._carry_out(outcome)
        if ticket in self._waiting:
            self._say(f"parked {who}")

    def _do(self, decide: Callable[[Outcome, int], None]) -> None:
        outcome = Outcome(self._replay)
        decide(outcome, self._clock.now_ms())
        self._carry_out(outcome)

    def _carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self._log.append(encode(record))
            self._say(shown_record(record))
        for timer, at_ms in outcome.timers.items():
            if at_ms is None:
                self._timers.pop(timer, None)
            else:
                self._timers[timer] = at_ms
        for ticket, response in outcome.replies:
            self._answer(self._waiting.pop(ticket), response)
        for order in outcome.orders:
            assert isinstance(order, WriteMarkers)
            self._orders.setdefault(order.transactional_id, []).append(order)
            self._say(shown_order(order))

    def _answer(self, waiting: _Waiting, response: Message | Refusal) -> None:
        if isinstance(response, Refusal):
            self._seen.refusals.add((waiting.decision.split()[0], response.code.name))
            self._say(f"refused {waiting.who}: {response.code.name}")
            return
        self._say(f"reply {waiting.who}: {shown_reply(response)}")
        client = self._clients.get(waiting.who)
        if client is None or not waiting.is_heard:
            return
        if isinstance(response, InitProducerIdResponse | EndTxnResponse) and response.producer_id >= 0:
            client.producer_id, client.epoch = response.producer_id, response.producer_epoch

    def _replay(self, key: Message, value: Message | None) -> None:
        if not isinstance(key, TransactionLogKey):
            self._shard.replay(key, value)
            return
        before = self._state(key.transactional_id)
        self._shard.replay(key, value)
        if before.startswith("CompleteAbort"):
            self._timed_out.discard(key.transactional_id)
        self._seen.moves.add((before, self._state(key.transactional_id)))

    def _state(self, transactional_id: str) -> str:
        found = self._shard.transactions.get(transactional_id)
        if found is None:
            return NOTHING
        told = found.status.told
        if found.value.is_fenced:
            return f"{told} fenced"
        is_timed_out = transactional_id in self._timed_out and told.endswith("Abort")
        return f"{told} timed out" if is_timed_out else told

    def _note(self, decision: str, transactional_id: str) -> None:
        self._seen.decisions.add((self._state(transactional_id), decision))

    def _note_all(self, decision: str) -> None:
        for found in self._shard.transactions:
            self._note(decision, found.transactional_id)

    def _say(self, line: str) -> None:
        self._out.append(line)

    def _tick(self, line: Line) -> None:
        end_ms = self._clock.now_ms() + int(line.words[0])
        while due := [(at_ms, key) for key, at_ms in self._timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due)
            self._clock.advance(max(at_ms - self._clock.now_ms(), 0))
            self._fire(key)
        self._clock.advance(end_ms - self._clock.now_ms())

    def _fire(self, key: TimerKey) -> None:
        del self._timers[key]
        self._say(f"timer {' '.join(key[1:])}")
        if len(key) > 2:
            self._note(key[1], key[2])
            if key[1] == TIMEOUT:
                self._timed_out.add(key[2])
        else:
            self._note_all(key[1])
        self._do(lambda outcome, now_ms: self._shard.on_timer(key, outcome, now_ms))

    def _restart(self, line: Line) -> None:
        for waiting in self._waiting.values():
            self._say(f"lost {waiting.who}")
        self._waiting.clear()
        self._timers.clear()
        self._load()

    def _load(self) -> None:
        self._shard = TransactionShard(self._settings)
        for key, value in self._log:
            record = decode(key, value)
            assert record is not None, "we know every record that we write"
            self._shard.replay(record.key, record.value)
        self._note_all("load")
        self._do(self._shard.loaded)

    def _set(self, line: Line) -> None:
        assert not self._log, "settings come first"
        for name, value in line.options.items():
            self._settings = replace(self._settings, **{name: int(value)})
        self._load()

    # --- producers -------------------------------------------------------------------------------------------

    def _init(self, line: Line) -> None:
        client = self._client(line)
        held = line.options.get("held", "-1:-1")
        if held == "own":
            held = f"{client.producer_id}:{client.epoch}"
        producer_id, epoch = held.split(":")
        request = InitProducerIdRequest(
            transactional_id=client.transactional_id,
            transaction_timeout_ms=line.number("timeout", 60_000),
            producer_id=int(producer_id),
            producer_epoch=int(epoch),
        )
        new_producer_id = self._new_producer_id()
        self._ask(
            line,
            line.words[0],
            "init held" if "held" in line.options else "init",
            [client.transactional_id],
            lambda *decided: self._shard.init_producer(request, new_producer_id, *decided),
        )

    def _add(self, line: Line) -> None:
        claim = self._claim(line)
        response = AddPartitionsToTxnResponse()
        self._ask(
            line,
            line.words[0],
            "add",
            [claim.transactional_id],
            lambda *decided: self._shard.add(claim, response, *decided),
        )

    def _verify(self, line: Line) -> None:
        claim = self._claim(line)
        response = AddPartitionsToTxnResponse()
        self._ask(
            line,
            line.words[0],
            "verify",
            [claim.transactional_id],
            lambda *decided: self._shard.verify(claim, response, *decided),
        )

    def _require_ongoing(self, line: Line) -> None:
        claim = self._claim(line)
        self._note("ongoing", claim.transactional_id)
        try:
            self._shard.require_ongoing(
                claim.transactional_id, producer_id=claim.producer_id, producer_epoch=claim.producer_epoch
            )
        except Refusal as refusal:
            self._seen.refusals.add(("ongoing", refusal.code.name))
            self._say(f"refused {line.words[0]}: {refusal.code.name}")
        else:
            self._say(f"taken {line.words[0]}")

    def _end(self, line: Line) -> None:
        claim, version = self._claim(line), line.number("version", 5)
        request = EndTxnRequest(
            transactional_id=claim.transactional_id,
            producer_id=claim.producer_id,
            producer_epoch=claim.producer_epoch,
            committed={"commit": True, "abort": False}[line.words[1]],
        )
        new_producer_id = self._new_producer_id() if claim.producer_epoch >= EXHAUSTED_EPOCH else -1
        self._ask(
            line,
            line.words[0],
            f"end {line.words[1]} {'2' if version >= 5 else '1'}",
            [claim.transactional_id],
            lambda *decided: self._shard.end(request, version, new_producer_id, *decided),
        )

    def _complete(self, line: Line) -> None:
        (transactional_id,) = line.words
        order = self._orders[transactional_id][line.number("order", 0) - 1]
        self._note("completed", transactional_id)
        self._do(lambda outcome, now_ms: self._shard.completed(order, outcome, now_ms))

    def _abort(self, line: Line) -> None:
        (transactional_id,) = line.words
        response = WriteTxnMarkersResponse()
        self._ask(
            line,
            line.options.get("as", "admin"),
            "abort",
            [transactional_id],
            lambda *decided: self._shard.abort(transactional_id, response, *decided),
        )

    # --- commits of several ------------------------------------------------------------------------------------

    def _commit_together(self, line: Line) -> None:
        query_id, batch_id, *names = line.words
        named = self._named(line, names)
        request = CommitTogetherRequest(query_id=_text(query_id), batch_id=int(batch_id), transactions=named)
        self._ask(
            line,
            line.options.get("as", "driver"),
            "together",
            [each.transactional_id for each in named],
            lambda *decided: self._shard.commit_together(request, *decided),
        )

    def _describe_commit(self, line: Line) -> None:
        request = DescribeCommitRequest(query_id=_text(line.words[0]), batch_id=int(line.words[1]))
        self._ask(line, "driver", "committed", [], lambda *decided: self._shard.describe_commit(request, *decided))

    def _keep(self, line: Line) -> None:
        query_id, *names = line.words
        named = self._named(line, names)
        request = KeepTransactionsRequest(query_id=_text(query_id), transactions=named)
        self._ask(
            line,
            line.options.get("as", "driver"),
            "keep",
            [each.transactional_id for each in named],
            lambda *decided: self._shard.keep(request, *decided),
        )

    # --- tools ---------------------------------------------------------------------------------------------------

    def _describe(self, line: Line) -> None:
        (transactional_id,) = line.words
        self._ask(
            line,
            "admin",
            "describe",
            [transactional_id],
            lambda *decided: self._shard.describe(transactional_id, *decided),
        )

    def _list(self, line: Line) -> None:
        options = line.options
        request = ListTransactionsRequest(
            state_filters=[name for name in options.get("states", "").split(",") if name],
            producer_id_filters=[int(each) for each in options.get("producers", "").split(",") if each],
            duration_filter=line.number("longer", -1),
            transactional_id_pattern=options.get("pattern"),
        )
        self._note_all("list")
        self._ask(line, "admin", "list", [], lambda *decided: self._shard.list_transactions(request, *decided))

    def _tell_producer(self, line: Line) -> None:
        found = self._shard.status_of_producer(int(line.words[0]))
        self._say("no such producer" if found is None else f"{found[0]} {found[1].told}")

    def _give(self, line: Line) -> None:
        (transactional_id,) = line.words
        value = TransactionLogValue(
            producer_id=line.number("producer", 1),
            previous_producer_id=line.number("previous", -1),
            producer_epoch=line.number("epoch", 0),
            transaction_timeout_ms=60_000,
            transaction_status={status.told: status for status in TransactionStatus}[
                line.options.get("status", "Empty")
            ],
            transaction_last_update_timestamp_ms=line.number("updated", self._clock.now_ms()),
            transaction_start_timestamp_ms=-1,
            last_producer_epoch=line.number("last", -1),
        )
        record = CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), value)
        self._log.append(encode(record))
        self._shard.replay(*record)
        self._say(shown_record(record))

    def _tell_records(self, line: Line) -> None:
        for key, value in self._log:
            record = decode(key, value)
            assert record is not None
            self._say(shown_record(record))

    def _tell_timers(self, line: Line) -> None:
        for at_ms, key in sorted((at_ms, key) for key, at_ms in self._timers.items()):
            self._say(f"timer {' '.join(key[1:])} in {at_ms - self._clock.now_ms()} ms")

    # --- clients -------------------------------------------------------------------------------------------------

    def _new_producer_id(self) -> int:
        """One that nobody has had; whether it is used is another matter."""
        self._producer_ids += 1
        return self._producer_ids

    def _client(self, line: Line) -> Client:
        """The client that speaks; it keeps its transactional id."""
        client = self._clients.setdefault(line.words[0], Client())
        if "id" in line.options:
            client.transactional_id = _text(line.options["id"])
        return client

    def _claim(self, line: Line) -> Claim:
        client = self._client(line)
        return Claim(
            client.transactional_id,
            line.number("producer", client.producer_id),
            line.number("epoch", client.epoch),
            tuple(TopicPartition(*_place(word)) for word in line.words[1:] if "-" in word),
        )

    def _named(self, line: Line, names: Sequence[str]) -> list[OpenTransaction]:
        """The transactions of these clients; `a:3` is that of `a` under epoch 3."""
        named = []
        for name in names:
            who, _, epoch = name.partition(":")
            client = self._clients.setdefault(who, Client(transactional_id=who))
            named.append(
                OpenTransaction(
                    transactional_id=client.transactional_id,
                    producer_id=line.number("producer", client.producer_id),
                    producer_epoch=int(epoch) if epoch else client.epoch,
                )
            )
        return named


def _place(word: str) -> tuple[str, int]:
    topic, _, partition = word.rpartition("-")
    return topic, int(partition)


def _text(word: str) -> str:
    """`-` stands for no text at all."""
    return "" if word == "-" else word
