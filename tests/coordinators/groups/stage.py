"""A stage for groups: commands in, what came of them out, all of it text. Time stands still between commands.

    join a                    a command: its name, then words and options
    tick 3000
    ----
    timer join g              what came out, up to the next empty line
    record GroupMetadata ...
    reply a: JoinGroup ...

Records come before replies, as they do in a broker, where a reply waits for them to be durable. Who is neither answered
nor refused is `parked`. The stage knows no protocol: each comes as a `Play`, which brings its commands, its part of the
state and its clients (see `plays`). Commands of the stage itself:

    settings name=value ...   begin with these settings
    tick MS                   let time pass; timers run when they are due
    restart name=value ...    forget all but the records, and load them again, perhaps with other settings; who is
                              parked is `lost`
    records                   every record so far, as a restart would read it
    timers                    what is due when
    delete GROUP              tombstones, as DeleteGroups writes them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import msgspec

from ottla.clock import ManualClock
from ottla.coordinators.groups.classic_subscription import EMPTY_ASSIGNMENT, subscribed_topics
from ottla.coordinators.groups.groups import Groups
from ottla.coordinators.groups.records import decode, encode_key, encode_value
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.outcome import Outcome, Ticket, TimerKey
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal
from ottla.protocol.schema import Message

HIDDEN = frozenset({"client_host", "client_id", "session_timeout", "throttle_time_ms", "unknown_tags"})
"""Fields that every record or reply has, and that no story is about."""


class Line(NamedTuple):
    """A command, taken apart: `join a version=9` has the word "a" and the option "version"."""

    name: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Line:
        name, *rest = text.split()
        words = [part for part in rest if "=" not in part]
        options = dict(part.split("=", 1) for part in rest if "=" in part)
        return cls(name, words, options)

    def number(self, option: str, default: int) -> int:
        return int(self.options.get(option, default))


Command = Callable[[Line], None]


class Play(Protocol):
    """The part that one protocol has on the stage."""

    timer_prefix: str
    """The first element of its timers' keys."""
    record_keys: tuple[type[Message], ...]
    commands: Mapping[str, Command]
    """May go before those of plays that are named earlier, to hand some requests to another machine."""

    def begin(self) -> None:
        """A new state machine, with the groups and the settings that the stage has now. The clients stay."""
        ...

    def replay(self, key: Message, value: Message | None) -> None: ...

    def on_timer(self, key: TimerKey, outcome: Outcome, now_ms: int) -> None: ...

    def loaded(self, outcome: Outcome, now_ms: int) -> None: ...

    def hear(self, who: str, response: Message) -> None:
        """One of the clients got an answer."""
        ...


