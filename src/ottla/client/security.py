"""What every new connection of a client goes through before it is used: TLS, a login, both, or neither.

Also tells connections that end too early apart by what is likely wrong with the settings. Does no I/O on
connections itself; the transports do. What only some clients need is loaded by those: TLS and logins take their time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.client.errors import NetworkException, Unreachable
from ottla.client.security_errors import UntrustedConnection
from ottla.client.security_settings import SecuritySettings
from ottla.client.settings import Address
from ottla.errors import OttlaError
from ottla.protocol.wire import Buffer

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.client.sasl import LoginSteps

TLS_ALERT = b"\x15\x03"
"""How a TLS broker's answer to plain bytes begins."""
TURNED_AWAY_MAX = 3
"""Connections in a row that end in the same way; then waiting for better times makes no sense."""
SESSION_SHARE = 0.85
"""The part of a login's time after which a new connection is better: the broker cuts it off at the end."""


def _new_nonce() -> str:
    from secrets import token_urlsafe

    return token_urlsafe()


class Security:
    """One client's way to safe connections."""

    __slots__ = ("_context", "_new_nonce", "_turned_away", "settings")

    def __init__(self, settings: SecuritySettings, new_nonce: Callable[[], str] = _new_nonce) -> None:
        self.settings = settings
        self._new_nonce = new_nonce
        self._context: SSLContext | None = None
        self._turned_away = 0
        """Connections in a row that ended at the first real question."""

    @property
    def uses_tls(self) -> bool:
        return self.settings.uses_tls

    @property
    def uses_sasl(self) -> bool:
        return self.settings.uses_sasl

    def context(self) -> SSLContext:
        """What to make connections safe with; made at the first of them and kept."""
        if self._context is None:
            from ottla.client.tls import tls_context

            self._context = tls_context(self.settings)
        return self._context

    @property
    def may_wait_for_token(self) -> bool:
        """Whether `token` calls a function of the user's, which may take its time."""
        return callable(self.settings.sasl_token)

    def token(self) -> str:
        """What OAUTHBEARER logs in with; nothing for the other mechanisms."""
        if self.settings.sasl_mechanism != "OAUTHBEARER":
            return ""
        from ottla.client.sasl import token_of

        return token_of(self.settings)

    def login(self, address: Address, token: str) -> LoginSteps:
        """The steps of one login."""
        from ottla.client.sasl import login, mechanism_of

        return login(address, self.settings, mechanism_of(self.settings, token, self._new_nonce))

    # --- what went wrong -----------------------------------------------------------------------------

    def is_waiting(self, error: OSError) -> bool:
        """Whether an error of a read only says that nothing has come."""
        if not self.uses_tls:
            return isinstance(error, BlockingIOError)
        from ssl import SSLWantReadError

        return isinstance(error, SSLWantReadError)

    def admitted(self) -> None:
        """A real question was answered: what ends from now on does not end for want of a login."""
        self._turned_away = 0

    def connecting_failed(self, address: Address, error: OSError) -> OttlaError:
        """Why no connection came about."""
        self._turned_away = 0
        if self.uses_tls:
            from ottla.client.tls import connecting_failed

            return connecting_failed(address, error)
        return Unreachable(f"no connection to {address}: {error}")

    def lost(
        self, address: Address, error: Exception | None, *, has_heard: bool = True, has_answered: bool = True
    ) -> OttlaError:
        """Why a connection ended over which something was asked.

        `has_heard`: anything at all; `has_answered`: more than the question for versions, which is free to everybody.
        """
        if isinstance(error, OSError) and self.uses_tls and not has_answered:
            from ottla.client.tls import refusal

            refused = refusal(address, error)
            if refused is not None:
                return refused
        why = f"the connection broke: {error}" if error is not None else "the broker closed the connection"
        text = f"{address}: {why}{'' if has_answered else self._likely_mistake()}"
        if error is None and has_heard and not (has_answered or self.uses_sasl):
            # Once it may be a broker that goes away; a broker that wants a login does it every time.
            self._turned_away += 1
            if self._turned_away >= TURNED_AWAY_MAX:
                return UntrustedConnection(text)
        return NetworkException(text)

    def _likely_mistake(self) -> str:
        if self.uses_sasl:
            return ""
        if not self.uses_tls:
            return "; if its listener wants TLS or a login, set security_protocol (SSL, SASL_SSL or SASL_PLAINTEXT)"
        if self.settings.ssl_certificate_location is None and self.settings.ssl_certificate_pem is None:
            return (
                "; if its listener wants a login, set security_protocol to SASL_SSL, if it wants a certificate, "
                "ssl_certificate_location"
            )
        return "; if its listener wants a login, set security_protocol to SASL_SSL"

    def check_first_bytes(self, address: Address, data: Buffer) -> None:
        """Find out that a broker answers in TLS where plain bytes were sent."""
        if not self.uses_tls and bytes(data[: len(TLS_ALERT)]) == TLS_ALERT:
            wanted = "SASL_SSL" if self.uses_sasl else "SSL (or SASL_SSL)"
            raise UntrustedConnection(f"{address}: the broker speaks TLS here: set security_protocol to {wanted}")


def session_end_ms(*, now_ms: int, lifetime_ms: int) -> int | None:
    """From when on a connection whose login holds for so long is better replaced; None for never."""
    return now_ms + int(lifetime_ms * SESSION_SHARE) if lifetime_ms > 0 else None
