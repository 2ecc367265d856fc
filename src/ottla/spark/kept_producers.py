"""Producers that outlive the task which made them, one for each settings: a worker's next task sends at once."""

from __future__ import annotations

import os
from dataclasses import asdict

from ottla.client.blocking.producer import Producer
from ottla.client.settings import ProducerSettings
from ottla.spark import pool
from ottla.spark.kafka_options import Connection

PRODUCERS_MAX = 16
"""Different settings that a process keeps a producer for; the one that was used longest ago goes first."""

_Key = tuple[int, Connection, ProducerSettings]

_KEPT: dict[_Key, Producer] = {}


def kept_producer(connection: Connection, settings: ProducerSettings) -> tuple[Producer, bool]:
    """The producer of these settings, for one task at a time; and whether it is new."""
    # The process is part of the key: a producer that was inherited in a fork has neither thread nor connections.
    key = (os.getpid(), connection, settings)
    kept = _KEPT.pop(key, None)
    is_new = kept is None or kept.is_closed
    if kept is None or kept.is_closed:
        kept = pool.client(connection).producer(**asdict(settings))
    _KEPT[key] = kept
    for oldest in list(_KEPT)[:-PRODUCERS_MAX]:
        _KEPT.pop(oldest).close()
    return kept, is_new


def discard_producer(connection: Connection, settings: ProducerSettings) -> None:
    """A task has failed: what it submitted and what was not sent yet is dropped."""
    kept = _KEPT.pop((os.getpid(), connection, settings), None)
    if kept is not None:
        kept.discard()
