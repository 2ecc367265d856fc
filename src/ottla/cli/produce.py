"""`ottla produce`: lines of standard input, or of a file, as records."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, connected
from ottla.cli.failures import MISUSED, CommandFailed, explained
from ottla.cli.output import write_bytes
from ottla.cli.progress import Advance, progress
from ottla.cli.record_text import Headers, InputRecord, from_json, from_line, unescaped
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.blocking.producer import Producer
    from ottla.client.values import RecordPosition

EXAMPLES = """\b
Examples:
  echo hello | ottla produce greetings
  ottla produce orders --key-separator : --file orders.txt --compression zstd
  ottla produce orders --key order-7 --whole --file order.pdf --header type=application/pdf --json
  ottla consume orders --json | ottla produce copy --input json
  ottla produce orders --file orders.txt --transactional-id import-orders
"""

LINE_BYTES_MAX = 64 << 20
"""A line above this is no record; it would be held in memory whole."""
PENDING_MAX = 20_000
"""How many records may be under way before the oldest is waited for."""
DELIVERY_S = 120.0


class Acks(StrEnum):
    """When a record counts as written."""

    ALL = "all"
    ONE = "1"
    NONE = "0"


class Codec(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class InputForm(StrEnum):
    """What a line of the input is."""

    TEXT = "text"
    JSON = "json"


Parse = Callable[[bytes], InputRecord]
_ACKS: dict[Acks, Literal["all", 0, 1]] = {Acks.ALL: "all", Acks.ONE: 1, Acks.NONE: 0}


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)],
    key: Annotated[str | None, typer.Option("--key", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help=r"Each line is a key, this, a value; \t is a tab."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Write to this partition.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header of every record; repeatable.")
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="all: safe on disk; 1: written; 0: do not ask.")] = Acks.ALL,
    compression: Annotated[Codec, typer.Option("--compression", help="How batches are compressed.")] = Codec.NONE,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Read this instead of standard input.")
    ] = None,
    form: Annotated[
        InputForm, typer.Option("--input", help="text: a line is a value; json: a line is what consume --json prints.")
    ] = InputForm.TEXT,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="With --input json: write to the partition that it names.")
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one record, not one per line.")] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.001, metavar="SECONDS", help="How long a record may take to be acknowledged."),
    ] = DELIVERY_S,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="Write all of it or nothing, in one transaction of this id. It has to be done within a minute.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print where each record is, a line of JSON each.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records: each line of the input is one, without the line's end.

    Ends with 0 when every record was acknowledged. At the first that fails it stops reading, says which one it
    was and how many were written, and ends with 1.
    """
    parse = _parser(key, key_separator, form, whole=whole, keep_partitions=keep_partitions)
    headers = tuple(_header(text) for text in header or ())
    with ExitStack() as stack:
        stream, size = (sys.stdin.buffer, None) if file is None else _opened(stack, file)
        advance = stack.enter_context(progress(f"to {topic}", total=size, is_bytes=True))
        lines = _whole(stream, advance) if whole else _lines(stream, advance)
        client = stack.enter_context(connected(bootstrap))
        chosen = client.producer(
            acks=_ACKS[acks],
            compression=compression.value,
            delivery_timeout_ms=max(1, round(timeout * 1000)),
            transactional_id=transactional_id,
        )
        producer = stack.enter_context(chosen)
        delivery = Delivery(say=write_bytes if as_json else None, is_whole=transactional_id is not None)
        if transactional_id is not None:
            stack.enter_context(producer.transaction())
        send = partial(_submit, producer, topic, headers, partition)
        delivery.run(lines, parse, send, producer.flush)


