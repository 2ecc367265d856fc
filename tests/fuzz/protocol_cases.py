"""Byte strings that are almost messages, and the one question that is asked about each.

Shared by the test that runs in the suite and by the coverage-guided target. A case is made from its number
alone, so the number replays it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import NamedTuple

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.connection import ServerConnection
from ottla.protocol.headers import UnsupportedRequest
from ottla.protocol.messages import MESSAGES, request_class, response_class
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.schema import Message
from tests.protocol.random_messages import MessageMaker

_INTERESTING = (0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0x81, 0xC3, 0xFE, 0xFF)
_LENGTHS = (
    struct.pack(">i", -1),
    struct.pack(">i", -2),
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", 70_000),
    struct.pack(">h", -1),
    struct.pack(">h", 2**15 - 1),
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x00",
)


def every_version() -> Iterator[tuple[type[Message], int]]:
    """Each message that there is, in each of its versions."""
    messages: list[type[Message]] = [each(key) for key in MESSAGES for each in (request_class, response_class)]
    messages += [ConsumerProtocolAssignment, ConsumerProtocolSubscription]
    for message in messages:
        for version in message.VERSIONS:
            yield message, version


EVERY_VERSION = tuple(every_version())


class Case(NamedTuple):
    """Bytes, and what they are to be read as."""

    message: type[Message]
    version: int
    data: bytes


def case(number: int) -> Case:
    """One case: noise, a message with a few bytes changed, or now and then a whole one."""
    random = Random(number)
    message, version = random.choice(EVERY_VERSION)
    if random.random() < 0.2:
        return Case(message, version, _noise(random))
    whole = MessageMaker(str(number)).make(message, version, with_unknown_tags=random.random() < 0.3)
    data = bytearray(encode_bytes(whole, version))
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 8))):
        _mutate(random, data)
    return Case(message, version, bytes(data))


def _noise(random: Random) -> bytes:
    size = random.choice((0, 1, 2, 5, 20, 100, 400))
    if random.random() < 0.5:
        return random.randbytes(size)
    # Small numbers pass for lengths and counts, so that the noise gets further in.
    return bytes(random.choices((0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF), (8, 6, 4, 2, 1, 1, 1, 1), k=size))


def _mutate(random: Random, data: bytearray) -> None:
    if not data:
        data += random.randbytes(3)
        return
    position = random.randrange(len(data))
    kind = random.randrange(7)
    if kind == 0:
        data[position] ^= 1 << random.randrange(8)
    elif kind == 1:
        data[position] = random.choice(_INTERESTING)
    elif kind == 2:
        del data[position:]
    elif kind == 3:
        del data[position : position + random.randint(1, 8)]
    elif kind == 4:
        data[position:position] = random.randbytes(random.randint(1, 8))
    elif kind == 5:
        length = random.choice(_LENGTHS)
        data[position : position + len(length)] = length
    else:
        data[position:position] = data[position : position + random.randint(1, 40)]


def ask(case: Case) -> str:
    """Read the bytes: a message, which can then be written again, or a ProtocolError. Says which it was."""
    try:
        message = decode(case.message, case.version, case.data)
    except ProtocolError:
        return "refused"
    try:
        again = encode_bytes(message, case.version)
    except ProtocolError as refusal:
        # The one thing that can be read but not written: the same tag twice.
        if "is there twice" not in str(refusal):
            raise
        return "read, not writable"
    decode(case.message, case.version, again)
    return "read"


def ask_connection(data: bytes) -> None:
    """The bytes as the start of a connection: requests, or a ProtocolError."""
    server = ServerConnection(frame_bytes_max=100_000)
    with suppress(ProtocolError, UnsupportedRequest):
        for _ in server.receive(data):
            pass
