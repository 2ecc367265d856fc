"""The owner of the image in a broker: takes wishes, decides them, and makes them durable before they are true.

Everything here runs on the owner's thread; the store's thread only hands over through `post`. One commit is
under way at a time, and all that is wished for meanwhile is decided together when it is done, against an image
in which nothing is pending. So of fifty wishes for one name one wins and the others learn that it exists. A
wish fails alone, unless the store fails. No directory is touched here: whoever listens does that, and says
`placed` or `removed`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from ottla.config import Scope, Settings
from ottla.errors import (
    InvalidRequest,
    MetadataBusy,
    MetadataConflict,
    OttlaError,
    TopicDeletionDisabled,
    TopicExists,
)
from ottla.metadata import topics as rules
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.changes import (
    EVERY_BROKER,
    Change,
    PutBrokerConfigs,
    PutProducerIds,
    PutTopicConfigs,
    RemoveTopic,
    RemoveUnfinished,
    Topic,
    Unfinished,
    Work,
    decode_all,
    encode,
)
from ottla.metadata.configs import (
    Alteration,
    BrokerConfigs,
    TopicConfig,
    altered_broker,
    altered_topic,
    replaced,
    topic_config,
)
from ottla.metadata.image import Draft, Image
from ottla.metadata.store import ABSENT, Commit, Event, MetadataStore
from ottla.metadata.topic_configs import TOPIC_CONFIGS
from ottla.metadata.topics import NewTopic

WISHES_WAITING_MAX = 10_000
WISHES_TOGETHER_MAX = 1_000
"""How many wishes are decided in one go; the owner's thread has other things to do."""
CONFIGS_REMEMBERED_MAX = 1_000
CONFLICTS_MAX = 10
"""How often a wish is decided anew because somebody else changed the store first."""
PRODUCER_ID_MAX = 2**63 - 1

