"""A coordinator as handlers see it: its internal topic, its runtime, and the way of a request through both.

A request waits until the internal topic is there, goes to the shard of its key, and is answered when the shard says
so. What is coordinated is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic

from ottla.broker.internal_topic import InternalTopic
from ottla.broker.pending import Pending
from ottla.clock import Clock
from ottla.coordinators.outcome import Ticket
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.runtime_shard import Decision, Done, M, Recipe
from ottla.errors import CoordinatorNotAvailable, Refusal
from ottla.metadata.catalog import Catalog
from ottla.metadata.changes import Change, RemoveTopic, Topic
from ottla.metadata.image import Image
from ottla.metadata.topics import NewTopic
from ottla.partitions.hosted import HostedPartitions
from ottla.protocol.schema import Message
from ottla.scheduler import Scheduler

TOLD_CHARACTERS_MAX = 1_000
Refuse = Callable[[Refusal], Message]
"""Makes the response that says so: each API has its own place for an error."""


class Coordinator(Generic[M]):
    """All that one kind of coordinator looks after on this broker."""

    def __init__(
        self,
        wanted: Callable[[], NewTopic],
        recipe: Recipe[M],
        *,
        catalog: Catalog,
        partitions: HostedPartitions,
        scheduler: Scheduler,
        clock: Clock,
        key: Callable[[str], str] = str,
    ) -> None:
        """`wanted` is the internal topic, as it is made; `key` is what of an id decides about its shard."""
        self._topic_name = wanted().name
        self._catalog = catalog
        self._key = key
        self._topic = InternalTopic(wanted, catalog=catalog, partitions=partitions, scheduler=scheduler)
        self._runtime: Runtime[M] = Runtime(recipe, scheduler=scheduler, clock=clock)
        catalog.listen(self._follow_topic)

    # --- its life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the state back, if there ever was any."""
        topic = self._catalog.image.topics.get(self._topic_name)
        if topic is not None:
            self._runtime.start(len(topic.partitions))

    def stop(self) -> None:
        """Nothing more of its own accord; requests are still served."""
        self._runtime.stop()

    def when_ready(self, told: Callable[[CoordinatorNotAvailable | None], None]) -> None:
        """Call back once there is something to coordinate with, or cannot be."""
        if self._runtime.is_started:
            told(None)
            return

        def found(outcome: Topic | CoordinatorNotAvailable) -> None:
            if isinstance(outcome, CoordinatorNotAvailable):
                told(outcome)
                return
            if not self._runtime.is_started:
                self._runtime.start(len(outcome.partitions))
            told(None)

        self._topic.when_there(found)

    @property
    def is_started(self) -> bool:
        """Whether there is, or ever was, anything to coordinate."""
        return self._runtime.is_started

    def _follow_topic(self, image: Image, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, RemoveTopic) and change.name == self._topic_name:
                self._runtime.drop(f"topic {self._topic_name} was deleted")

    # --- requests ----------------------------------------------------------------------------------------

    def submit(self, key: str, decide: Decision[M], refused: Refuse) -> Message | Pending:
        """The response to a request about one id, or the promise of one."""
        return _Request(self._runtime, self._key(key), decide, refused).begin(self)

    def ask(self, key: str, decide: Decision[M], done: Done) -> None:
        """The same for the broker itself: `done` is told, and nothing is made that is not there."""
        self._runtime.submit(self._key(key), decide, done)

    def submit_each(
        self,
        decisions: Sequence[tuple[str, Decision[M]]],
        refused: Callable[[int, Refusal], Message],
        respond: Callable[[list[Message]], Message],
    ) -> Message | Pending:
        """The response to a request about several ids: each is decided for itself, by its own shard."""
        gathering = Gathering(len(decisions), respond)
        for place, (key, decide) in enumerate(decisions):
            gathering.take(place, self.submit(key, decide, partial(refused, place)))
        return gathering.response()

    def submit_to_all(
        self, decide: Decision[M], refused: Refuse, respond: Callable[[list[Message]], Message]
    ) -> Message | Pending:
        """The response to a request about all ids there are; refused as a whole if one shard cannot answer."""
        parts: list[Message | Refusal] = []
        pending = Pending()

        def done(part: Message | Refusal) -> None:
            parts.append(part)
            if len(parts) == count:
                pending.complete(response())

        def response() -> Message:
            for part in parts:
                if isinstance(part, Refusal):
                    return refused(part)
            return respond([part for part in parts if not isinstance(part, Refusal)])

        count = -1
        count = self._runtime.submit_to_all(decide, done)
        return response() if len(parts) == count else pending


