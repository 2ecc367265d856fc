"""One file per API. The table below is all that a broker can do, and all that it announces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ottla.broker.caller import Caller
from ottla.broker.handlers.api_versions import api_versions
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.list_offsets import list_offsets
from ottla.broker.handlers.metadata import metadata
from ottla.broker.handlers.produce import produce
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message

Handler = Callable[[Any, int, Caller, Services], Message | Pending | None]
"""Takes a request of its API, the version, who asks, and the broker's parts.

Gives the response, the promise of one, or None where none is sent. A Refusal that it raises becomes a
response with that error, where the API has a place for one.
"""

HANDLERS: Mapping[ApiKey, Handler] = MappingProxyType(
    {
        ApiKey.PRODUCE: produce,
        ApiKey.FETCH: fetch,
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.METADATA: metadata,
        ApiKey.API_VERSIONS: api_versions,
    }
)
