"""What a client raises when it cannot connect safely or is not let in."""

from __future__ import annotations

from ottla.client.errors_by_code import error_class
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError

AuthenticationFailed = error_class(ErrorCode.SASL_AUTHENTICATION_FAILED)
"""The broker does not let this client in, or the client does not believe the broker."""


class UntrustedConnection(OttlaError):
    """The two sides could not agree on a safe connection; trying again changes nothing."""
