"""Requests that are well formed and make no sense: each is answered, or closes its connection, and nothing breaks.

RANDOM_REQUESTS says how many of each version are sent (default 3).
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec
import pytest

from ottla.broker.handlers import HANDLERS
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.messages import request_class
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.schema import Message
from tests.clients.server_process import ServerProcess
from tests.protocol.random_messages import MessageMaker
from tests.server.wire import Wire

COUNT = int(os.environ.get("RANDOM_REQUESTS", "3"))


@pytest.mark.parametrize("key", list(HANDLERS), ids=lambda key: key.name.lower())
def test_a_random_request_is_answered_or_closes_its_connection(ottla_server: ServerProcess, key: ApiKey) -> None:
    maker = MessageMaker(key.name)
    for version in APIS[key].versions:
        for _ in range(COUNT):
            request = _without_waits(maker.make(request_class(key), version, with_unknown_tags=True))
            _send(ottla_server, key, version, request)
    with Wire(ottla_server) as wire:
        wire.api_versions()
    assert "Traceback" not in ottla_server.said


def _without_waits(request: Message) -> Message:
    """A poll may last for weeks if it is asked to."""
    return msgspec.structs.replace(request, max_wait_ms=1) if isinstance(request, FetchRequest) else request


def _send(server: ServerProcess, key: ApiKey, version: int, request: Message) -> None:
    with Wire(server) as wire:
        is_answered = not (isinstance(request, ProduceRequest) and request.acks == 0)
        wire.send(key, version, request, expects_response=is_answered)
        if is_answered:
            with suppress(ConnectionError):
                wire.receive()