class Stage:
    """State machines of all protocols with one set of groups, one clock and one log."""

    def __init__(self, plays: Sequence[Callable[[Stage], Play]]) -> None:
        self.settings = GroupSettings()
        self.clock = ManualClock(0)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.waiting: dict[Ticket, str] = {}
        self._tickets = 0
        self._ids: dict[str, int] = {}
        self._out: list[str] = []
        self.groups = Groups()
        self.plays = [make(self) for make in plays]
        self._begin()

    def _begin(self) -> None:
        self.groups = Groups()
        for play in self.plays:
            play.begin()

    # --- for plays ------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def new_member_id(self, client_id: str) -> str:
        """The first one for a client "a" is "a-1"."""
        self._ids[client_id] = self._ids.get(client_id, 0) + 1
        return f"{client_id}-{self._ids[client_id]}"

    def say(self, line: str) -> None:
        """Put a line into what comes out."""
        self._out.append(line)

    def outcome(self) -> Outcome:
        """An empty one, to hand to a decision and then to `carry_out`."""
        return Outcome(self._replay)

    def ask(self, who: str, decide: Callable[[Ticket, Outcome], None]) -> None:
        """Have a request decided that this client sent."""
        self._tickets += 1
        ticket, outcome = self._tickets, self.outcome()
        self.waiting[ticket] = who
        try:
            decide(ticket, outcome)
        except Refusal as refusal:
            done = [*outcome.records, *outcome.replies, *outcome.timers]
            assert done == [], "refused after it was decided"
            del self.waiting[ticket]
            self.say(f"refused {who}: {refusal.code.name}")
        self.carry_out(outcome)
        if ticket in self.waiting:
            self.say(f"parked {who}")

    def carry_out(self, outcome: Outcome) -> None:
        """What the runtime would do with it."""
        for key, value in outcome.records:
            self.log.append((encode_key(key), None if value is None else encode_value(value)))
            self.say(_shown_record(key, value))
        for timer, at_ms in outcome.timers.items():
            if at_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = at_ms
        for ticket, response in outcome.replies:
            who = self.waiting.pop(ticket)
            if isinstance(response, Refusal):
                self.say(f"refused {who}: {response.code.name}")
                continue
            self.say(f"reply {who}: {_name(response, 'Response')} {shown(response)}".rstrip())
            for play in self.plays:
                play.hear(who, response)

    # --- the commands of the stage --------------------------------------------------------------------------

    def run(self, commands: Sequence[str]) -> list[str]:
        """Play these commands; returns what came out."""
        self._out = []
        for text in commands:
            line = Line.parse(text)
            self._command(line.name)(line)
        return self._out

    def _command(self, name: str) -> Command:
        own: dict[str, Command] = {
            "settings": self._change_settings,
            "tick": lambda line: self.tick(int(line.words[0])),
            "restart": self._restart,
            "records": self._tell_records,
            "timers": self._tell_timers,
            "delete": self._delete,
        }
        for play in reversed(self.plays):
            if name in play.commands:
                return play.commands[name]
        return own[name]

    def tick(self, ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms() + ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due)
            self.clock.advance(max(at_ms - self.now_ms(), 0))
            self.fire(key)
        self.clock.advance(end_ms - self.now_ms())

    def fire(self, key: TimerKey) -> None:
        """Let a timer run, be it due or not."""
        self.timers.pop(key, None)
        self.say(f"timer {' '.join(key[1:])}")
        outcome = self.outcome()
        for play in self.plays:
            if play.timer_prefix == key[0]:
                play.on_timer(key, outcome, self.now_ms())
        self.carry_out(outcome)

    def restart(self) -> None:
        """A new coordinator, with what the old one has recorded."""
        for who in self.waiting.values():
            self.say(f"lost {who}")
        self.waiting.clear()
        self.timers.clear()
        self._begin()
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None, "we know every record that we write"
            self._replay(record.key, record.value)
        outcome = self.outcome()
        for play in self.plays:
            play.loaded(outcome, self.now_ms())
        self.carry_out(outcome)

    def _replay(self, key: Message, value: Message | None) -> None:
        (play,) = [play for play in self.plays if isinstance(key, play.record_keys)]
        play.replay(key, value)

    def _change_settings(self, line: Line) -> None:
        assert self._tickets == 0, "settings come first"
        self._set(line.options)
        self._begin()

    def _restart(self, line: Line) -> None:
        self._set(line.options)
        self.restart()

    def _set(self, options: Mapping[str, str]) -> None:
        for name, value in options.items():
            self.settings = replace(self.settings, **{name: _setting(getattr(self.settings, name), value)})

    def _tell_records(self, line: Line) -> None:
        for key, value in self.log:
            record = decode(key, value)
            assert record is not None
            self.say(_shown_record(record.key, record.value))

    def _tell_timers(self, line: Line) -> None:
        for at_ms, key in sorted((at_ms, key) for key, at_ms in self.timers.items()):
            self.say(f"timer {' '.join(key[1:])} in {at_ms - self.now_ms()} ms")

    def _delete(self, line: Line) -> None:
        group = self.groups.get(line.words[0])
        if group is None or not group.is_empty:
            self.say("not empty" if group else "no such group")
            return
        outcome = self.outcome()
        group.delete(outcome)
        self.carry_out(outcome)


def _setting(default: object, text: str) -> Any:
    """A setting of the kind that its default is of; several names have commas between them."""
    if isinstance(default, bool):
        return text == "true"
    return int(text) if isinstance(default, int) else tuple(text.split(","))


def shown(message: Message) -> str:
    """The fields that are not as they are by default, in one line."""
    parts = []
    for field in msgspec.structs.fields(message):
        value = getattr(message, field.name)
        if field.name in HIDDEN or value == field.default:
            continue
        if field.name == "error_code":
            parts.append(f"error={ErrorCode(value).name}")
        else:
            parts.append(f"{field.name}={_shown_value(value)}")
    return " ".join(parts)


def _shown_value(value: object) -> str:
    if isinstance(value, Message):
        return "{" + shown(value) + "}"
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, str):
        return value or "''"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_shown_value(each) for each in value) + "]"
    return "null" if value is None else str(value)


def shown_bytes(value: bytes) -> str:
    """What consumers tell each other, as far as it can be read."""
    if value == EMPTY_ASSIGNMENT:
        return "nothing"
    topics = subscribed_topics(value)
    if topics is not None:
        return f"topics({','.join(sorted(topics))})"
    if not value:
        return "none"
    return value.decode() if value.isascii() else value.hex()


def _shown_record(key: Message, value: Message | None) -> str:
    told = "tombstone" if value is None else shown(value)
    return f"record {_name(key, 'Key')} {shown(key)} {told}"


def _name(message: Message, ending: str) -> str:
    return type(message).__name__.removesuffix(ending)
