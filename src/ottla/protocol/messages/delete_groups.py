"""DeleteGroups (API 42): deletes groups that have no members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class DeleteGroupsRequest(Message, frozen=True):
    """The groups to delete."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_GROUPS].versions

    groups_names: Sequence[String] = ()


class DeletableGroupResult(Message, frozen=True):
    """Whether one group was deleted."""

    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Message, frozen=True):
    """What became of each group."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DELETE_GROUPS].versions

    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult] = ()
