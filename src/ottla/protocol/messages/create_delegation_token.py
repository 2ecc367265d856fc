"""CreateDelegationToken (API 38): makes a token with which others may log in as the owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bytes, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class CreatableRenewers(Message, frozen=True):
    """Someone who may renew the token."""

    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(Message, frozen=True):
    """Who may renew the token, and how long it may live."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_DELEGATION_TOKEN].versions

    owner_principal_type: Annotated[String | None, Since(3)] = ""
    owner_principal_name: Annotated[String | None, Since(3)] = ""
    renewers: Sequence[CreatableRenewers] = ()
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message, frozen=True):
    """The token and its secret."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.CREATE_DELEGATION_TOKEN].versions

    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, Since(3)] = ""
    token_requester_principal_name: Annotated[String, Since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
