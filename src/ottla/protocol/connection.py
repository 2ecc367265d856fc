"""One connection without its socket: bytes in, messages out, and the other way round.

`ServerConnection` turns received bytes into requests and gives the bytes of responses in the order of
their requests, whenever those are answered. `ClientConnection` numbers requests and finds the response
that belongs to each. Neither waits, sends or knows what time it is.

Messages that come out may hold views of the bytes that went in (see `frames`): whoever keeps a request
beyond the use of its receive buffer has to copy the records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from struct import Struct
from typing import NamedTuple, Protocol, overload

from msgspec import Struct as Value

from ottla.error_codes import ErrorCode
from ottla.errors import ProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import FRAME_BYTES_MAX, NO_ROOMS, FrameReader, Rooms, frame
from ottla.protocol.headers import (
    RequestHeader,
    UnsupportedRequest,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
    response_header_version,
)
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.readers import ELEMENTS_MAX, Reader, TrailingBytes, reader
from ottla.protocol.schema import Message
from ottla.protocol.wire import Buffer
from ottla.protocol.writers import Writer, writer

CORRELATION_ID_MAX = 2**31 - 1
FRAME_SIZE_MAX = 2**31 - 1
_ERROR_CODE = Struct(">h")
_pack_start = Struct(">ii").pack
_ID_BYTES = 4


@cache
def _request_reader(api_key: ApiKey, version: int) -> Reader[Message]:
    """What reads a request; kept, so that a request costs one look-up."""
    return reader(request_class(api_key), version)


@cache
def _response_writer(api_key: ApiKey, version: int) -> tuple[Writer, bytes]:
    """What writes a response, and what stands between its number and it: the tagged fields of the header."""
    tags = b"\0" if response_header_version(api_key, version) == 1 else b""
    return writer(response_class(api_key), version), tags


class Request(Value, frozen=True, gc=False):
    """A request and its place among those of its connection."""

    header: RequestHeader
    message: Message
    sequence: int
    body: bytes | memoryview = b""
    """All of its bytes, while they stand in the receive buffer."""


class Response(NamedTuple):
    """A response and which request it answers."""

    api_key: ApiKey
    api_version: int
    correlation_id: int
    message: Message


class Held(Value, frozen=True, gc=False):
    """Answers of a shortcut that come later, and their place among those of the connection."""

    promise: object
    """What the shortcut has given in place of them."""
    sequence: int


class Shortcut(Protocol):
    """Answers requests without their being read."""

    position: int
    """Where the first request stands that was not taken."""
    taken: int
    """How many were taken."""
    is_through: bool
    """Whether no other whole request follows those that were taken."""

    def answer(self, data: bytes | memoryview, start: int) -> object:
        """The whole answers to the requests that stand from `start` on, up to the first that it does not take.

        Empty if that is the first of all. None, and nothing has happened, if those that it took have to be read.
        Anything else than bytes is the promise of them.
        """
        ...


class ServerConnection(FrameReader):
    """The broker's side.

    Every request that `receive` gives is answered once, by `respond` or `respond_nothing`; both return what
    may be written now, which is nothing while an earlier request is unanswered. The number of requests in
    flight is bounded only by what is read: a server stops reading when `in_flight` is more than it wants.

    Where to receive, and what is kept of an unfinished request: see `FrameReader`.
    """

    __slots__ = ("_answered", "_next_answer", "_next_request", "in_flight")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX, rooms: Rooms = NO_ROOMS) -> None:
        super().__init__(frame_bytes_max=frame_bytes_max, rooms=rooms)
        self._next_request = 0
        self._next_answer = 0
        self._answered: dict[int, list[Buffer]] = {}
        self.in_flight = 0
        """Requests that came and whose responses have not been handed out."""

    @overload
    def receive(self, data: Buffer) -> Iterator[Request]: ...

    @overload
    def receive(self, data: Buffer, shortcut: Shortcut) -> Iterator[Request | bytes | Held]: ...

    def receive(
        self, data: Buffer, shortcut: Shortcut | None = None
    ) -> Iterator[Request] | Iterator[Request | bytes | Held]:
        """The requests that these bytes complete.

        `shortcut` is offered them first. What it takes it answers together: those bytes are given in place of requests,
        and are to be sent as they are; where it has only promised them, `respond_held` takes them.

        Take them all before `data` is used for something else. Raises UnsupportedRequest, or ProtocolError for
        bytes that are no request; what came before is out by then. After UnsupportedRequest the bytes behind
        it are kept, and another call goes on with them.
        """
        self.feed(data)
        if shortcut is None:
            return self._requests(shortcut)
        answers = shortcut.answer(self._view, 0)
        if not answers:
            return self._requests(shortcut, to_read=1 if answers is not None else shortcut.taken)
        self.position = shortcut.position
        if not shortcut.is_through:
            return self._requests(shortcut, answers)
        # The usual case of a busy producer, without a generator.
        self.release()
        placed = self._place(answers)
        return iter(()) if placed is None else iter((placed,))

    def _requests(
        self, shortcut: Shortcut | None, answers: object = None, *, to_read: int = 0
    ) -> Iterator[Request | bytes | Held]:
        """What has been fed, behind `answers`; the first ones `to_read` are not offered to the shortcut."""
        try:
            while True:
                if answers:
                    placed = self._place(answers)
                    if placed is not None:
                        yield placed
                if shortcut is not None and not to_read:
                    answers = shortcut.answer(self._view, self.position)
                    if answers:
                        self.position = shortcut.position
                        # The next one may be like another that came earlier.
                        continue
                    if answers is None:
                        # Nothing has happened; they are read one by one.
                        to_read = shortcut.taken
                body = self.next_frame()
                if body is None:
                    return
                answers = None
                to_read = max(to_read - 1, 0)
                yield self._request(body)
        finally:
            self.release()

    def _place(self, answers: object) -> bytes | Held | None:
        """What a shortcut gave, as it is to be handed out: now, later, or behind what is unanswered."""
        if not isinstance(answers, bytes):
            return Held(answers, self._take_place())
        if not self.in_flight:
            return answers
        self._answered[self._take_place()] = [answers]
        return None

    def respond_held(self, sequence: int, answers: bytes) -> list[Buffer]:
        """The answers that were promised for that place; returns the buffers that may be written now."""
        return self._answer(sequence, [answers])

    def _request(self, body: bytes | memoryview) -> Request:
        sequence = self._take_place()
        header, start = read_request_header(body)
        try:
            if len(body) > ELEMENTS_MAX:
                message = decode(request_class(header.api_key), header.api_version, body, start=start)
            else:
                message = _request_reader(header.api_key, header.api_version)(body, start)
        except TrailingBytes as error:
            # Kafka does not look, and librdkafka relies on that: it leaves three stray bytes in a Metadata request
            # for all topics.
            message = error.message
        return Request(header, message, sequence, body)

    def _take_place(self) -> int:
        """One more that is to be answered, behind all others."""
        sequence = self._next_request
        self._next_request += 1
        self.in_flight += 1
        return sequence

    def respond(self, request: Request, response: Message) -> list[Buffer]:
        """Answer a request; returns the buffers that may be written now."""
        header = request.header
        write, tags = _response_writer(header.api_key, header.api_version)
        body = write(response)
        start = body[0]
        size = _ID_BYTES + len(tags) + len(start)
        if len(body) > 1:
            size += sum(map(len, body[1:]))
        if size > FRAME_SIZE_MAX:
            raise ProtocolError(f"a frame of {size} bytes")
        body[0] = b"".join((_pack_start(size, header.correlation_id), tags, start))
        if request.sequence == self._next_answer and not self._answered:
            # In turn, with nobody behind it that has an answer already: the usual case.
            self._next_answer += 1
            self.in_flight -= 1
            return body
        return self._answer(request.sequence, body)

    def respond_nothing(self, request: Request) -> list[Buffer]:
        """Settle a request that gets no response (Produce with acks=0)."""
        return self._answer(request.sequence, [])

    def respond_unsupported(self, refused: UnsupportedRequest, response: Message) -> list[Buffer]:
        """Answer an ApiVersions request of an unknown version, in the version that every client can read.

        Must be called before `receive` is called again: only the latest request can have been refused.
        """
        assert refused.api_key == ApiKey.API_VERSIONS, "only ApiVersions is answered in another version"
        header = response_header(refused.correlation_id, header_version=0)
        return self._answer(self._next_request - 1, frame(header, encode(response, 0)))

    def _answer(self, sequence: int, buffers: list[Buffer]) -> list[Buffer]:
        answered, due = self._answered, self._next_answer
        assert due <= sequence < self._next_request, "no such request is waiting"
        if sequence != due:
            assert sequence not in answered, "a request is answered once"
            answered[sequence] = buffers
            return []
        due += 1
        while answered and due in answered:
            buffers += answered.pop(due)
            due += 1
        self._next_answer = due
        self.in_flight = self._next_request - due
        return buffers


class ClientConnection:
    """The client's side. Responses come in the order of the requests; anything else is a ProtocolError."""

    __slots__ = ("_client_id", "_frames", "_next_correlation_id", "_waiting")

    def __init__(self, client_id: str | None = None, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._client_id = client_id
        self._frames = FrameReader(frame_bytes_max=frame_bytes_max)
        self._next_correlation_id = 0
        self._waiting: deque[tuple[int, ApiKey, int]] = deque()

    @property
    def in_flight(self) -> int:
        """Requests whose responses have not come."""
        return len(self._waiting)

    def send(
        self, api_key: ApiKey, api_version: int, request: Message, *, expects_response: bool = True
    ) -> tuple[int, list[Buffer]]:
        """A request's correlation id and the buffers to write.

        Produce with acks=0 gets no response: say so, or the next response will not fit.
        """
        assert type(request) is request_class(api_key), f"{type(request).__name__} is no request of {api_key.name}"
        correlation_id = self._next_correlation_id
        header = request_header(RequestHeader(api_key, api_version, correlation_id, self._client_id))
        buffers = frame(header, encode(request, api_version))
        self._next_correlation_id = 0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1
        if expects_response:
            self._waiting.append((correlation_id, api_key, api_version))
        return correlation_id, buffers

    def receive(self, data: Buffer) -> Iterator[Response]:
        """The responses that these bytes complete; take them all before `data` is used for something else."""
        self._frames.feed(data)
        try:
            while (body := self._frames.next_frame()) is not None:
                yield self._response(body)
        finally:
            self._frames.release()

    def _response(self, body: bytes | memoryview) -> Response:
        if not self._waiting:
            raise ProtocolError("a response came that no request asked for")
        expected, api_key, version = self._waiting[0]
        correlation_id, start = read_response_header(body, header_version=response_header_version(api_key, version))
        if correlation_id != expected:
            raise ProtocolError(f"a response with correlation id {correlation_id} came where {expected} was due")
        self._waiting.popleft()
        if api_key is ApiKey.API_VERSIONS and _refuses_version(body, start):
            version = 0
        message = decode(response_class(api_key), version, body, start=start)
        return Response(api_key, version, correlation_id, message)


def _refuses_version(body: bytes | memoryview, start: int) -> bool:
    """Whether an ApiVersions response says that the broker does not know the version of the request.

    Such a response has version 0, whatever was asked for; the error code comes first in all versions.
    """
    if len(body) - start < _ERROR_CODE.size:
        return False
    return bool(_ERROR_CODE.unpack_from(body, start)[0] == ErrorCode.UNSUPPORTED_VERSION)
