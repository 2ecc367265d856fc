"""Which topics the members of a consumer group are subscribed to, as the topics are now.

Names are looked up, patterns are compared, and both come down to the ids and sizes of topics that exist, and to one
hash by which a group sees that they have changed. Nothing is written here. What was looked up is remembered until
topics change: a group of hundreds of members asks for the same thousand topics again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from ottla.coordinators.groups.consumer_group import ConsumerGroup
from ottla.coordinators.groups.consumer_member import MemberFacts
from ottla.coordinators.groups.regex_subscriptions import STEPS_MAX, Pattern
from ottla.coordinators.groups.topics_view import TopicsView
from ottla.errors import InvalidRegularExpression

PATTERNS_SLICE_INTERVAL_MS = 20
"""Between two slices of a look that is too long for one decision; there is time for others in between."""
PATTERNS_LOOK_INTERVAL_MS = 1_000
"""Between two looks at all topics for the patterns of one group: topics that are made in a row count as one change."""
WANTED_MAX = 100
"""Subscriptions whose topics are remembered; most groups have one or two."""
_HASH_BYTES = 8
_HASH_MASK = (1 << 8 * _HASH_BYTES) - 1

_logger = logging.getLogger(__name__)


class _Topic(NamedTuple):
    topic_id: bytes
    hash: int


class Subscriptions:
    """The topics as groups see them."""

    def __init__(self, topics: Callable[[], TopicsView]) -> None:
        self._topics = topics
        self.version = 0
        """Counts the changes of topics since the broker was started."""
        self._names: frozenset[str] | None = None
        self._known: dict[str, _Topic] = {}
        self._counts: dict[bytes, int] = {}
        self._wanted: dict[tuple[frozenset[str], frozenset[str]], frozenset[bytes]] = {}

    def topics_changed(self) -> None:
        """Groups look again when one of their members is next heard of."""
        self.version += 1
        self._names = None
        self._known = {}
        self._counts = {}
        self._wanted = {}

    def view(self) -> TopicsView:
        """The topics of this moment."""
        return self._topics()

    # --- names -------------------------------------------------------------------------------------------------

    @property
    def partition_counts(self) -> Mapping[bytes, int]:
        """How many partitions each topic has; each that `wanted_ids` has ever named since topics last changed."""
        return self._counts

    def wanted_ids(self, group: ConsumerGroup, facts: MemberFacts) -> frozenset[bytes]:
        """The ids of the topics that a member is subscribed to, of those that exist."""
        matched = group.resolved.get(facts.pattern, frozenset()) if facts.pattern else frozenset()
        found = self._wanted.get((facts.topic_names, matched))
        if found is None:
            self._look_up(facts.topic_names | matched)
            known = self._known
            found = frozenset(known[name].topic_id for name in facts.topic_names | matched if name in known)
            if len(self._wanted) >= WANTED_MAX:
                self._wanted.clear()
            self._wanted[facts.topic_names, matched] = found
        return found

    def metadata_hash(self, group: ConsumerGroup) -> int:
        """Another number as soon as a topic of the group comes, goes, is made anew or grows; 0 without topics."""
        names = group.subscribed_topics()
        self._look_up(names)
        known = self._known
        total = sum(known[name].hash for name in names if name in known) & _HASH_MASK
        return int.from_bytes(total.to_bytes(_HASH_BYTES), signed=True)

    def _look_up(self, names: frozenset[str]) -> None:
        """Get to know these topics, as far as there are any."""
        view = self._topics()
        for name in names - self._known.keys():
            topic_id = view.topic_id(name)
            if topic_id is not None:
                count = view.partition_count(name)
                described = b"%s %d %s" % (topic_id, count, name.encode())
                digest = blake2b(described, digest_size=_HASH_BYTES).digest()
                self._known[name] = _Topic(topic_id, int.from_bytes(digest))
                self._counts[topic_id] = count

    # --- patterns ----------------------------------------------------------------------------------------------

    def compile(self, group: ConsumerGroup | None, text: str) -> Pattern | None:
        """The pattern, made ready unless the group has it already. Raises InvalidRegularExpression."""
        if not text:
            return None
        known = None if group is None else group.patterns.get(text)
        return Pattern(text) if known is None else known

    def resolve(self, pattern: Pattern) -> frozenset[str]:
        """The topics that a pattern stands for, as far as one decision may look."""
        pattern.look(self._all_names(), STEPS_MAX)
        return pattern.matched

    def patterns_are_due(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether it is time to compare the group's patterns with the topics again."""
        if not group.resolved or now_ms < group.patterns_looked_ms + PATTERNS_LOOK_INTERVAL_MS:
            return False
        return self.is_looking(group)

    def is_looking(self, group: ConsumerGroup) -> bool:
        """Whether some of the group's patterns have not been compared with all topics of this moment."""
        if not group.resolved:
            return False
        if group.names_version_looked != self.version:
            return True
        return not all(pattern.is_finished for pattern in group.patterns.values())

    def resolve_again(self, group: ConsumerGroup, now_ms: int) -> dict[str, frozenset[str]]:
        """The patterns that stand for other topics than before, as far as one decision may look."""
        changed: dict[str, frozenset[str]] = {}
        group.patterns_looked_ms = now_ms
        steps = STEPS_MAX
        for text, before in group.resolved.items():
            if steps <= 0:
                return changed  # Those that are finished cost nothing: the next look comes to the others.
            pattern = self._remembered(group, text)
            if pattern is None:
                continue
            steps = pattern.look(self._all_names(), steps)
            # Until the comparison is complete, what the record says still holds, as far as it exists: members would
            # have to be assigned anew with every slice, and after a restart it begins with nothing.
            now = pattern.matched if pattern.is_finished else before & self._all_names()
            if now != before:
                changed[text] = now
        group.names_version_looked = self.version
        return changed

    def _remembered(self, group: ConsumerGroup, text: str) -> Pattern | None:
        pattern = group.patterns.get(text)
        if pattern is None:
            try:
                pattern = Pattern(text)
            except InvalidRegularExpression as error:
                # Recorded by a broker that could read it. What it stood for then is the best that is known.
                _logger.warning("group %s keeps the topics of its pattern: %s", group.group_id, error)
                return None
            group.patterns[text] = pattern
        return pattern

    def _all_names(self) -> frozenset[str]:
        if self._names is None:
            self._names = frozenset(self._topics().names())
        return self._names
