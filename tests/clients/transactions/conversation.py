"""Conversations with a broker about transactions, as text: what is asked, and what is answered.

A line is `command -> answer`. A producer is a letter, `a`; `a'` is another client with the same transactional id, and
`nameless` has an empty one. The topic `t` has two partitions and is new in every conversation, as are the ids and the
group. After the command come what it is about (`t-0`), words that change it, and named numbers (`v=12` the version,
`epoch=3` another epoch than the producer's own). Where Ottla differs from Kafka on purpose the answer goes on with
` | ottla: answer, because reason`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ottla.error_codes import ErrorCode
from tests.clients.server_process import ServerProcess
from tests.clients.transactions import raw_log
from tests.clients.transactions.raw_producer import (
    GROUP,
    NO_EPOCH,
    NO_PRODUCER,
    TRANSACTION,
    Place,
    RawProducer,
    find_coordinator,
    produce,
    until,
)
from tests.server.wire import ACKS_ALL, Wire

FOLDER = Path(__file__).with_name("conversations")
ARROW, OTHERWISE, BECAUSE = "->", "| ottla:", ", because "
PARTITIONS = 2
NAMELESS = "nameless"
FIRST_WITH_EPOCH = 5
"""From this version on EndTxn tells the producer how to go on."""
UNKNOWN_PRODUCER_ID = 1 << 40

_numbers = count()


@dataclass(frozen=True, slots=True)
class Line:
    """Something that is asked, and what each broker answers."""

    command: str
    kafka: str
    ottla: str
    reason: str
    """Why they differ, if they do."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Lines under a title."""

    title: str
    lines: tuple[Line, ...]


def all_conversations() -> list[tuple[str, Conversation]]:
    """The name of its file and each conversation, which begins with `== title`."""
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        for part in path.read_text(encoding="utf-8").split("\n== ")[1:]:
            title, *lines = part.strip().splitlines()
            found.append((path.stem, Conversation(title, tuple(_line(text) for text in lines if text))))
    return found


def answers(server: ServerProcess, conversation: Conversation) -> list[tuple[Line, str]]:
    """What a broker answers to each line."""
    speaker = Speaker(server, f"conversation-{next(_numbers)}")
    try:
        return [(line, speaker.say(line.command)) for line in conversation.lines]
    finally:
        speaker.close()


def _line(text: str) -> Line:
    command, _, answers = text.partition(ARROW)
    kafka, _, otherwise = answers.partition(OTHERWISE)
    ottla, _, reason = otherwise.partition(BECAUSE)
    return Line(command.strip(), kafka.strip(), ottla.strip() or kafka.strip(), reason.strip())


