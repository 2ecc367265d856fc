"""ApiVersions, versions 0-4: what this broker can do.

The list is derived from the table of handlers and nothing else. A version that is not known is answered in
version 0 with error 35, by `unsupported`, so that the client can try again lower.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.caller import Caller
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def api_versions(request: ApiVersionsRequest, version: int, caller: Caller, services: Services) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=services.announced,
        # Less than 0 would make Java clients ignore all features.
        finalized_features_epoch=0,
    )


def announced(keys: Sequence[ApiKey]) -> tuple[ApiVersion, ...]:
    """The announcement of these APIs."""
    return tuple(
        ApiVersion(
            api_key=key,
            min_version=APIS[key].versions.first
            if APIS[key].announced_first is None
            else APIS[key].announced_first or 0,
            max_version=APIS[key].versions.last,
        )
        for key in sorted(keys)
    )


def unsupported(announcement: Sequence[ApiVersion]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not known."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=announcement)
