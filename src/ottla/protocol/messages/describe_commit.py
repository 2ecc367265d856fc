"""DescribeCommit (API 10001, Ottla's own): tells whether a key has been committed."""

from __future__ import annotations

from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Int64, Message, String
from ottla.protocol.versions import Versions


class DescribeCommitRequest(Message, frozen=True):
    """The key of a commit."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_COMMIT].versions

    query_id: String = ""
    batch_id: Int64 = 0


class DescribeCommitResponse(Message, frozen=True):
    """Whether there was such a commit, and which batch of the query was the last; -1 if none is remembered."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_COMMIT].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    is_committed: Bool = False
    last_batch_id: Int64 = -1
