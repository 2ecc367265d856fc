"""A broker with a fault, to hand to whoever must find it: `python -m tests.bench.stand_in_broker FAULT DIRECTORY`.

A real server, and before it a relay on another port, which does to Produce what the fault says. Serves a data
directory and prints `ready HOST:PORT`, as a broker must. Knows frames, and nothing else of the protocol.

    none        passes everything on
    slow        passes a request on after a while
    forgetful   writes the first request, then acknowledges what it throws away, with the right offsets
    mistaken    answers with the offset of the first request every time
    closing     ends the connection after the first answer
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence

import uvloop

from ottla.broker.caller import Address
from ottla.config import Settings
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.server.lifecycle import serve

DELAY_S = 0.2
PRODUCE = b"\0\0"
_SIZE_BYTES = 4
_OFFSET_FROM_END = 8 + 8 + 8 + 4 + 5
"""Behind the offset: time, log start, no errors, and what a response ends with."""

Send = Callable[[bytes], None]


class Faults:
    """What becomes of a Produce request; `forward` passes it on, `reply` answers it."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self._answer: bytes | None = None
        self._acknowledged = 0

    def request(self, frame: bytes, forward: Send, reply: Send) -> None:
        """A whole request came from a client."""
        is_produce = frame[_SIZE_BYTES : _SIZE_BYTES + 2] == PRODUCE
        if is_produce and self.fault == "slow":
            asyncio.get_running_loop().call_later(DELAY_S, forward, frame)
        elif is_produce and self._answer is not None and self.fault in ("forgetful", "mistaken"):
            self._acknowledged += self.fault == "forgetful"
            at = len(self._answer) - _OFFSET_FROM_END
            reply(self._answer[:at] + self._acknowledged.to_bytes(8, "big") + self._answer[at + 8 :])
        else:
            forward(frame)

    def answer(self, frame: bytes, *, is_produce: bool) -> None:
        """A whole answer came from the server."""
        if is_produce and self._answer is None:
            self._answer = frame


async def relay(faults: Faults, server: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection of a client, and one to the server for it."""
    from_server, to_server = await asyncio.open_connection(server.host, server.port)
    passed_on: list[bool] = []

    def forward(frame: bytes) -> None:
        passed_on.append(frame[_SIZE_BYTES : _SIZE_BYTES + 2] == PRODUCE)
        to_server.write(frame)

    async def answers() -> None:
        while True:
            frame = await _frame(from_server)
            is_produce = passed_on.pop(0)
            faults.answer(frame, is_produce=is_produce)
            writer.write(frame)
            if is_produce and faults.fault == "closing":
                writer.close()

    async def requests() -> None:
        while True:
            faults.request(await _frame(reader), forward, writer.write)

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(answers())
            tasks.create_task(requests())
    except* (asyncio.IncompleteReadError, ConnectionError):
        # One of the two has hung up.
        to_server.close()
        writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_SIZE_BYTES)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


async def main(fault: str, directory: str) -> None:
    """Serve until it is ended."""
    settings = Settings.resolve(BROKER_CONFIGS, flags={"listeners": "127.0.0.1:0", "log.dir": directory})
    faults = Faults(fault)
    listening: asyncio.Future[Sequence[Address]] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(settings, listening.set_result))
        server = (await listening)[0]
        front = await asyncio.start_server(lambda reader, writer: relay(faults, server, reader, writer), "127.0.0.1", 0)
        host, port = front.sockets[0].getsockname()[:2]
        print(f"ready {host}:{port}", flush=True)
        await front.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
