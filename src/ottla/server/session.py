"""One connection: bytes in, requests to the broker, responses out in order.

There is no task per request. All connections share one receive buffer: a request is served while its bytes
stand there. The beginning of an unfinished one is copied by the frame reader into a room that is lent to it, and
the rest is received behind that.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from ottla.broker.caller import Address, Caller
from ottla.broker.pending import Pending
from ottla.broker.plain_produce import is_refused, plain_partitions
from ottla.errors import ProtocolError, RefusedUnanswered
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.connection import Held, Request, ServerConnection
from ottla.protocol.headers import UnsupportedRequest
from ottla.protocol.messages.produce import ProduceRequest, ProduceResponse
from ottla.protocol.schema import Message
from ottla.protocol.wire import Buffer
from ottla.server.durable import DurableAnswers
from ottla.server.gathering import Gathering
from ottla.server.outbox import Outbox, Part
from ottla.server.repeats import Repeats

if TYPE_CHECKING:
    from ottla.server.listener import Listener

IN_FLIGHT_MAX = 256
"""Requests of one connection that may be unanswered; beyond that it is not read."""
OUT_PARTS_MAX = 256
"""Answers, or parts of them, that are made before they are sent."""
WRITE_BYTES_MAX = 256 << 10
"""What the transport may hold unsent; beyond that nothing is read from files for it until it is empty again."""

_TAKEN = Message()
_logger = logging.getLogger(__name__)


class Session(asyncio.BufferedProtocol):
    """The protocol object of one connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._broker = listener.broker
        self._receive_buffer = listener.receive_buffer
        frame_bytes_max = listener.limits.request_bytes_max
        self._connection = ServerConnection(frame_bytes_max=frame_bytes_max, rooms=listener.rooms)
        services = listener.broker.services
        self._repeats = Repeats(services.deadlines, services.clock, frame_bytes_max=frame_bytes_max)
        self._pending: set[Pending | DurableAnswers] = set()
        self._out: list[Part] = []
        self._received = 0
        self._settled = 0
        self._last_bytes = 0
        """What came last at once: much from a bulk producer, little from anybody else."""
        self._kept_bytes = 0
        """Those of an unfinished request, as the listener knows it."""
        self._is_in_room = False
        """Whether bytes are received behind those of an unfinished request."""
        self._is_reading = True
        self._is_stopping = False
        self._has_requests = False
        self._closing = False
        self._was_active = True
        """Since it was last looked for those who are silent."""
        self._active_ms = 0

    # --- what the transport calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by contract, not by class.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_BYTES_MAX, low=0)
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        local = transport.get_extra_info("sockname") or ("unknown", 0)
        self._peer = f"{peer[0]}:{peer[1]}"
        self._caller = Caller(
            self._listener.advertised or Address(local[0], local[1]), host=str(peer[0]), takes_ranges=True
        )
        self._gathering = Gathering(transport.get_extra_info("socket"), self._listener.loop)
        self._outbox = Outbox(transport, self._listener.reads, self.close, self._balance)
        refusal = self._listener.admit(self)
        if refusal is not None:
            self.close(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._kept_bytes:
            room = self._connection.room()
            if room is not None:
                self._is_in_room = True
                return room
        self._is_in_room = False
        return self._receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        self._last_bytes = nbytes
        if self._closing:
            return
        if self._is_in_room:
            self._connection.received(nbytes)
            self._go_on(b"")
        else:
            self._go_on(self._receive_buffer[:nbytes])

    def _go_on(self, data: Buffer) -> None:
        """Serve what these bytes complete, as far as the client takes its answers."""
        more: Buffer | None = data
        while more is not None and not self._closing:
            more = self._take(more)
            spread = self._repeats.spread
            if spread.request_bytes:
                # Before the answers go out: whatever comes until then was not waited for.
                self._gathering.note(spread.request_bytes, count=spread.under_way, received=self._received)
                spread.request_bytes = 0
            self._flush()
            if more is not None and not self._outbox.is_idle:
                self._has_requests = True
                break
        self._balance()

    def _take(self, data: Buffer) -> Buffer | None:
        """Serve requests; returns what to go on with when there may be more that came already."""
        try:
            for request in self._connection.receive(data, self._repeats):
                if type(request) is bytes:
                    self._out.append(request)
                elif type(request) is Held:
                    self._hold(request)
                else:
                    self._serve(request)  # type: ignore[arg-type]
                if len(self._out) >= OUT_PARTS_MAX:
                    # A megabyte of small requests can ask for gigabytes: the rest is kept, and waits for its turn.
                    return b""
        except UnsupportedRequest as error:
            if error.api_key == ApiKey.API_VERSIONS:
                self._out += self._connection.respond_unsupported(error, self._broker.refuse_version())
                # The connection has kept what came behind the refused request.
                return b""
            self.close(str(error))
        except RefusedUnanswered as error:
            self.close(str(error))
        except ProtocolError as error:
            self.close(f"not a request: {error}")
        return None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._balance()

    def resume_writing(self) -> None:
        self._was_active = True
        self._outbox.resume()
        self._balance()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._gathering.end()
        self._outbox.drop()
        for pending in tuple(self._pending):
            pending.cancel()
        self._pending.clear()
        self._connection.forget()
        self._listener.forget(self)

    # --- serving -------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> None:
        client_id = request.header.client_id
        if client_id != self._caller.client_id:
            self._caller = self._caller._replace(client_id=client_id)
        response = self._broker.submit(request.header, request.message, self._caller)
        if response is None:
            self._out += self._connection.respond_nothing(request)
        elif type(response) is Pending:
            self._pending.add(response)
            # What waits holds the request's place only: its records are in the log, and their buffer is not ours.
            waiting = Request(request.header, _TAKEN, request.sequence)
            response.then(partial(self._complete, waiting, response))
        else:
            self._out += self._connection.respond(request, response)  # type: ignore[arg-type]
        if type(request.message) is ProduceRequest and response is not None:
            self._learn(request, request.message, response)

    def _learn(self, request: Request, message: ProduceRequest, response: Message | Pending) -> None:
        """Remember a request whose like may come again, unless all of it was refused."""
        partitions = plain_partitions(message, self._broker.services.partitions)
        if not partitions:
            return
        if len(partitions) == 1 and isinstance(response, ProduceResponse) and is_refused(response):
            return
        self._repeats.learn(request.body, message, partitions)

    def _hold(self, held: Held) -> None:
        """Send answers when they are there."""
        promise = cast(DurableAnswers, held.promise)
        self._pending.add(promise)
        promise.then(partial(self._complete_held, held.sequence, promise))

    def _complete_held(self, sequence: int, promise: DurableAnswers, answers: bytes) -> None:
        self._pending.discard(promise)
        if not self._closing:
            self._out += self._connection.respond_held(sequence, answers)
            self._listener.flush_soon(self)

    def _complete(self, request: Request, pending: Pending, response: Message) -> None:
        """An answer that came later; nobody is there to take it once the connection is lost."""
        self._pending.discard(pending)
        if self._closing:
            return
        self._out += self._connection.respond(request, response)
        self._listener.flush_soon(self)

    def flush(self) -> None:
        """Send what has been answered, and read on if that made room."""
        self._flush()
        self._balance()

    def _flush(self) -> None:
        if self._out and not self._closing:
            out, self._out = self._out, []
            self._outbox.send(out)
        self._was_active = True

    # --- limits --------------------------------------------------------------------------------------

    def _balance(self) -> None:
        """Read while there is room for what comes, and stop while there is not."""
        if self._closing:
            return
        is_idle, connection, listener = self._outbox.is_idle, self._connection, self._listener
        if self._has_requests and is_idle:
            self._has_requests = False
            self._go_on(b"")
            return
        kept_bytes, in_flight = connection.bytes_kept, connection.in_flight
        if kept_bytes != self._kept_bytes:
            self._kept_bytes = kept_bytes
            listener.note_kept(self, kept_bytes)
        if not in_flight:
            self._settled = self._received
        should_read = (
            is_idle
            and not self._is_stopping
            and (not in_flight or self._takes_more(in_flight))
            and not listener.must_wait(self, kept_bytes, last_bytes=self._last_bytes)
        )
        if should_read != self._is_reading:
            self._is_reading = should_read
            if should_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _takes_more(self, in_flight: int) -> bool:
        """Whether the limits of one connection allow for another request."""
        unanswered = self._received - self._settled
        return in_flight < IN_FLIGHT_MAX and unanswered < self._listener.limits.in_flight_bytes_per_connection

    def look_again(self) -> None:
        """What all connections share has room again."""
        self._balance()

    def is_silent(self, *, since_ms: int, now_ms: int) -> bool:
        """Whether nothing came or went since then, as far as those know who look now and then, and we owe nothing."""
        if self._was_active:
            self._was_active, self._active_ms = False, now_ms
        return self._active_ms < since_ms and not self.is_waited_for

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for us, and not we for the client to send or to read."""
        return self._connection.in_flight > 0 and self._outbox.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether nothing is unanswered or unsent."""
        return not self._connection.in_flight and self._outbox.is_idle

    def stop_reading(self) -> None:
        """Take no more requests; those that came are still answered."""
        self._is_stopping = True
        self._balance()
        for pending in tuple(self._pending):
            pending.hurry()

    def expire(self) -> None:
        """End the connection of a client that has been silent for too long."""
        if self.is_idle and not self._transport.get_write_buffer_size():
            self.close()
            return
        # An orderly end would wait until the client has read what is there for it.
        self.close("the client does not read its answers")
        self._transport.abort()

    def close(self, reason: str | None = None) -> None:
        """End the connection; what has been answered is still sent, unless the client does not take it."""
        if not self._closing:
            if self._outbox.is_idle:
                self._flush()
            self._closing = True
            if reason is not None:
                _logger.warning("connection from %s closed: %s", self._peer, reason)
            self._transport.close()
