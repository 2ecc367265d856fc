"""AlterUserScramCredentials (API 51): sets and removes SCRAM credentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bytes, Int8, Int16, Int32, Message, String
from ottla.protocol.versions import Versions


class ScramCredentialDeletion(Message, frozen=True):
    """A credential to remove."""

    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Message, frozen=True):
    """A credential to set."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Message, frozen=True):
    """The credentials to remove and those to set."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_USER_SCRAM_CREDENTIALS].versions

    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()


class AlterUserScramCredentialsResult(Message, frozen=True):
    """Whether one user was changed."""

    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(Message, frozen=True):
    """Whether each user was changed."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.ALTER_USER_SCRAM_CREDENTIALS].versions

    throttle_time_ms: Int32 = 0
    results: Sequence[AlterUserScramCredentialsResult] = ()
