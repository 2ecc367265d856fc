"""The broker: one call that takes a request, and a life that starts and ends.

`submit` is the whole of it for a client, whether it comes over a socket or from the same program. It must be
called on the owner's thread, and what it answers later is completed there.
"""

from __future__ import annotations

import logging
from typing import Any

from ottla.broker.caller import Caller
from ottla.broker.handlers import HANDLERS
from ottla.broker.handlers.api_versions import unsupported
from ottla.broker.housekeeping import Housekeeping
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import Refusal
from ottla.metadata.store import MetadataStore
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.headers import RequestHeader, UnsupportedRequest
from ottla.protocol.messages import response_class
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.schema import Message
from ottla.storage.layout import CLEAN_FILE

_logger = logging.getLogger(__name__)


class Broker:
    """One node. Made by `assembly.start`."""

    def __init__(self, services: Services, store: MetadataStore, housekeeping: Housekeeping) -> None:
        self.services = services
        self._store = store
        self._housekeeping = housekeeping

    def submit(self, header: RequestHeader, request: Message, caller: Caller) -> Message | Pending | None:
        """Serve a request: the response, the promise of one, or None where none is sent.

        Raises UnsupportedRequest for an API that this broker does not serve.
        """
        handler = HANDLERS.get(header.api_key)
        if handler is None:
            raise UnsupportedRequest(
                api_key=header.api_key, api_version=header.api_version, correlation_id=header.correlation_id
            )
        try:
            return handler(request, header.api_version, caller, self.services)
        except Refusal as error:
            return _refused(header.api_key, error)

    def refuse_version(self) -> ApiVersionsResponse:
        """The answer to a version of ApiVersions that is not known."""
        return unsupported(self.services.announced)

    def stop(self) -> None:
        """Begin no more work of its own; requests are still served."""
        self._housekeeping.stop()
        self.services.groups.stop()
        self.services.transactions.stop()

    def close(self) -> None:
        """Close everything in order and, if all could be, leave the mark of a clean stop. No sync may be under way."""
        services = self.services
        is_clean = services.partitions.close()
        services.catalog.close()
        self._store.close()
        if is_clean:
            marker = services.disk.open(f"{services.directory.path}/{CLEAN_FILE}", create=True)
            marker.sync()
            marker.close()
            services.disk.sync_directory(services.directory.path)
        services.directory.close()


def _refused(api_key: ApiKey, error: Refusal) -> Message:
    """An error for the whole request, for the APIs whose response has a place for it."""
    response = response_class(api_key)
    assert "error_code" in response.__struct_fields__, f"{api_key.name} answers each part by itself"
    fields: dict[str, Any] = {"error_code": error.code}
    if "error_message" in response.__struct_fields__:
        fields["error_message"] = str(error)
    return response(**fields)
