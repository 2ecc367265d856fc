"""What offsets bring to the stage: plain commits, those of transactions, and questions for both.

    store a t:0=5 t:1=6 group=g note= id= generation=
                              a plain commit (OffsetCommit)
    pend 7 epoch=0 t:0=5 group=g note= id= generation= instance=
                              a commit of the transaction of producer 7 (TxnOffsetCommit)
    end 7 commit epoch=0      the producer's transaction ends so (`commit` or `abort`), with this epoch in its markers
    ask t:0 t:1 group=g stable=1
                              OffsetFetch; without partitions for all, with `stable=1` for stable offsets only
    forget t:0 group=g        OffsetDelete
    erase g                   DeleteGroups
    groups                    ListGroups
    sweep                     topics have been deleted: see to their offsets
    expire                    see to what has outlived its time

`note=10*x` is a note of ten letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from ottla.coordinators.groups.listing import Listing
from ottla.coordinators.groups.offsets import Offsets
from ottla.coordinators.groups.offsets_commit import OffsetCommits
from ottla.coordinators.groups.offsets_expiry import EXPIRE, SWEEP, OffsetExpiry
from ottla.coordinators.groups.offsets_fetch import OffsetFetches
from ottla.coordinators.groups.offsets_pending import PendingOffsets
from ottla.coordinators.groups.offsets_transaction import TransactionalCommits
from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue, PendingOffsetKey, PendingOffsetValue
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.schema import Message
from ottla.records.control import MarkerType
from tests.coordinators.groups.consumer_stage import ConsumerPlay
from tests.coordinators.groups.stage import Command, Line, Stage, shown

VERSION = 9
"""Of OffsetCommit and OffsetFetch: the last one with names of topics."""
SOMEBODY = "somebody"


class OffsetsPlay:
    """Offsets on the stage. Nothing expires by itself here: that would be in every story."""

    timer_prefix = "offsets"
    record_keys: tuple[type[Message], ...] = (OffsetCommitKey, PendingOffsetKey)

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.commands: Mapping[str, Command] = {
            "store": self._store,
            "pend": self._pend,
            "end": self._end,
            "ask": self._ask,
            "forget": self._forget,
            "erase": self._erase,
            "groups": self._tell_groups,
            "sweep": self._sweep,
            "expire": self._expire,
        }

    def begin(self) -> None:
        stage = self._stage
        (consumer,) = [play for play in stage.plays if isinstance(play, ConsumerPlay)]
        groups, settings = stage.groups, stage.settings
        self.offsets, self.pending = Offsets(), PendingOffsets()
        self._commits = OffsetCommits(self.offsets, self.pending, groups, settings, lambda: consumer.topics)
        self._transactional = TransactionalCommits(
            self.pending, self.offsets, groups, settings, lambda: consumer.topics
        )
        self._fetches = OffsetFetches(self.offsets, self.pending, groups, lambda: consumer.topics)
        self._expiry = OffsetExpiry(self.offsets, self.pending, groups, settings, lambda: consumer.topics)
        self._listing = Listing(groups, self.offsets, self.pending)

    def replay(self, key: Message, value: Message | None) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)
            if value is not None:
                self.pending.replay_committed(key, value)
        else:
            assert isinstance(key, PendingOffsetKey)
            assert value is None or isinstance(value, PendingOffsetValue)
            self.pending.replay(key, value)

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None:
        self._expiry.on_timer(key, outcome, now_ms)

    def loaded(self, outcome: Outcome, now_ms: int) -> None:
        """Nothing: what expires is told by the commands."""

    def hear(self, who: str, response: Message) -> None:
        """Nobody here remembers anything."""

    # --- commands ----------------------------------------------------------------------------------------------

    def _store(self, line: Line) -> None:
        request = OffsetCommitRequest(
            group_id=_group_id(line),
            member_id=line.options.get("id", ""),
            generation_id_or_member_epoch=line.number("generation", -1),
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=_note(line)
                        )
                        for partition, offset in partitions
                    ],
                )
                for topic, partitions in _offsets(line)
            ],
        )
        now_ms = self._stage.now_ms()
        self._stage.ask(line.words[0], lambda ticket, out: self._commits.commit(request, VERSION, ticket, out, now_ms))

    def _pend(self, line: Line) -> None:
        request = TxnOffsetCommitRequest(
            group_id=_group_id(line),
            producer_id=int(line.words[0]),
            producer_epoch=line.number("epoch", 0),
            member_id=line.options.get("id", ""),
            generation_id=line.number("generation", -1),
            group_instance_id=line.options.get("instance"),
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=_note(line)
                        )
                        for partition, offset in partitions
                    ],
                )
                for topic, partitions in _offsets(line)
            ],
        )
        now_ms = self._stage.now_ms()
        self._stage.ask(line.words[0], lambda ticket, out: self._transactional.commit(request, ticket, out, now_ms))

    def _end(self, line: Line) -> None:
        def decide(ticket: Ticket, outcome: Outcome) -> None:
            self._transactional.end(
                EndTxnResponse(),
                ticket,
                outcome,
                producer_id=int(line.words[0]),
                producer_epoch=line.number("epoch", 0),
                marker_type=MarkerType[line.words[1].upper()],
            )

        self._stage.ask(line.words[0], decide)

    def _ask(self, line: Line) -> None:
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[int(part.split(":")[1]) for part in parts])
            for topic, parts in groupby(line.words, lambda part: part.split(":")[0])
        ]
        request = OffsetFetchRequestGroup(group_id=_group_id(line), topics=topics or None)
        is_stable = line.number("stable", 0) == 1
        self._stage.ask(
            SOMEBODY,
            lambda ticket, out: self._fetches.fetch(request, VERSION, ticket, out, require_stable=is_stable),
        )

    def _forget(self, line: Line) -> None:
        request = OffsetDeleteRequest(
            group_id=_group_id(line),
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=int(part.split(":")[1])) for part in parts
                    ],
                )
                for topic, parts in groupby(line.words, lambda part: part.split(":")[0])
            ],
        )
        now_ms = self._stage.now_ms()
        self._stage.ask(SOMEBODY, lambda ticket, out: self._commits.delete(request, ticket, out, now_ms))

    def _erase(self, line: Line) -> None:
        def decide(ticket: Ticket, outcome: Outcome) -> None:
            self._listing.delete(line.words[0], outcome)
            outcome.reply(ticket, DeletableGroupResult(group_id=line.words[0]))

        self._stage.ask(SOMEBODY, decide)

    def _tell_groups(self, line: Line) -> None:
        for listed in self._listing.listed(ListGroupsRequest()):
            self._stage.say(shown(listed))

    def _sweep(self, line: Line) -> None:
        outcome = self._stage.outcome()
        self._expiry.topics_deleted(outcome, self._stage.now_ms())
        self._look(SWEEP, outcome)

    def _expire(self, line: Line) -> None:
        self._look(EXPIRE, self._stage.outcome())

    def _look(self, key: TimerKey, outcome: Outcome) -> None:
        """One look at everything, piece by piece."""
        now_ms = self._stage.now_ms()
        while True:
            self._expiry.on_timer(key, outcome, now_ms)
            next_ms = outcome.timers.pop(key, None)
            if next_ms is None or next_ms > now_ms + 1:
                break
            outcome.timers.pop(SWEEP, None)
        outcome.timers.clear()
        self._stage.carry_out(outcome)


def _group_id(line: Line) -> str:
    return line.options.get("group", "g")


def _offsets(line: Line) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """`t:0=5 t:1=6` taken apart, by topic."""
    named = [(*name.split(":"), offset) for name, offset in line.options.items() if ":" in name]
    for topic, parts in groupby(named, lambda part: part[0]):
        yield topic, [(int(partition), int(offset)) for _, partition, offset in parts]


def _note(line: Line) -> str:
    count, star, letter = line.options.get("note", "").rpartition("*")
    return letter * int(count) if star else letter
