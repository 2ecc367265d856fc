"""Asking a run of a pipeline, wherever it is, to stop, and seeing that it has."""

from __future__ import annotations

from ottla.client.blocking.client import Client
from ottla.clock import Clock
from ottla.errors import OttlaError
from ottla.pipelines.claims import REFUSED, SILENCE_MS, host_of
from ottla.pipelines.progress import CONTROL_TOPIC, ENDED, PROGRESS_TOPIC, Command, RunProgress, moment
from ottla.pipelines.progress_topics import Standing, end_of, make_topics, of_pipeline, record_of, standing

POLL_MS = 500


class NotRunning(OttlaError):
    """There is nothing to stop."""


class StillRunning(OttlaError):
    """It was asked to stop, and has not told that it did."""


def stopped(client: Client, pipeline: str, *, clock: Clock, timeout_ms: int) -> RunProgress:
    """Ask the run that was heard last to stop where its batches end; the last word of that run.

    If that one was only about to be refused, because another one is there, it is the other that is stopped.
    """
    make_topics(client)
    until_ms = clock.now_ms() + timeout_ms
    refused: RunProgress | None = None
    while True:
        followed = end_of(client, PROGRESS_TOPIC)
        found = standing(client, pipeline)
        run = found.run
        if run is None or not found.is_running:
            if refused is not None:
                return refused
            state = "it has not run against this server" if run is None else f"its last run has {_ended(run)}"
            raise NotRunning(f"pipeline {pipeline} is not running: {state}")
        command = Command(pipeline=pipeline, do="stop", at=moment(clock.now_ms()), run=run.run)
        with client.producer(linger_ms=0) as producer:
            producer.send_batch(CONTROL_TOPIC, [record_of(command)])
        last = _awaited(client, found, run, start=followed, clock=clock, until_ms=until_ms)
        if last.error != REFUSED:
            return last
        refused = last


def _ended(run: RunProgress) -> str:
    return f"{run.state} at {run.at}" + (f" ({run.error})" if run.error else "")


def _awaited(
    client: Client, found: Standing, run: RunProgress, *, start: int, clock: Clock, until_ms: int
) -> RunProgress:
    heard_ms = clock.now_ms()
    with client.consumer(start_offset=start) as consumer:
        consumer.assign([(PROGRESS_TOPIC, 0)])
        while clock.now_ms() < until_ms:
            for record in of_pipeline(consumer.poll(POLL_MS), run.pipeline):
                found.take(record)
                if found.run is not None and found.run.run == run.run:
                    heard_ms = clock.now_ms()
                    run = found.run
            if run.state in ENDED:
                return run
            if clock.now_ms() - heard_ms > SILENCE_MS:
                raise StillRunning(
                    f"pipeline {run.pipeline} does not answer: nothing was heard of process {run.process} on "
                    f"{host_of(run.place)} since {run.at}, so it was most likely killed; it can be run again"
                )
    busy = [name for name, one in found.queries.items() if one.state not in ENDED and one.run == run.run]
    raise StillRunning(f"pipeline {run.pipeline} was asked to stop and is {run.state}; not ended: {', '.join(busy)}")
