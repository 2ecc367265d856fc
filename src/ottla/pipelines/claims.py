"""One run of a pipeline at a time: a second one would write over the first one's checkpoints.

A run tells every few seconds that it is there. Whoever starts says so too, and then looks who was there before: the
order of the one partition decides, so of two that start together only one goes on. Who was killed tells nothing any
more, which is waited for only where it cannot be seen otherwise.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ottla.client.blocking.client import Client
from ottla.client.blocking.producer import Producer
from ottla.client.values import Record
from ottla.clock import Clock
from ottla.errors import OttlaError
from ottla.pipelines.progress import ENDED, PROGRESS_TOPIC, RunProgress, decoded, moment
from ottla.pipelines.progress_topics import (
    make_topics,
    of_pipeline,
    offset_since,
    record_of,
    records_between,
)

BEAT_MS = 5_000
"""How often a run tells that it is there."""
SILENCE_MS = 3 * BEAT_MS
"""After so long it is not."""
LISTEN_MS = BEAT_MS + 2_000
"""How long a run that was heard a moment ago is given to tell once more."""
LOOK_BACK_MS = 600_000
"""How far back others are looked for: far more than SILENCE_MS, since the broker's clock may not be ours."""
POLL_MS = 500
REFUSED = "another run is there"
"""The last word of a run that made way."""


class AlreadyRunning(OttlaError):
    """Another run of the pipeline is there."""

    def __init__(self, other: RunProgress) -> None:
        super().__init__(
            f"pipeline {other.pipeline} is running already (process {other.process} on {host_of(other.place)}, "
            f"run {other.run}); stop it with `ottla pipeline stop`, or start with --force if it is not there any more"
        )
        self.other = other


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A process and the machine that it is on."""

    place: str
    process: int


def whereabouts() -> Whereabouts:
    """Of this process. Containers may share a name, but not their numbers of processes."""
    try:
        numbers = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        numbers = 0
    return Whereabouts(f"{socket.gethostname()}/{numbers}", os.getpid())


def host_of(place: str) -> str:
    return place.rpartition("/")[0] or place


def is_gone(other: RunProgress, here: Whereabouts) -> bool:
    """Whether a run's process is known to have ended; one on another machine never is."""
    if other.place != here.place or other.process <= 0:
        return False
    if other.process == here.process:
        # This very process ran the pipeline before, and may still do so in another thread.
        return False
    try:
        os.kill(other.process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def claim(
    client: Client,
    mine: RunProgress,
    *,
    clock: Clock,
    pause: Callable[[int], object],
    gone: Callable[[RunProgress], bool],
    force: bool = False,
) -> None:
    """Say that a run begins; raises `AlreadyRunning`, having said that it ended, if another one is there."""
    make_topics(client)
    with client.producer(linger_ms=0) as producer:
        position = producer.send_batch(PROGRESS_TOPIC, [record_of(mine)])[0].offset
        if force:
            return
        others = _before(client, mine, end=position + 1, clock=clock)
        suspects = {run: told for run, told in others.items() if not gone(told)}
        if not suspects:
            return
        heard = _heard_again(client, mine, producer, suspects, clock=clock, pause=pause, start=position + 1)
        if heard is not None:
            told = replace(mine, state="stopped", at=moment(clock.now_ms()), error=REFUSED)
            producer.send_batch(PROGRESS_TOPIC, [record_of(told)])
            # Last, so that readers of the latest record find the run that is there.
            producer.send_batch(PROGRESS_TOPIC, [record_of(heard)])
            raise AlreadyRunning(heard)


def _before(client: Client, mine: RunProgress, *, end: int, clock: Clock) -> dict[str, RunProgress]:
    """Other runs that were heard shortly before ours began, by the clock of the broker."""
    start = offset_since(client, PROGRESS_TOPIC, max(0, clock.now_ms() - LOOK_BACK_MS))
    heard: dict[str, tuple[RunProgress, int]] = {}
    mine_at_ms = 0
    for record in of_pipeline(records_between(client, PROGRESS_TOPIC, start=start, end=end), mine.pipeline):
        told = _run(record)
        if told is None:
            continue
        if told.run == mine.run:
            mine_at_ms = record.timestamp_ms
        else:
            heard[told.run] = (told, record.timestamp_ms)
    return {
        run: told for run, (told, at_ms) in heard.items() if told.state not in ENDED and mine_at_ms - at_ms < SILENCE_MS
    }


def _heard_again(
    client: Client,
    mine: RunProgress,
    producer: Producer,
    suspects: dict[str, RunProgress],
    *,
    clock: Clock,
    pause: Callable[[int], object],
    start: int,
) -> RunProgress | None:
    """The first of the suspects that tells something new and goes on; None: they are silent, or have ended."""
    waiting = dict(suspects)
    until_ms = clock.now_ms() + LISTEN_MS
    told_ms = clock.now_ms()
    with client.consumer(start_offset=start) as consumer:
        consumer.assign([(PROGRESS_TOPIC, 0)])
        while waiting and clock.now_ms() < until_ms:
            for record in of_pipeline(consumer.poll(), mine.pipeline):
                told = _run(record)
                if told is None or told.run not in waiting:
                    continue
                if told.state not in ENDED:
                    return told
                del waiting[told.run]
            if clock.now_ms() - told_ms >= BEAT_MS // 2:
                # Whoever starts meanwhile must hear of us.
                told_ms = clock.now_ms()
                producer.send_batch(PROGRESS_TOPIC, [record_of(replace(mine, at=moment(told_ms)))])
            pause(POLL_MS)
    return None


def _run(record: Record) -> RunProgress | None:
    told = decoded(record.key, record.value)
    return told if isinstance(told, RunProgress) else None
