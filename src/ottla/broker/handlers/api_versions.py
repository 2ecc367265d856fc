"""ApiVersions, versions 0-4: what this broker can do.

The list is derived from the table of handlers and nothing else. A version that is not known is answered in
version 0 with error 35, by `unsupported`, so that the client can try again lower. The second version of transactions is
told as a finalized feature, since 3. Ottla's own APIs are told only to clients that ask for them with a tagged field.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.caller import Caller
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import APIS, PRIVATE_APIS_TAG, ApiKey
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MAX = 2
FEATURES_FROM_ZERO_VERSION_MIN = 4

_FINALIZED = (
    FinalizedFeatureKey(
        name=TRANSACTION_VERSION,
        max_version_level=TRANSACTION_VERSION_MAX,
        min_version_level=TRANSACTION_VERSION_MAX,
    ),
)
_SUPPORTED = (SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=TRANSACTION_VERSION_MAX),)


def api_versions(request: ApiVersionsRequest, version: int, caller: Caller, services: Services) -> ApiVersionsResponse:
    asks_for_private = any(tag == PRIVATE_APIS_TAG for tag, _ in request.unknown_tags)
    return ApiVersionsResponse(
        api_keys=services.announced_with_private if asks_for_private else services.announced,
        # Clients of older versions cannot read a feature whose first level is 0.
        supported_features=_SUPPORTED if version >= FEATURES_FROM_ZERO_VERSION_MIN else (),
        # Less than 0 would make Java clients ignore all features.
        finalized_features_epoch=0,
        finalized_features=_FINALIZED,
    )


def announced(keys: Sequence[ApiKey]) -> tuple[ApiVersion, ...]:
    """The announcement of these APIs."""
    return tuple(
        ApiVersion(api_key=key, min_version=APIS[key].first_announced, max_version=APIS[key].versions.last)
        for key in sorted(keys)
    )


def unsupported(announcement: Sequence[ApiVersion]) -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not known."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=announcement)