class _Request(Generic[M]):
    """One request about one id, from its coming to its answer."""

    __slots__ = ("_decide", "_is_over", "_key", "_pending", "_refused", "_response", "_runtime", "_ticket")

    def __init__(self, runtime: Runtime[M], key: str, decide: Decision[M], refused: Refuse) -> None:
        self._runtime = runtime
        self._key = key
        self._decide = decide
        self._refused = refused
        self._ticket: Ticket | None = None
        self._response: Message | None = None
        self._pending: Pending | None = None
        self._is_over = False

    def begin(self, coordinator: Coordinator[M]) -> Message | Pending:
        coordinator.when_ready(self._submit)
        if self._response is not None:
            return self._response
        self._pending = Pending(self._cancel, on_hurry=self._hurry)
        return self._pending

    def _submit(self, error: CoordinatorNotAvailable | None) -> None:
        if self._is_over:
            return
        if error is not None:
            self._settle(error)
        else:
            self._ticket = self._runtime.submit(self._key, self._decide, self._settle)

    def _settle(self, reply: Message | Refusal) -> None:
        if self._is_over:
            return
        self._is_over = True
        response = self._refused(reply) if isinstance(reply, Refusal) else reply
        if self._pending is None:
            self._response = response
        else:
            self._pending.complete(response)

    def _cancel(self) -> None:
        self._is_over = True
        if self._ticket is not None:
            self._runtime.abandon(self._key, self._ticket)

    def _hurry(self) -> None:
        if self._ticket is not None:
            self._runtime.hurry(self._key, self._ticket)
        else:
            self._settle(CoordinatorNotAvailable("the broker stops"))


class Gathering:
    """A response that is made of several, in the order of the request."""

    __slots__ = ("_open", "_parts", "_pending", "_respond", "_waiting")

    def __init__(self, count: int, respond: Callable[[list[Message]], Message]) -> None:
        self._parts: list[Message | None] = [None] * count
        self._open = count
        self._respond = respond
        self._waiting: list[Pending] = []
        self._pending: Pending | None = None

    def take(self, place: int, part: Message | Pending) -> None:
        """One of the parts, or the promise of one."""
        if isinstance(part, Pending):
            self._waiting.append(part)
            part.then(partial(self._settle, place))
        else:
            self._settle(place, part)

    def response(self) -> Message | Pending:
        """The response, or the promise of one. Call it when all parts have been taken."""
        if not self._open:
            return self._respond(self._complete())
        self._pending = Pending(
            lambda: self._each(Pending.cancel),
            on_hurry=lambda: self._each(Pending.hurry),
        )
        return self._pending

    def _settle(self, place: int, part: Message) -> None:
        self._parts[place] = part
        self._open -= 1
        if not self._open and self._pending is not None:
            self._pending.complete(self._respond(self._complete()))

    def _complete(self) -> list[Message]:
        return [part for part in self._parts if part is not None]

    def _each(self, do: Callable[[Pending], None]) -> None:
        for pending in tuple(self._waiting):
            do(pending)


def told(error: Refusal) -> str:
    """What a response says of a refusal. It may quote what the client sent, which fills a string by itself."""
    return str(error)[:TOLD_CHARACTERS_MAX]