class Speaker:
    """Says the lines of one conversation to a broker."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self._server = server
        self._name = name
        self._wires = [Wire(server)]
        self.topic = f"{name}-t"
        self.group = f"{name}-g"
        self._producers: dict[str, RawProducer] = {}
        raw_log.create_topic(self._wires[0], self.topic, partitions=PARTITIONS)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def say(self, command: str) -> str:
        """The answer to one line."""
        who, _, rest = command.rpartition(": ")
        verb, *words = rest.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        subjects = [word for word in words if "=" not in word]
        if who:
            return _SPOKEN[verb](self, self.producer(who), subjects, options)
        return _ASKED[verb](self, subjects, options)

    def warm_up(self) -> None:
        """Wait until transactions and groups are looked after; Kafka needs a moment when it has just started."""
        producer = self.producer("warm")
        producer.init_patiently()
        find_coordinator(producer.wire, self.group, GROUP)
        until(lambda: self.say("stored t-0") == "-1")

    def producer(self, name: str) -> RawProducer:
        if name not in self._producers:
            # Each has a connection of its own, as each is a client of its own.
            self._wires.append(Wire(self._server))
            transactional_id = "" if name == NAMELESS else f"{self._name}-{name.rstrip(chr(39))}"
            if transactional_id:
                find_coordinator(self._wires[-1], transactional_id, TRANSACTION)
            self._producers[name] = RawProducer(self._wires[-1], transactional_id)
        return self._producers[name]

    def place(self, word: str) -> Place:
        """`t-0` is a partition of the conversation's topic; any other name is taken as it stands."""
        topic, _, partition = word.rpartition("-")
        return Place(self.topic if topic == "t" else topic, int(partition))

    # --- what a producer says ------------------------------------------------------------------------------

    def _init(self, by: RawProducer, words: list[str], options: Mapping[str, str]) -> str:
        before = by.producer_id
        codes: list[ErrorCode] = []

        def is_answered() -> bool:
            codes.append(
                by.init(
                    version=int(options.get("v", "5")),
                    timeout_ms=int(options.get("timeout", "60000")),
                    producer_id=self._producer_id(options.get("pid"), NO_PRODUCER, by),
                    epoch=int(options.get("epoch", NO_EPOCH)),
                )
            )
            # A client tries again when it is told that another transaction is being ended.
            return codes[-1] is not ErrorCode.CONCURRENT_TRANSACTIONS or "once" in words

        until(is_answered)
        if codes[-1] is not ErrorCode.NONE:
            return codes[-1].name
        is_new = all(by.producer_id != each for each in (before, *self._ids(by)))
        return f"NONE epoch={by.epoch}" + (" new" if is_new else "")

    def _ids(self, by: RawProducer) -> list[int]:
        return [each.producer_id for each in self._producers.values() if each is not by]

    def _add(self, by: RawProducer, subjects: list[str], options: Mapping[str, str]) -> str:
        codes = by.add(
            [self.place(word) for word in subjects if word != "verify"],
            version=int(options.get("v", "3")),
            producer_id=self._producer_id(options.get("pid"), by.producer_id, by),
            epoch=int(options.get("epoch", by.epoch)),
            verify_only="verify" in subjects,
        )
        return _each(codes)

    def _produce(self, by: RawProducer, subjects: list[str], options: Mapping[str, str]) -> str:
        batch = by.batch(
            self.place(subjects[-1]),
            [b"x"],
            producer_id=self._producer_id(options.get("pid"), by.producer_id, by),
            epoch=int(options.get("epoch", by.epoch)),
            sequence=int(options["seq"]) if "seq" in options else None,
            transactional="plain" not in subjects,
        )
        version, acks = int(options.get("v", "12")), int(options.get("acks", ACKS_ALL))
        if "anonymous" in subjects:
            code, offset = produce(by.wire, batch, None, version=version, acks=acks)
        else:
            code, offset = by.produce(batch, version=version, acks=acks)
        return f"NONE @{offset}" if code is ErrorCode.NONE else code.name

    def _end(self, by: RawProducer, subjects: list[str], options: Mapping[str, str]) -> str:
        version = int(options.get("v", "5"))
        code = by.end(
            commit=subjects == ["commit"],
            version=version,
            producer_id=self._producer_id(options.get("pid"), by.producer_id, by),
            epoch=int(options.get("epoch", by.epoch)),
        )
        return f"NONE epoch={by.epoch}" if code is ErrorCode.NONE and version >= FIRST_WITH_EPOCH else code.name

    def _offsets(self, by: RawProducer, _: list[str], options: Mapping[str, str]) -> str:
        return by.add_offsets(
            options.get("group", self.group),
            version=int(options.get("v", "4")),
            producer_id=self._producer_id(options.get("pid"), by.producer_id, by),
            epoch=int(options.get("epoch", by.epoch)),
        ).name

    def _store(self, by: RawProducer, subjects: list[str], options: Mapping[str, str]) -> str:
        find_coordinator(by.wire, self.group, GROUP)
        codes = by.commit_offsets(
            options.get("group", self.group),
            {self.place(word): int(options.get("at", "5")) for word in subjects},
            version=int(options.get("v", "3")),
            producer_id=self._producer_id(options.get("pid"), by.producer_id, by),
            epoch=int(options.get("epoch", by.epoch)),
            generation=int(options.get("generation", "-1")),
            member=options.get("member", ""),
        )
        return _each(codes)

    def _settle(self, by: RawProducer, subjects: list[str], _: Mapping[str, str]) -> str:
        return by.settle(subjects[0] if subjects else None)

    def _state(self, by: RawProducer, _: list[str], __: Mapping[str, str]) -> str:
        return by.state()

    def _producer_id(self, word: str | None, default: int, by: RawProducer) -> int:
        """A number, or the letter of the producer whose id is meant."""
        if word is None:
            return default
        if word == "own":
            return by.producer_id
        if word == "unknown":
            return UNKNOWN_PRODUCER_ID
        return int(word) if word.lstrip("-").isdigit() else self.producer(word).producer_id

    # --- what anybody may ask --------------------------------------------------------------------------------

    def _log(self, subjects: list[str], _: Mapping[str, str]) -> str:
        """Every batch: who wrote it in which epoch, or how whose transaction ended."""
        ids = {producer.producer_id: name for name, producer in reversed(self._producers.items())}
        shown = []
        for entry in raw_log.fetch_all(self._wires[0], self.place(subjects[-1])):
            name = ids.get(entry.producer_id, "?")
            shown.append(f"{name}{entry.epoch}" if entry.values else f"{entry.kind}({name}{entry.epoch})")
        return " ".join(shown) or "empty"

    def _stored(self, subjects: list[str], options: Mapping[str, str]) -> str:
        """What the group has committed."""
        code, offset = raw_log.fetch_offset(
            self._wires[0],
            self.group,
            self.place(subjects[-1]),
            version=int(options.get("v", "7")),
            stable="stable" in subjects,
        )
        return str(offset) if code is ErrorCode.NONE else code.name

    def _store_plainly(self, subjects: list[str], options: Mapping[str, str]) -> str:
        """A commit of the group outside of every transaction."""
        place, offset = self.place(subjects[-1]), int(options.get("at", "5"))
        return raw_log.commit_offset(self._wires[0], self.group, place, offset).name

    def _stable(self, subjects: list[str], _: Mapping[str, str]) -> str:
        """The last stable offset and the high watermark."""
        view = raw_log.fetch(self._wires[0], self.place(subjects[-1]), 0, isolation=raw_log.COMMITTED)
        return f"{view.last_stable_offset} of {view.high_watermark}"

    def _delete(self, _: list[str], __: Mapping[str, str]) -> str:
        raw_log.delete_topic(self._wires[0], self.topic)
        return "gone"

    def _create(self, _: list[str], __: Mapping[str, str]) -> str:
        raw_log.create_topic(self._wires[0], self.topic, partitions=PARTITIONS)
        return "there"


def _each(codes: Mapping[Place, ErrorCode]) -> str:
    """One code where all are alike, else each with its partition."""
    if len(set(codes.values())) == 1:
        return next(iter(codes.values())).name
    # The conversation's topic has a longer name than it is called by.
    names = {place: f"{place.topic.rpartition('-')[2]}-{place.partition}" for place in codes}
    shown = (f"{names[place]} {code.name}" for place, code in sorted(codes.items()))
    return ", ".join(shown) or "nothing"


_SPOKEN: Mapping[str, Callable[[Speaker, RawProducer, list[str], Mapping[str, str]], str]] = {
    "init": Speaker._init,
    "add": Speaker._add,
    "produce": Speaker._produce,
    "end": Speaker._end,
    "offsets": Speaker._offsets,
    "store": Speaker._store,
    "settle": Speaker._settle,
    "state": Speaker._state,
}
_ASKED: Mapping[str, Callable[[Speaker, list[str], Mapping[str, str]], str]] = {
    "log": Speaker._log,
    "stored": Speaker._stored,
    "commit": Speaker._store_plainly,
    "stable": Speaker._stable,
    "delete": Speaker._delete,
    "create": Speaker._create,
}
