"""Byte strings that are almost record batches, and the one question that is asked about each.

Shared by the test that runs in the suite and by the coverage-guided target. A case is made from a
`random.Random` alone, so its number replays it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from ottla.errors import BatchError
from ottla.records import kernel, reader
from ottla.records.arrow import collect
from ottla.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, peek, seal, walk
from ottla.records.builder import build_batch
from ottla.records.compression import Codec, decompress
from ottla.records.control import MarkerType, build_marker, parse_marker
from ottla.records.filter import filter_batch
from ottla.records.numpy_columns import Columns as NumpyColumns
from ottla.records.packing import RecordTuple

DECOMPRESSED_BYTES_MAX = 64 * 1024
EVERY_COLUMN = 63
WITHOUT_HEADERS = 31
_INTERESTING = (0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def random_records(random: Random) -> list[RecordTuple]:
    """A few small records of every shape."""

    def maybe_bytes() -> bytes | None:
        return None if random.random() < 0.2 else random.randbytes(random.choice((0, 1, 5, 70, 300)))

    return [
        (
            maybe_bytes(),
            maybe_bytes(),
            1_700_000_000_000 + random.randrange(-(10**6), 10**6),
            [(random.choice(("", "h", "größe")), maybe_bytes()) for _ in range(random.choice((0, 0, 0, 1, 3)))],
        )
        for _ in range(random.choice((1, 1, 2, 5, 20)))
    ]


def random_batch(random: Random) -> bytearray:
    """A batch with nothing wrong with it."""
    if random.random() < 0.1:
        return build_marker(
            random.choice(list(MarkerType)), producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5
        )
    return build_batch(
        random_records(random),
        codec=random.choice((0, 0, 0, 1, 2, 3, 4)),
        base_offset=random.choice((0, 5, 2**40)),
        producer_id=random.choice((-1, 7)),
        transactional=random.random() < 0.2,
    )


def damage(random: Random, batch: bytearray) -> bytearray:
    """Change a few bytes; mostly make the checksum right again, so that the damage is not found there."""
    for _ in range(random.choice((1, 1, 2, 4, 9))):
        at = random.randrange(len(batch))
        if random.random() < 0.6 and len(batch) > HEADER_SIZE:
            at = random.randrange(HEADER_SIZE, len(batch))
        match random.randrange(6):
            case 0:
                batch[at] ^= 1 << random.randrange(8)
            case 1:
                batch[at] = random.choice(_INTERESTING)
            case 2:
                batch[at:at] = bytes([random.choice(_INTERESTING)]) * random.randrange(1, 12)
            case 3:
                del batch[at : at + random.randrange(1, 12)]
            case 4:
                batch[at : at + 4] = random.randbytes(4)
            case _:
                other = random_batch(random)
                batch[at:] = other[random.randrange(len(other)) :]
        if len(batch) < HEADER_SIZE:
            return batch
    if random.random() < 0.9:
        batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
        batch[16] = 2
        seal(batch)
    return batch


def random_case(random: Random) -> bytes:
    """Sometimes noise, mostly a damaged batch, sometimes a sound one."""
    kind = random.random()
    if kind < 0.05:
        return random.randbytes(random.randrange(200))
    if kind < 0.15:
        noise = bytearray(random_batch(random)[:HEADER_SIZE]) + random.randbytes(random.randrange(300))
        return bytes(damage(random, noise))
    batch = random_batch(random)
    return bytes(batch if kind < 0.2 else damage(random, batch))


def outcome(question: Callable[[], Any]) -> Any:
    """The answer, or the class of the BatchError; any other exception goes through, and is a finding."""
    try:
        return question()
    except BatchError as e:
        return type(e)


def columns_by(builder: Any, case: bytes) -> tuple[Any, ...]:
    """Columns as plain bytes, so that two builders' can be compared."""
    next_offset = collect(
        case, builder, start_offset=-(2**63), checked=True, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
    )
    flat: list[Any] = [next_offset]
    for part in builder.take():
        flat += [bytes(piece) if piece is not None else None for piece in part] if isinstance(part, tuple) else [part]
    return tuple(bytes(part) if isinstance(part, bytearray) else part for part in flat)


def ask_everything(case: bytes) -> list[str]:
    """Put one byte string through every reader; gives how each ended, and fails when two disagree."""
    ended = []
    read = outcome(lambda: reader.read_batch(case, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))
    ended.append(read.__name__ if isinstance(read, type) else "records")
    outcome(lambda: parse_marker(case, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))
    outcome(lambda: list(walk(case)))
    kept = outcome(
        lambda: filter_batch(case, lambda offset, *_: offset % 2 == 0, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    )
    if isinstance(read, list):
        found = reader.read_batch(kept)
        assert found == [record for record in read if record.offset % 2 == 0]
    for codec in Codec:
        outcome(partial(decompress, codec, case[HEADER_SIZE:], bytes_max=DECOMPRESSED_BYTES_MAX))
    for flags in (EVERY_COLUMN, WITHOUT_HEADERS):
        plain = outcome(partial(columns_by, NumpyColumns(flags), case))
        if kernel.compiled is not None:
            compiled = outcome(partial(columns_by, kernel.compiled.Columns(flags), case))
            assert compiled == plain, (compiled, plain)
        ended.append(plain.__name__ if isinstance(plain, type) else "columns")
    _ask_both_decoders(case)
    return ended


def _ask_both_decoders(case: bytes) -> None:
    """The payload of a readable header, straight to both record decoders and both span readers."""
    header = outcome(lambda: peek(case))
    if not isinstance(header, BatchHeader):
        return
    payload = outcome(lambda: reader.unpack(header, case, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))
    if not isinstance(payload, bytes) or kernel.compiled is None:
        return
    assert outcome(lambda: reader.decode_records(header, payload)) == outcome(
        lambda: reader.decode_records_plain(header, payload)
    )
    assert outcome(lambda: list(reader.spans(header, payload))) == outcome(
        lambda: list(reader.spans_plain(header, payload))
    )


def resealed(data: bytes) -> bytes:
    """Bytes from a fuzzer as a batch that passes the first checks, so that it reaches the records."""
    if len(data) < HEADER_SIZE:
        return data
    batch = bytearray(data)
    batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    batch[16] = 2
    seal(batch)
    return bytes(batch)