class Delivery:
    """Records under way, settled in the order in which they were read."""

    def __init__(self, *, say: Callable[[bytes], None] | None, is_whole: bool) -> None:
        self._say = say
        self._is_whole = is_whole
        """Whether all of it counts or nothing."""
        self._under_way: deque[tuple[int, Future[RecordPosition]]] = deque()
        self._written = 0
        self._failure: str | None = None

    def run(
        self,
        lines: Iterator[bytes],
        parse: Parse,
        send: Callable[[InputRecord], Future[RecordPosition]],
        flush: Callable[[], None],
    ) -> None:
        """Send until the input ends or a record fails; CommandFailed when one did."""
        number = 0
        while self._failure is None:
            number += 1
            try:
                line = next(lines, None)
                if line is None:
                    break
                self._under_way.append((number, send(parse(line))))
            except (ValueError, OttlaError) as error:
                self._fail(number, error)
            self._settle(all_but=PENDING_MAX)
        flush()
        self._settle(all_but=0)
        if self._failure is not None:
            rest = "nothing was written" if self._is_whole else f"{self._written} other record(s) were written"
            raise CommandFailed(f"{self._failure}; {rest}")

    def _settle(self, *, all_but: int) -> None:
        """Look at what is finished, and wait for the oldest where too many are under way."""
        positions = []
        while self._under_way and (len(self._under_way) > all_but or self._under_way[0][1].done()):
            number, future = self._under_way.popleft()
            try:
                positions.append(future.result())
                self._written += 1
            except OttlaError as error:
                self._fail(number, error)
        if positions and self._say is not None:
            self._say(b"".join(_position_json(position) + b"\n" for position in positions))

    def _fail(self, number: int, error: Exception) -> None:
        if self._failure is None:
            self._failure = f"record {number}: {explained(error)}"


def _submit(
    producer: Producer, topic: str, headers: Headers, partition: int | None, record: InputRecord
) -> Future[RecordPosition]:
    return producer.submit(
        topic,
        record.value,
        record.key,
        partition=partition if partition is not None else record.partition,
        timestamp_ms=record.timestamp_ms,
        headers=record.headers + headers,
    )


def _position_json(position: RecordPosition) -> bytes:
    # Where nobody was asked (acks 0), nobody said which offset it is.
    offset = position.offset if position.offset >= 0 else None
    return msgspec.json.encode({"topic": position.topic, "partition": position.partition, "offset": offset})


def _parser(
    key: str | None, key_separator: str | None, form: InputForm, *, whole: bool, keep_partitions: bool
) -> Parse:
    if key_separator == "":
        raise CommandFailed("--key-separator is empty: name what stands between key and value", MISUSED)
    if key is not None and key_separator is not None:
        raise CommandFailed("--key and --key-separator both say what the key is: leave one of them out", MISUSED)
    if form is InputForm.JSON:
        if whole or key is not None or key_separator is not None:
            raise CommandFailed("--input json says itself what the key is and where a record ends", MISUSED)
        return partial(from_json, keep_partition=keep_partitions)
    if keep_partitions:
        raise CommandFailed("--keep-partitions goes with --input json: plain lines name no partition", MISUSED)
    if key is not None:
        fixed = key.encode("utf-8", "surrogateescape")
        return lambda line: InputRecord(line, fixed)
    separator = None if key_separator is None else unescaped(key_separator).encode("utf-8", "surrogateescape")
    return partial(from_line, key_separator=separator)


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator:
        raise CommandFailed(f"--header {text}: write NAME=VALUE", MISUSED)
    return name, value.encode("utf-8", "surrogateescape")


def _opened(stack: ExitStack, file: Path) -> tuple[IO[bytes], int]:
    try:
        stream = stack.enter_context(file.open("rb"))
        return stream, file.stat().st_size
    except OSError as error:
        raise CommandFailed(f"--file {explained(error)}", MISUSED) from error


def _lines(stream: IO[bytes], advance: Advance) -> Iterator[bytes]:
    while line := stream.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise ValueError(f"the line is longer than {LINE_BYTES_MAX} bytes; is there a line's end in the input?")
        yield line.removesuffix(b"\n")
        advance(len(line))


def _whole(stream: IO[bytes], advance: Advance) -> Iterator[bytes]:
    data = stream.read(LINE_BYTES_MAX + 1)
    if len(data) > LINE_BYTES_MAX:
        raise ValueError(f"the input is longer than {LINE_BYTES_MAX} bytes, which no record is")
    yield data
    advance(len(data))
