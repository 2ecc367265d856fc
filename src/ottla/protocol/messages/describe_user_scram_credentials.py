"""DescribeUserScramCredentials (API 50): lists which SCRAM credentials users have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class UserName(Message, frozen=True):
    """A user to tell about."""

    name: String = ""


class DescribeUserScramCredentialsRequest(Message, frozen=True):
    """The users; null means all of them."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS].versions

    users: Sequence[UserName] | None = ()


class CredentialInfo(Message, frozen=True):
    """One credential, without its secret."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Message, frozen=True):
    """The credentials of one user."""

    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: Sequence[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(Message, frozen=True):
    """The mechanisms and iterations of each user, never the secrets."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS].versions

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: Sequence[DescribeUserScramCredentialsResult] = ()
