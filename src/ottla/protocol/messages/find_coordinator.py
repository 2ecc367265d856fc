"""FindCoordinator (API 10): tells which broker looks after a group or a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class FindCoordinatorRequest(Message, frozen=True):
    """The group or transactional id to look up; since 4 several at once."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.FIND_COORDINATOR].versions

    key: Annotated[String, Since(last=3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[Sequence[String], Since(4)] = ()


class Coordinator(Message, frozen=True):
    """The coordinator of one key, or why none is known."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class FindCoordinatorResponse(Message, frozen=True):
    """The broker that coordinates each of them."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.FIND_COORDINATOR].versions

    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    error_code: Annotated[Int16, Since(last=3)] = 0
    error_message: Annotated[String | None, Since(1, last=3, ignorable=True)] = ""
    node_id: Annotated[Int32, Since(last=3)] = 0
    host: Annotated[String, Since(last=3)] = ""
    port: Annotated[Int32, Since(last=3)] = 0
    coordinators: Annotated[Sequence[Coordinator], Since(4)] = ()
