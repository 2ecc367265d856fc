"""DescribeDelegationToken (API 41): lists delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bytes, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class DescribeDelegationTokenOwner(Message, frozen=True):
    """Someone whose tokens are wanted."""

    principal_type: String = ""
    principal_name: String = ""


class DescribeDelegationTokenRequest(Message, frozen=True):
    """Whose tokens are wanted; null means everyone's."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_DELEGATION_TOKEN].versions

    owners: Sequence[DescribeDelegationTokenOwner] | None = ()


class DescribedDelegationTokenRenewer(Message, frozen=True):
    """Someone who may renew the token."""

    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Message, frozen=True):
    """One token."""

    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, Since(3)] = ""
    token_requester_principal_name: Annotated[String, Since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: Sequence[DescribedDelegationTokenRenewer] = ()


class DescribeDelegationTokenResponse(Message, frozen=True):
    """The tokens that the caller may see."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_DELEGATION_TOKEN].versions

    error_code: Int16 = 0
    tokens: Sequence[DescribedDelegationToken] = ()
    throttle_time_ms: Int32 = 0
