"""Requests that are like earlier ones of their connection get the same answers, and leave the same files, as if each
had come alone.

REPEAT_SEEDS says how many random streams are tried (default 8).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from random import Random

import pytest

from ottla.metadata.image import Image
from ottla.partitions.partition import UNWATCHED_SYNC_MS
from tests.server.repeats_stage import Door, expected
from tests.server.repeats_stream import PARTITIONS, TOPICS, Stream

SEEDS = int(os.environ.get("REPEAT_SEEDS", "8"))
GROUPS, GROUPS_MAX = 40, 200
SHORT_MIN = 20
"""How many requests of a stream are answered without being read; many are made so that they cannot be, and a stream of
which too few were goes on."""


class Pair:
    """Two equal brokers: one is sent each request alone, the other all of them over one connection."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.alone, self.together = Door(), Door()
        for name, configs in TOPICS.items():
            for door in self._doors:
                door.stage.create(name, PARTITIONS, **configs)
        self.stream = Stream(seed, self._topic_id, self.alone.stage.clock.now_ms)

    @property
    def _doors(self) -> tuple[Door, Door]:
        return self.alone, self.together

    def _topic_id(self, name: str) -> bytes:
        image: Image = self.alone.stage.broker.services.catalog.image
        topic = image.topics.get(name)
        return bytes(16) if topic is None else topic.topic_id.bytes

    def exchange(self) -> None:
        """Send a group of requests to both, and compare all that comes back."""
        frames = self.stream.group()
        answers = self.alone.send_each(frames)
        start = 0
        for count, heard in self.together.send_all(frames, answers, self._chance):
            assert heard == expected(answers[start : start + count])
            start += count

    def happen(self) -> None:
        """Something befalls both: time passes, a topic goes or comes, a disk fills up."""
        chance = self._chance
        odd = chance.random()
        if odd < 0.3:
            by_ms = chance.choice([1, UNWATCHED_SYNC_MS, 1_000, 4_000])
            for door in self._doors:
                door.stage.scheduler.advance(by_ms)
        elif odd < 0.4:
            room_bytes = chance.choice([100, 600, 3_000])
            # Requests for several partitions that come together are not written in the order of those that come alone,
            # so others may find no room.
            self.stream.is_spreading = False
            for door in self._doors:
                disk = door.stage.disk
                disk.capacity_bytes = disk.used_bytes() + room_bytes
        elif odd < 0.5:
            name = chance.choice(list(TOPICS))
            frames = [self.stream.deletion(name), self.stream.creation(name)]
            for frame in frames[chance.randrange(2) :]:
                for door in self._doors:
                    door.send_each([frame])
        if odd >= 0.4 or odd < 0.1:
            self.stream.is_spreading = True
            for door in self._doors:
                door.stage.disk.heal()

    def settle(self) -> None:
        for door in self._doors:
            door.stage.disk.heal()
            door.stage.scheduler.advance(10_000)

    def compare_files(self) -> None:
        files, others = (door.stage.disk.files() for door in self._doors)
        assert files.keys() == others.keys()
        differing = [path for path, data in files.items() if others[path] != data]
        assert differing == []

    @property
    def short_answers(self) -> int:
        """How many requests were answered without being read."""
        return self.alone.broker.produced - self.together.broker.produced

    def restart(self) -> None:
        for door in self._doors:
            door.stage.restart()

    def close(self) -> None:
        for door in self._doors:
            door.close()


@pytest.fixture
def pair(seed: int, caplog: pytest.LogCaptureFixture) -> Iterator[Pair]:
    # Full disks and closed connections are what this is about, and each is told of.
    caplog.set_level(logging.CRITICAL)
    made = Pair(seed)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_stream_over_one_connection_is_answered_and_stored_as_its_requests_one_by_one(pair: Pair) -> None:
    for number in range(GROUPS_MAX):
        if number >= GROUPS and pair.short_answers > SHORT_MIN:
            break
        pair.exchange()
        pair.happen()
    pair.settle()
    pair.compare_files()
    assert pair.short_answers > SHORT_MIN
    # Indexes and producers' states are written when a log is closed.
    pair.restart()
    pair.compare_files()
