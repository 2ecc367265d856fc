"""What a consumer reads at present: its cursors, which of them know where to begin, and what was really reached.

Pure. A consumer without a group has chosen its holdings; one with a group gets and gives them up as the group decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ottla.client.cursors import Cursor
from ottla.client.settings import ConsumerSettings
from ottla.client.values import Committed, Record, TopicPartition
from ottla.protocol.schema import NO_UUID


class Handout:
    """Records that were polled on behalf of a loop, which takes them one by one."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: deque[Record] = deque()
        """Those that the loop has not come to. It takes each off before it gives it: whoever gets it may commit it."""

    def unreached(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that the loop has not come to."""
        first: dict[TopicPartition, int] = {}
        for record in self.left:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def forget(self, partitions: frozenset[TopicPartition]) -> None:
        """The loop shall not come to what is left of these."""
        kept = [record for record in self.left if (record.topic, record.partition) not in partitions]
        self.left.clear()
        self.left.extend(kept)


class Holdings:
    """The partitions that a consumer reads."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.unplaced: set[TopicPartition] = set()
        """Those for which the group has not been asked yet where it is."""
        self._aside: dict[TopicPartition, Cursor] = {}
        """Of topics that are not there; the group has not taken them away, and they may come back."""
        self._handouts: list[Handout] = []

    def replace(self, wanted: Iterable[TopicPartition], *, in_group: bool) -> None:
        """Read these and nothing else; those that stay keep their place."""
        names = list(wanted)
        new = [key for key in names if key not in self.cursors]
        self._forget(self.cursors.keys() - set(names))
        self.cursors = {key: self.cursors.get(key) or self._new_cursor(key) for key in names}
        self._aside.clear()
        self.unplaced = {key for key in self.unplaced if key in self.cursors}
        if in_group:
            self.unplaced.update(new)

    def adopt(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too, from where their group is."""
        for key in sorted(partitions):
            self.cursors[key] = self._new_cursor(key)
            self.unplaced.add(key)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        gone = list(partitions)
        for key in gone:
            self.cursors.pop(key, None)
            self._aside.pop(key, None)
            self.unplaced.discard(key)
        self._forget(gone)

    def set_aside(self, topic: str) -> None:
        """The topic is not there: read nothing of it until it is."""
        gone = [key for key in self.cursors if key.topic == topic]
        for key in gone:
            self._aside[key] = self.cursors.pop(key)
        self._forget(gone)

    def bring_back(self, topic: str) -> None:
        """The topic is there again. Its cursors find out by its id whether it is still the same one."""
        for key in [key for key in self._aside if key.topic == topic]:
            self.cursors[key] = self._aside.pop(key)

    @property
    def missing_topics(self) -> list[str]:
        """Those that were set aside."""
        return sorted({key.topic for key in self._aside})

    def _new_cursor(self, key: TopicPartition) -> Cursor:
        cursor = Cursor(key, wanted=self._settings.start_spec)
        if self._settings.start_offset is not None:
            cursor.seek(self._settings.start_offset, sought=True)
        return cursor

    def ready(self) -> list[Cursor]:
        """The cursors that may be asked for records."""
        if not self.unplaced:
            return list(self.cursors.values())
        return [cursor for key, cursor in self.cursors.items() if key not in self.unplaced]

    # --- how far ---------------------------------------------------------------------------------------

    @contextmanager
    def handing_out(self) -> Iterator[Handout]:
        """For a loop over records; what it did not come to is given again."""
        handout = Handout()
        self._handouts.append(handout)
        try:
            yield handout
        finally:
            self._handouts.remove(handout)
            self.give_back(handout)

    def give_back(self, handout: Handout) -> None:
        for key, offset in handout.unreached().items():
            cursor = self.cursors.get(key)
            if cursor is not None and key not in self.unplaced:
                cursor.seek(offset, sought=False)
        handout.left.clear()

    def take_back(self) -> None:
        """Somebody polls beside a loop, or after one that has not noticed its end: nothing is passed over for it."""
        for handout in self._handouts:
            self.give_back(handout)

    def sought(self, key: TopicPartition) -> None:
        """The user has chosen where to go on; neither the group nor a loop has a say in it any more."""
        self.unplaced.discard(key)
        self._forget([key])

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = frozenset(partitions)
        for handout in self._handouts:
            handout.forget(gone)

    def consumed(self) -> dict[TopicPartition, Committed]:
        """Where to go on in each partition if everything that was given out is done with."""
        found = {
            key: Committed(cursor.position, leader_epoch=cursor.last_epoch)
            for key, cursor in self.cursors.items()
            if cursor.position is not None and key not in self.unplaced
        }
        for handout in self._handouts:
            for key, offset in handout.unreached().items():
                if key in found and offset < found[key].offset:
                    found[key] = found[key]._replace(offset=offset)
        return found

    def topic_ids(self) -> dict[str, bytes]:
        """Of the topics that were read."""
        return {key.topic: cursor.topic_id for key, cursor in self.cursors.items() if cursor.topic_id != NO_UUID}
