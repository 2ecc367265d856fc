"""FindCoordinator, versions 0-6: which broker looks after a group or a transactional id.

One key up to version 3, several since 4. With one broker it is always this one; the answer comes when
`__consumer_offsets`, or `__transaction_state`, is there, which the first question brings about. Share groups are not
there yet: there is no coordinator for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.broker.caller import Caller
from ottla.broker.pending import Pending
from ottla.broker.relay import Relay
from ottla.broker.services import Services
from ottla.errors import CoordinatorNotAvailable, InvalidRequest, Refusal
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schema import Message

BATCHED_VERSION_MIN = 4
SHARE_VERSION_MIN = 6
GROUP = 0
TRANSACTION = 1
SHARE = 2
NO_NODE = -1


def find_coordinator(
    request: FindCoordinatorRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    keys = request.coordinator_keys if version >= BATCHED_VERSION_MIN else (request.key,)
    respond = partial(_response, keys, version, caller, services)
    try:
        _check(request.key_type, version)
    except Refusal as error:
        return respond(error)
    relay = Relay(respond)

    def ready(error: Refusal | None) -> None:
        relay.follow(respond(error))

    if request.key_type == TRANSACTION:
        services.transactions.when_ready(ready)
    else:
        services.groups.when_ready(ready)
    return relay.response()


def _check(key_type: int, version: int) -> None:
    if key_type not in (GROUP, TRANSACTION, SHARE) or (key_type == SHARE and version < SHARE_VERSION_MIN):
        raise InvalidRequest(f"there are no coordinators of type {key_type} in version {version}")
    if key_type == SHARE:
        raise CoordinatorNotAvailable("share groups are not available on this broker")


def _response(
    keys: Sequence[str], version: int, caller: Caller, services: Services, error: Refusal | None
) -> FindCoordinatorResponse:
    coordinators = [_coordinator(key, caller, services, error) for key in keys]
    if version >= BATCHED_VERSION_MIN:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(key: str, caller: Caller, services: Services, error: Refusal | None) -> Coordinator:
    if error is not None:
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error.code, error_message=str(error)
        )
    host, port = caller.advertised
    return Coordinator(key=key, node_id=services.node_id, host=host, port=port, error_message=None)
