"""SCRAM: the exchanges that the RFCs print, and brokers that do not keep to them."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ottla.client.scram import ScramError, ScramExchange


class Printed(NamedTuple):
    """An exchange as it stands in its RFC."""

    mechanism: str
    nonce: str
    first: bytes
    server_first: bytes
    final: bytes
    server_final: bytes


SHA_256 = Printed(
    "SCRAM-SHA-256",
    "rOprNGfwEbeRWgbNEkqO",
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)
"""From RFC 7677; the password is `pencil`."""


def _exchange(printed: Printed = SHA_256, password: str = "pencil") -> ScramExchange:
    return ScramExchange(printed.mechanism, username="user", password=password, nonce=printed.nonce)


def test_the_exchange_of_rfc_7677_comes_out_byte_for_byte() -> None:
    exchange = _exchange()

    assert exchange.first_message() == SHA_256.first
    assert exchange.final_message(SHA_256.server_first) == SHA_256.final
    exchange.finish(SHA_256.server_final)


def test_the_longer_hash_gives_the_longer_proof() -> None:
    # No RFC prints one; these values are what Kafka's own ScramFormatter computes.
    proof = b"0f+lKDiX32Ve21nKVcMKxpi0+uwTE8rRYhHRqa9D15NJ31nAa7vfOdRI0xRbjUTJuj5URw7/cfO0FqXbXz74+g=="
    signature = b"AGdz+jl8c2oDZU9Mr50F2OW7rZGGyUhtYh5SlCUHQcEQZxhc3buVqyDqf83UKzyFDcrw8Okp3JfpxJ9twxXPJQ=="
    exchange = ScramExchange("SCRAM-SHA-512", username="user", password="pencil", nonce="abc")

    final = exchange.final_message(b"r=abcdef,s=QSXCR+Q6sek8bf92,i=4096")

    assert final == b"c=biws,r=abcdef,p=" + proof
    exchange.finish(b"v=" + signature)


def test_a_user_name_with_commas_and_equals_signs_is_escaped() -> None:
    exchange = ScramExchange("SCRAM-SHA-256", username="a=b,c", password="p", nonce="n")

    assert exchange.first_message() == b"n,,n=a=3Db=2Cc,r=n"


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    exchange = _exchange(password="pen")
    exchange.final_message(SHA_256.server_first)

    with pytest.raises(ScramError, match="impostor"):
        exchange.finish(SHA_256.server_final)


@pytest.mark.parametrize("said", [b"v=", b"v=AAAA", b"v=not base64", b"x=1", b"", b"\xff", b"r=1,v=1"])
def test_a_last_message_without_the_broker_s_proof_is_refused(said: bytes) -> None:
    exchange = _exchange()
    exchange.final_message(SHA_256.server_first)

    with pytest.raises(ScramError):
        exchange.finish(said)


def test_what_the_broker_says_is_wrong_is_told() -> None:
    exchange = _exchange()
    exchange.final_message(SHA_256.server_first)

    with pytest.raises(ScramError, match="unknown-user"):
        exchange.finish(b"e=unknown-user")


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=4096", "somebody else"),
        (b"r=other,s=W22Z,i=4096", "somebody else"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4095", "4095 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1000001", "1000001 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=-1", "no number"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=" + b"9" * 5_000, "no number"),
        ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=\u0664\u0660\u0669\u0666".encode(), "no number"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096", "no salt"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z!,i=4096", "base64"),
        (b"m=new,r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4096", "not one of SCRAM"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,i=4096", "not one of SCRAM"),
        (b"", "not one of SCRAM"),
        (b"\xff\xfe", "no text"),
    ],
)
def test_a_challenge_that_cannot_be_trusted_is_refused(challenge: bytes, told: str) -> None:
    with pytest.raises(ScramError, match=told):
        _exchange().final_message(challenge)
