"""What a user may set about safe connections and logins, with checks. Knows nothing of how either is done.

Passwords, keys and tokens stand in no `repr` and in no message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ottla.client.errors import InvalidSetting

if TYPE_CHECKING:
    # Only for its name: a client of a plain broker does not load it.
    from ssl import SSLContext

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_TLS_ONLY = (
    "ssl_ca_location",
    "ssl_ca_pem",
    "ssl_certificate_location",
    "ssl_key_location",
    "ssl_certificate_pem",
    "ssl_key_pem",
    "ssl_key_password",
    "ssl_context",
)
_SASL_ONLY = ("sasl_mechanism", "sasl_username", "sasl_password", "sasl_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """How a connection is made safe, and how the client says who it is."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_ca_location: str | None = None
    """A file of certificates, or a directory of them; without it and `ssl_ca_pem`, those that the system trusts."""
    ssl_ca_pem: str | None = field(default=None, repr=False)
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    """Not needed where the key stands in the certificate's file."""
    ssl_certificate_pem: str | None = field(default=None, repr=False)
    ssl_key_pem: str | None = field(default=None, repr=False)
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    ssl_context: SSLContext | None = None
    """Takes the place of all other `ssl_` settings."""
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_token: str | Callable[[], str] | None = field(default=None, repr=False)
    """A token, or what gives one; it is called for every login."""

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def check_security(self) -> None:
        """Refuse what cannot be, and what would have no effect: a password that is not used is a mistake."""
        if self.security_protocol not in PROTOCOLS:
            raise InvalidSetting(f"security_protocol={self.security_protocol!r}: is one of {list(PROTOCOLS)}")
        self._check_tls()
        self._check_sasl()

    def _check_tls(self) -> None:
        given = [name for name in _TLS_ONLY if getattr(self, name) is not None]
        if not self.uses_tls:
            if given or not self.ssl_check_hostname:
                name = given[0] if given else "ssl_check_hostname"
                raise InvalidSetting(f'{name}: needs security_protocol="SSL" or "SASL_SSL"')
            return
        if self.ssl_context is not None and (len(given) > 1 or not self.ssl_check_hostname):
            raise InvalidSetting("ssl_context: takes the place of all other ssl_ settings; give either it or them")
        for first, second in (
            ("ssl_ca_location", "ssl_ca_pem"),
            ("ssl_certificate_location", "ssl_certificate_pem"),
            ("ssl_key_location", "ssl_key_pem"),
        ):
            if first in given and second in given:
                raise InvalidSetting(f"{first}: give either it or {second}")
        has_certificate = "ssl_certificate_location" in given or "ssl_certificate_pem" in given
        for name in ("ssl_key_location", "ssl_key_pem", "ssl_key_password"):
            if name in given and not has_certificate:
                raise InvalidSetting(f"{name}: needs the certificate too (ssl_certificate_location)")

    def _check_sasl(self) -> None:
        given = [name for name in _SASL_ONLY if getattr(self, name) is not None]
        if not self.uses_sasl:
            if given:
                raise InvalidSetting(f'{given[0]}: needs security_protocol="SASL_SSL" (or "SASL_PLAINTEXT")')
            return
        mechanism = self.sasl_mechanism
        if mechanism not in MECHANISMS:
            raise InvalidSetting(f"sasl_mechanism={mechanism!r}: is one of {list(MECHANISMS)}")
        needed = ("sasl_token",) if mechanism == "OAUTHBEARER" else ("sasl_username", "sasl_password")
        for name in needed:
            if not getattr(self, name):
                raise InvalidSetting(f"{name}: {mechanism} needs it")
        for name in given:
            if name != "sasl_mechanism" and name not in needed:
                raise InvalidSetting(f"{name}: {mechanism} has no use for it; it takes {' and '.join(needed)}")
        for name in ("sasl_username", "sasl_password"):
            _check_text(name, getattr(self, name))
        if isinstance(self.sasl_token, str):
            check_token(self.sasl_token)


def _check_text(name: str, text: str | None) -> None:
    """What no mechanism can carry: NUL separates the parts of PLAIN, and half characters are no text at all."""
    if text is not None and any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidSetting(f"{name}: holds a character that cannot be sent")


def check_token(token: str) -> None:
    """A token stands in a header of visible ASCII characters, so that nothing else can be slipped into it."""
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise InvalidSetting("sasl_token: must be one or more visible ASCII characters")
