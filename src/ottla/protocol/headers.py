"""What stands before a message: the headers of requests and responses.

A request's header says which API and version its message is, so it is read first; a flexible version
has a header with tagged fields, in both directions. One exception: the response to ApiVersions never has
them, because a client must be able to read it before it knows what the broker speaks.

Header version 0 of requests belonged to an API that no longer exists and is not here. Tagged fields in
headers mean nothing to us so far: they are skipped, and none are written.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from struct import error as struct_error

from msgspec import Struct as Value

from ottla.errors import ProtocolError
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.messages import MESSAGES
from ottla.protocol.wire import Buffer, read_unknown_tags

_REQUEST_START = Struct(">hhih")
_REQUEST_START_BYTES = _REQUEST_START.size
_read_request_start = _REQUEST_START.unpack_from
_RESPONSE_START = Struct(">i")


class UnsupportedRequest(ProtocolError):
    """A request of an API or a version that has no message class here.

    It is raised before its message is looked at. A server closes the connection, except for ApiVersions,
    which it can answer with a response of version 0.
    """

    def __init__(self, *, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} version {api_version} is not known (correlation id {correlation_id})")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class RequestHeader(Value, frozen=True, gc=False):
    """Which request this is and who sent it."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None


@cache
def request_header_version(api_key: ApiKey, api_version: int) -> int:
    """2 for flexible versions, else 1."""
    return 2 if APIS[api_key].versions.flexible(api_version) else 1


@cache
def response_header_version(api_key: ApiKey, api_version: int) -> int:
    """1 for flexible versions, else 0; always 0 for ApiVersions."""
    if api_key is ApiKey.API_VERSIONS:
        return 0
    return 1 if APIS[api_key].versions.flexible(api_version) else 0


_KNOWN = {
    (int(key), version): (key, request_header_version(key, version) == 2)
    for key in MESSAGES
    for version in APIS[key].versions
}
"""Every API and version that has message classes, and whether its header has tagged fields."""


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and where its message starts."""
    try:
        key, version, correlation_id, length = _read_request_start(frame)
        known = _KNOWN.get((key, version))
        if known is None:
            raise UnsupportedRequest(api_key=key, api_version=version, correlation_id=correlation_id)
        api_key, has_tags = known
        position = _REQUEST_START_BYTES
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_REQUEST_START_BYTES:position], "utf-8")
        elif length != -1:
            raise ProtocolError(f"a client id of length {length}")
        if has_tags:
            if frame[position]:
                position = _skip_tags(frame, position)
            else:
                position += 1
    except (struct_error, IndexError, UnicodeDecodeError) as cause:
        raise ProtocolError(f"a request's header: {cause}") from cause
    return RequestHeader(api_key, version, correlation_id, client_id), position


def request_header(header: RequestHeader) -> bytes:
    """The bytes of a request's header."""
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    tags = b"\0" if request_header_version(header.api_key, header.api_version) == 2 else b""
    try:
        start = _REQUEST_START.pack(header.api_key, header.api_version, header.correlation_id, length)
    except struct_error as cause:
        raise ProtocolError(f"a request's header: {cause}") from cause
    return start + client_id + tags


def read_response_header(frame: Buffer, *, header_version: int) -> tuple[int, int]:
    """The correlation id of a response, and where its message starts."""
    try:
        (correlation_id,) = _RESPONSE_START.unpack_from(frame)
        position = _RESPONSE_START.size
        if header_version == 1:
            position = _skip_tags(frame, position)
    except (struct_error, IndexError) as cause:
        raise ProtocolError(f"a response's header: {cause}") from cause
    return correlation_id, position


def response_header(correlation_id: int, *, header_version: int) -> bytes:
    """The bytes of a response's header."""
    return _RESPONSE_START.pack(correlation_id) + (b"\0" if header_version == 1 else b"")


def _skip_tags(frame: Buffer, position: int) -> int:
    count = frame[position]
    if count == 0:
        return position + 1
    return read_unknown_tags(frame, position + 1, count)[1]