R = TypeVar("R")
Done = Callable[[R | OttlaError], None]
"""Called once, on the owner's thread: with the result when it is durable, or with the error."""
Post = Callable[[Callable[[], None]], None]
"""Runs a function on the owner's thread, soon; any thread may call it."""
Listener = Callable[[Image, Sequence[Change]], None]
"""Told the new image and what changed, before those who wished for it."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wish:
    """Something to decide: `decide` looks at an image and gives changes, or raises; `answer` tells whoever asked."""

    decide: Callable[[Image], list[Change]]
    answer: Callable[[OttlaError | None], None]
    conflicts: int = 0


class _Decided(NamedTuple):
    """What a wish came to, if the commit comes about."""

    wish: _Wish
    error: OttlaError | None
    writes: bool


@dataclass(slots=True)
class _Batch:
    """Wishes that were decided together and share a commit."""

    decided: list[_Decided] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    revision: int | None = None
    """Known when the commit is durable."""


class Catalog:
    """What exists, and the only way to change it."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        node_id: int,
        settings: Settings,
        post: Post,
        new_id: Callable[[], UUID],
        offline: Mapping[str, OttlaError] | None = None,
        brokers: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        self.node_id = node_id
        self.offline: dict[str, OttlaError] = dict(offline or {})
        """Topics whose directories are here but cannot be served, with the reason."""
        self._store = store
        self._settings = settings
        self._post = post
        self._new_id = new_id
        self._brokers = brokers or (lambda: (node_id,))
        self._wishes: deque[_Wish] = deque()
        self._under_way: _Batch | None = None
        self._listeners: list[Listener] = []
        self._topic_configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        self._end_watch = store.watch(lambda event: post(partial(self._learn, event)))
        snapshot = store.load()
        # Revisions of single entries are what a commit relies on; the image does not need them.
        self._revisions = {key: entry.revision for key, entry in snapshot.entries.items()}
        changes = decode_all((key, entry.value) for key, entry in snapshot.entries.items())
        self._image = Image().with_changes(changes, revision=snapshot.revision)
        self._own_configs: BrokerConfigs | None = None
        """What the image comes to for this broker, once somebody has asked."""

    @property
    def image(self) -> Image:
        """What is durable now."""
        return self._image

    def listen(self, listener: Listener) -> None:
        """Have every change told, from now on."""
        self._listeners.append(listener)

    def broker_configs(self, node_id: int | None = None) -> BrokerConfigs:
        """The settings of this broker, or of another as far as this one knows them."""
        if node_id is not None and node_id != self.node_id:
            return self._configs(self._image, str(node_id))
        if self._own_configs is None:
            self._own_configs = self._configs(self._image)
        return self._own_configs

    def topic_config(self, name: str) -> TopicConfig:
        """What a topic's settings come to; most topics share one, so it is computed once."""
        configs = self._image.configs_of_topic(name)
        key = tuple(sorted(configs.items()))
        found = self._topic_configs.get(key)
        if found is None:
            if len(self._topic_configs) >= CONFIGS_REMEMBERED_MAX:
                self._topic_configs.clear()
            found = self._topic_configs[key] = topic_config(configs, self.broker_configs())
        return found

    def create_topics(
        self,
        wanted: Sequence[NewTopic],
        done: Callable[[list[Topic | OttlaError]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Create topics, each for itself: `done` gets a topic or the reason for each, in the same order."""
        if not wanted:
            self._post(partial(done, []))
            return
        outcomes: list[Topic | OttlaError | None] = [None] * len(wanted)
        names = Counter(topic.name for topic in wanted)

        def decide(place: int, image: Image) -> list[Change]:
            new = wanted[place]
            if names[new.name] > 1:
                raise InvalidRequest(f"topic {new.name!r} stands more than once in the request; name it once")
            self._check_offline(image, new.name)
            decided = rules.create(
                image, new, topic_id=self._new_id(), brokers=self._brokers(), defaults=self._configs(image)
            )
            outcomes[place] = decided.topic
            return [] if validate_only else decided.changes

        def answer(place: int, error: OttlaError | None) -> None:
            if error is not None:
                outcomes[place] = error
            waiting.discard(place)
            if not waiting:
                done([outcome for outcome in outcomes if outcome is not None])

        waiting = set(range(len(wanted)))
        for place in range(len(wanted)):
            self._wish(_Wish(partial(decide, place), partial(answer, place)))

    def delete_topic(self, name: str, done: Done[Topic], *, topic_id: UUID | None = None) -> None:
        """Delete a topic; with `topic_id` only if it still is that one. `done` gets the topic that was."""

        def decide(image: Image) -> rules.Decided:
            if not self.broker_configs().boolean("delete.topic.enable"):
                raise TopicDeletionDisabled("topics cannot be deleted: start the broker with delete.topic.enable=true")
            return rules.delete(image, name, topic_id=topic_id)

        self._wish_for_topic(decide, done)

    def add_partitions(
        self,
        name: str,
        total: int,
        done: Done[Topic],
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Let a topic grow to `total` partitions; `done` gets the topic as it is then."""

        def decide(image: Image) -> rules.Decided:
            return rules.add_partitions(image, name, total=total, brokers=self._brokers(), assignments=assignments)

        self._wish_for_topic(decide, done, validate_only=validate_only)

    def raise_epochs(self, name: str, epochs: Mapping[int, int], done: Done[Topic]) -> None:
        """Raise the leader epochs of a topic's partitions, as after an unclean start; none falls."""
        self._wish_for_topic(lambda image: rules.raise_epochs(image, name, epochs), done)

    def alter_topic_configs(
        self,
        name: str,
        wanted: Sequence[Alteration] | Mapping[str, str | None],
        done: Done[None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change single settings of a topic (alterations), or replace all of them (a mapping)."""

        def decide(image: Image) -> list[Change]:
            image.topic(name)
            current = image.configs_of_topic(name)
            if isinstance(wanted, Mapping):
                configs = replaced(TOPIC_CONFIGS, wanted, scope=None)
            else:
                configs = altered_topic(current, wanted, self._configs(image))
            return [] if validate_only or configs == current else [PutTopicConfigs(name, configs)]

        self._wish(_Wish(decide, done))

    def alter_broker_configs(
        self,
        node: str,
        wanted: Sequence[Alteration] | Mapping[str, str | None],
        done: Done[None],
        *,
        validate_only: bool = False,
    ) -> None:
        """The same for a broker by its number, or for every broker with `EVERY_BROKER`."""

        def decide(image: Image) -> list[Change]:
            if node != EVERY_BROKER and node not in map(str, self._brokers()):
                raise InvalidRequest(f"there is no broker {node!r}; leave the name empty to mean every broker")
            scope = Scope.CLUSTER_WIDE if node == EVERY_BROKER else Scope.PER_BROKER
            current = image.broker_configs.get(node, {})
            if isinstance(wanted, Mapping):
                configs = replaced(BROKER_CONFIGS, wanted, scope=scope)
            else:
                configs = altered_broker(current, wanted, self._configs(image, node), scope=scope)
            return [] if validate_only or configs == current else [PutBrokerConfigs(node, configs)]

        self._wish(_Wish(decide, done))

    def allocate_producer_ids(self, count: int, done: Done[range]) -> None:
        """Give out `count` producer ids that nobody has had; ask for many at a time."""
        given = range(0)

        def decide(image: Image) -> list[Change]:
            nonlocal given
            given = range(image.next_producer_id, image.next_producer_id + count)
            if count < 1 or given.stop > PRODUCER_ID_MAX:
                raise InvalidRequest(f"{count} producer ids cannot be given out")
            return [PutProducerIds(given.stop)]

        self._wish(_Wish(decide, lambda error: done(error or given)))

    def placed(self, topic_id: UUID, done: Done[None], *, end: int | None = None) -> None:
        """The directories of a topic's new partitions are there; until then a crash lets them be made again.

        With `end`, those of the partitions below it: the topic may have grown, or been deleted, meanwhile.
        """

        def is_done(work: Unfinished) -> bool:
            return end is None or (work.work is Work.PLACE and work.end <= end)

        self._finish(topic_id, done, is_done)

    def removed(self, topic_id: UUID, done: Done[None]) -> None:
        """The directories of a deleted topic are gone."""
        self._finish(topic_id, done, lambda work: True)

    def close(self) -> None:
        """Listen to the store no more. What is under way may still become durable, but nobody is told."""
        self._end_watch()
        self._listeners.clear()

    def _finish(self, topic_id: UUID, done: Done[None], is_done: Callable[[Unfinished], bool]) -> None:
        def decide(image: Image) -> list[Change]:
            work = image.unfinished.get((self.node_id, topic_id))
            return [] if work is None or not is_done(work) else [RemoveUnfinished(self.node_id, topic_id)]

        self._wish(_Wish(decide, done))

    def _configs(self, image: Image, node: str | None = None) -> BrokerConfigs:
        """The settings of a broker as an image has them; with `EVERY_BROKER`, without those of any one."""
        node = str(self.node_id) if node is None else node
        own = {} if node == EVERY_BROKER else image.broker_configs.get(node, {})
        return BrokerConfigs(self._settings, image.configs_of_cluster(), own)

    def _check_offline(self, image: Image, name: str) -> None:
        if name in self.offline and name not in image.topics:
            raise TopicExists(
                f"directories of a topic {name!r} are there already, but cannot be served: {self.offline[name]}"
            )

    def _wish_for_topic(
        self, decide: Callable[[Image], rules.Decided], done: Done[Topic], *, validate_only: bool = False
    ) -> None:
        decided: Topic | None = None

        def changes(image: Image) -> list[Change]:
            nonlocal decided
            decided, found = decide(image)
            return [] if validate_only else found

        def answer(error: OttlaError | None) -> None:
            if error is not None:
                done(error)
            else:
                assert decided is not None
                done(decided)

        self._wish(_Wish(changes, answer))

    def _wish(self, wish: _Wish) -> None:
        if len(self._wishes) >= WISHES_WAITING_MAX:
            busy = MetadataBusy(f"{WISHES_WAITING_MAX} changes of metadata wait already; try again later")
            self._post(partial(wish.answer, busy))
            return
        self._wishes.append(wish)
        if len(self._wishes) == 1 and self._under_way is None:
            # Not at once: whatever else is wished for in this pass shares the commit.
            self._post(self._decide)

    def _decide(self) -> None:
        """Decide everything that waits, each in the light of those before it, and send it off as one commit."""
        if self._under_way is not None or not self._wishes:
            return
        batch = _Batch()
        draft = Draft(self._image)
        while self._wishes and len(batch.decided) < WISHES_TOGETHER_MAX:
            wish = self._wishes.popleft()
            changes: list[Change] = []
            refusal: OttlaError | None = None
            try:
                changes = wish.decide(draft.image)
            except OttlaError as error:
                refusal = error
            draft.apply(changes)
            batch.decided.append(_Decided(wish, refusal, writes=bool(changes)))
            batch.changes += changes
        if batch.changes:
            # Refusals wait too: what they rest on may not come about.
            self._under_way = batch
            self._send(batch)
        else:
            self._go_on()
            _answer(batch.decided)

    def _send(self, batch: _Batch) -> None:
        entries = dict(encode(change) for change in batch.changes)
        commit = Commit(
            puts={key: value for key, value in entries.items() if value is not None},
            deletes=frozenset(key for key, value in entries.items() if value is None),
            expected={key: self._revisions.get(key, ABSENT) for key in entries},
        )

        def settled(future: Future[int]) -> None:
            self._post(partial(self._settle, batch, future))

        self._store.submit(commit).add_done_callback(settled)

    def _settle(self, batch: _Batch, future: Future[int]) -> None:
        """The commit is durable, or never will be."""
        error = future.exception()
        if error is None:
            batch.revision = future.result()
            self._answer_durable()
            return
        self._under_way = None
        assert isinstance(error, OttlaError), error
        lost: list[_Decided] = []
        again: list[_Wish] = []
        for decided in batch.decided:
            wish = decided.wish
            wish.conflicts += 1
            if not decided.writes or (isinstance(error, MetadataConflict) and wish.conflicts < CONFLICTS_MAX):
                again.append(wish)
            else:
                lost.append(decided._replace(error=error))
        self._wishes.extendleft(reversed(again))
        self._go_on()
        _answer(lost)

    def _learn(self, event: Event) -> None:
        """A commit is durable, ours or somebody else's: this is where the image changes, and nowhere else."""
        if event.revision <= self._image.revision:
            return
        changes = decode_all(event.changed.items())
        for key, value in event.changed.items():
            if value is None:
                self._revisions.pop(key, None)
            else:
                self._revisions[key] = event.revision
        self._image = self._image.with_changes(changes, revision=event.revision)
        self._own_configs = None
        if any(isinstance(change, PutBrokerConfigs) for change in changes):
            self._topic_configs.clear()
        for change in changes:
            if isinstance(change, RemoveTopic):
                self.offline.pop(change.name, None)
        for listener in tuple(self._listeners):
            listener(self._image, changes)
        self._answer_durable()

    def _answer_durable(self) -> None:
        """Answer once the commit is durable and the image shows it; the two news may come in either order."""
        batch = self._under_way
        if batch is None or batch.revision is None or self._image.revision < batch.revision:
            return
        self._under_way = None
        self._go_on()
        _answer(batch.decided)

    def _go_on(self) -> None:
        if self._wishes:
            self._post(self._decide)


def _answer(decided: Sequence[_Decided]) -> None:
    for wish, error, _ in decided:
        wish.answer(error)
