"""The client's half of a SCRAM exchange (RFC 5802, RFC 7677) without I/O: both sides prove that they know the password.

User name and password are used as the UTF-8 that they are: Kafka's own tools store credentials that way, without
the preparation that the RFC asks for, so a prepared password would be a wrong one there. Channel binding is not
offered, because no broker has it.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode

ITERATIONS_MIN = 4096
"""Below this a stolen exchange gives the password away; Kafka's least, and the RFC's."""
ITERATIONS_MAX = 1_000_000
"""Kafka stops at 16,384. A broker that asks for more than this wants to keep us busy."""
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_CHANNEL_BINDING = "n,,"


class ScramError(Exception):
    """The other side does not keep to the exchange, or does not know the password."""


class ScramExchange:
    """One login. Each method is called once, in the order in which they stand here."""

    __slots__ = ("_first", "_hash_name", "_nonce", "_password", "_server_signature")

    def __init__(self, mechanism: str, *, username: str, password: str, nonce: str) -> None:
        assert nonce, "without a nonce an old exchange could be played again"
        self._hash_name = _HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._first = f"n={_escaped(username)},r={nonce}"
        self._server_signature = b""

    def first_message(self) -> bytes:
        """Who we are."""
        return (_NO_CHANNEL_BINDING + self._first).encode()

    def final_message(self, server_first: bytes) -> bytes:
        """The proof that we know the password, bound to what both sides have said."""
        text = _text(server_first)
        nonce, salt, iterations = self._challenge(text)
        salted = hashlib.pbkdf2_hmac(self._hash_name, self._password, salt, iterations)
        client_key = self._keyed(salted, b"Client Key")
        without_proof = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        said = f"{self._first},{text},{without_proof}".encode()
        signature = self._keyed(hashlib.new(self._hash_name, client_key).digest(), said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._keyed(self._keyed(salted, b"Server Key"), said)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check that the broker knows the password too; one that does not may be anybody."""
        attributes = _attributes(_text(server_final))
        if attributes[0][0] == "e":
            raise ScramError(f"the broker says {attributes[0][1][:100]!r}")
        if attributes[0][0] != "v" or not hmac.compare_digest(_bytes(attributes[0][1]), self._server_signature):
            raise ScramError("the broker could not prove that it knows the password: it may be an impostor")

    def _keyed(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)

    def _challenge(self, text: str) -> tuple[str, bytes, int]:
        attributes = _attributes(text)
        if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
            # Also where it starts with `m`: an extension that we would have to understand.
            raise ScramError("the broker's challenge is not one of SCRAM")
        nonce, salt, iterations = (value for _, value in attributes[:3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the broker's challenge answers somebody else's first message")
        if not (iterations.isascii() and iterations.isdecimal() and len(iterations) <= 10):
            raise ScramError("the broker's number of iterations is no number")
        if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise ScramError(
                f"the broker asks for {int(iterations)} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        decoded = _bytes(salt)
        if not decoded:
            raise ScramError("the broker's challenge has no salt")
        return nonce, decoded, int(iterations)


def _escaped(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    try:
        return bytes(message).decode()
    except UnicodeDecodeError as e:
        raise ScramError("the broker's message is no text") from e


def _attributes(text: str) -> list[tuple[str, str]]:
    """`r=...,s=...` as pairs, in order."""
    parts = [part.partition("=") for part in text.split(",")]
    if not all(len(name) == 1 and equals for name, equals, _ in parts):
        raise ScramError("the broker's message is not one of SCRAM")
    return [(name, value) for name, _, value in parts]


def _bytes(encoded: str) -> bytes:
    try:
        return b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ScramError("the broker's message is not base64 where it should be") from e
