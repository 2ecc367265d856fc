"""Messages to bytes and back.

The door to the compiled readers and writers, for whoever has a class and a version in hand. Knows no
headers and no frames.
"""

from __future__ import annotations

from typing import TypeVar

from ottla.protocol.readers import ELEMENTS_MAX, compiled, compiled_counting
from ottla.protocol.schema import Message
from ottla.protocol.wire import Buffer
from ottla.protocol.writers import writer

M = TypeVar("M", bound=Message)


def decode(message: type[M], version: int, buffer: Buffer, *, start: int = 0) -> M:
    """The message that stands in `buffer` from `start` to the end.

    Record batches in it are views of `buffer`; everything else is copied. Raises ProtocolError if the bytes
    are not exactly one message of this version, or if there is no such version.
    """
    read = compiled if len(buffer) <= ELEMENTS_MAX else compiled_counting
    decoded: M = read(message, version)(buffer, start)
    return decoded


def encode(message: Message, version: int) -> list[Buffer]:
    """The bytes of a message, to be written one after the other; larger record batches are passed through.

    Raises ProtocolError for a value that this version cannot carry, or if there is no such version.
    """
    return writer(type(message), version)(message)


def encode_bytes(message: Message, version: int) -> bytes:
    """As `encode`, in one piece."""
    return b"".join(encode(message, version))
