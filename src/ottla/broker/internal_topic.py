"""An internal topic that is made when it is first needed.

Whoever needs it waits until it is there: clients ask for a coordinator before they do anything else with a group, and
should not have to ask twice because they were the first. What the topic is for is not known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ottla.errors import CoordinatorNotAvailable, OttlaError, TopicExists
from ottla.metadata.catalog import Catalog
from ottla.metadata.changes import Topic
from ottla.metadata.topics import NewTopic
from ottla.partitions.hosted import HostedPartitions
from ottla.scheduler import Scheduler, Timer

TIMEOUT_MS = 10_000
"""How long anybody waits for the topic at most; the making goes on."""

Found = Callable[[Topic | CoordinatorNotAvailable], None]

_logger = logging.getLogger(__name__)


class InternalTopic:
    """One topic of Ottla's own."""

    def __init__(
        self, wanted: Callable[[], NewTopic], *, catalog: Catalog, partitions: HostedPartitions, scheduler: Scheduler
    ) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._partitions = partitions
        self._scheduler = scheduler
        self._waiting: list[Found] = []
        self._is_under_way = False
        self._timer: Timer | None = None

    def when_there(self, found: Found) -> None:
        """Call back once the topic can be used, or with the reason why it cannot; it is made where it is missing."""
        self._waiting.append(found)
        if self._timer is None:
            self._timer = self._scheduler.call_later(TIMEOUT_MS, self._time_out)
        if not self._is_under_way:
            self._is_under_way = True
            self._look()

    def _look(self) -> None:
        wanted = self._wanted()
        topic = self._catalog.image.topics.get(wanted.name)
        if topic is None:
            self._catalog.create_topics([wanted], self._created)
        else:
            self._partitions.when_placed(topic.topic_id, partial(self._placed, topic))

    def _created(self, outcomes: list[Topic | OttlaError]) -> None:
        (outcome,) = outcomes
        if isinstance(outcome, Topic):
            self._partitions.when_placed(outcome.topic_id, partial(self._placed, outcome))
        elif isinstance(outcome, TopicExists) and self._wanted().name in self._catalog.image.topics:
            self._look()
        else:
            self._fail(outcome)

    def _placed(self, topic: Topic, error: OttlaError | None) -> None:
        if error is None:
            self._settle(topic)
        else:
            self._fail(error)

    def _fail(self, error: OttlaError) -> None:
        _logger.error("topic %s cannot be made: %s", self._wanted().name, error)
        self._settle(CoordinatorNotAvailable(f"topic {self._wanted().name} cannot be made: {error}"))

    def _settle(self, outcome: Topic | CoordinatorNotAvailable) -> None:
        self._is_under_way = False
        self._tell(outcome)

    def _time_out(self) -> None:
        self._tell(CoordinatorNotAvailable(f"topic {self._wanted().name} is not there after {TIMEOUT_MS} ms"))

    def _tell(self, outcome: Topic | CoordinatorNotAvailable) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for found in waiting:
            found(outcome)
