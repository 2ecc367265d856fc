"""The five codecs of a record batch, in both directions, and never past a bound.

Knows bytes only, not records. Every decompressor works piece by piece or checks a declared length
before it believes it, so that a small batch cannot make us allocate a big one. Whatever is wrong
with the bytes comes out as a `BatchError`; no library's own exception leaves this module.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib import import_module
from struct import Struct
from typing import Any

from ottla.errors import DecompressionTooLarge, InvalidBatch, UnsupportedCompression
from ottla.records.batch import Buffer

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""What one batch may unpack to. A batch of the default largest size (1 MiB) may shrink 256-fold, far
beyond what real data does, while a hostile one cannot take more memory than a machine of any size has."""

_PIECE_BYTES = 128 * 1024
"""How much input a stream decompressor gets at once: what it hands back unused is copied, and with
many tiny gzip members or zstd frames that copying would otherwise grow with the square of the input."""

_GZIP_WBITS = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_HEADER_SIZE = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_RATIO_MAX = 22
"""The densest element of snappy writes 64 bytes for 3."""
_SNAPPY_LENGTH_BYTES_MAX = 5
_LENGTH = Struct(">i")


class Codec(IntEnum):
    """How the records of a batch are compressed; the number stands in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The codec that Kafka's `compression.type` calls by this name."""
        codec = _BY_NAME.get(name)
        if codec is None:
            raise UnsupportedCompression(f"compression {name!r}: known are {', '.join(_BY_NAME)}")
        return codec


_BY_NAME = {codec.name.lower(): codec for codec in Codec}
_LEVELS = {Codec.GZIP: (1, 9, 6), Codec.LZ4: (1, 16, 0), Codec.ZSTD: (-131_072, 22, 3)}
"""First and last level that may be asked for, and the one used when none is. (lz4's 0 is its fast mode.)"""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as Kafka's own producer would compress it: the same input gives the same bytes."""
    if codec == Codec.NONE:
        return bytes(data)
    chosen = _level(codec, level)
    if codec == Codec.GZIP:
        # zlib writes no file name and a modification time of 0.
        stream = zlib.compressobj(chosen, zlib.DEFLATED, _GZIP_WBITS)
        return stream.compress(data) + stream.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        frame = _library("lz4.frame")
        # Java's reader takes only blocks that do not depend on each other.
        packed: bytes = frame.compress(
            data,
            compression_level=chosen,
            block_size=frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    zstd_packed: bytes = _zstd().compress(data, level=chosen)
    return zstd_packed


def decompress(codec: int, data: Buffer, *, bytes_max: int) -> bytes:
    """What `data` unpacks to, at most `bytes_max` bytes.

    Raises DecompressionTooLarge past the bound, InvalidBatch for bytes that are not of this codec or end
    early, UnsupportedCompression for an unknown codec. Gzip members and zstd frames may follow each other,
    as in Kafka; anything else after the end is refused.
    """
    if codec == Codec.NONE:
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
        return bytes(data)
    unpack = _DECOMPRESSORS.get(codec)
    if unpack is None:
        raise UnsupportedCompression(f"compression codec {codec} does not exist")
    if not len(data):
        raise InvalidBatch(f"no bytes: not even an empty {Codec(codec).name.lower()} stream")
    with memoryview(data) as view:
        return unpack(view, bytes_max)


def _level(codec: int, level: int | None) -> int:
    if codec not in _DECOMPRESSORS:
        raise UnsupportedCompression(f"compression codec {codec} does not exist")
    bounds = _LEVELS.get(Codec(codec))
    if bounds is None:
        if level is not None:
            raise UnsupportedCompression(f"{Codec(codec).name.lower()} has no levels")
        return 0
    first, last, default = bounds
    if level is None:
        return default
    if not first <= level <= last:
        raise UnsupportedCompression(f"{Codec(codec).name.lower()} has levels {first} to {last}, not {level}")
    return level


@cache
def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as e:
        raise UnsupportedCompression(f"the library {name} is not installed") from e


@cache
def _zstd() -> Any:
    """The standard library's module from Python 3.14 on, its backport before."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return _library("backports.zstd")


def _too_large(bytes_max: int) -> DecompressionTooLarge:
    return DecompressionTooLarge(f"the batch unpacks to more than {bytes_max} bytes")


def _gunzip(data: memoryview, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = position = 0
    while position < len(data):
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            piece = data[position : position + _PIECE_BYTES]
            if not piece:
                raise InvalidBatch("the gzip stream ends early")
            try:
                # A length limit of 0 would mean none, so one byte past the bound is always allowed for.
                part = member.decompress(piece, bytes_max - size + 1)
            except zlib.error as e:
                raise InvalidBatch(f"not a gzip stream: {e}") from e
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
            position += len(piece) - len(member.unused_data)
    return b"".join(parts)


def _decompress_zstd(data: memoryview, bytes_max: int) -> bytes:
    zstd = _zstd()
    parts: list[bytes] = []
    size = position = 0
    while position < len(data):
        frame = zstd.ZstdDecompressor()
        while not frame.eof:
            piece = data[position : position + _PIECE_BYTES]
            if not piece:
                raise InvalidBatch("the zstd stream ends early")
            try:
                part = frame.decompress(piece, bytes_max - size + 1)
            except zstd.ZstdError as e:
                raise InvalidBatch(f"not a zstd stream: {e}") from e
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
            position += len(piece) - len(frame.unused_data)
    return b"".join(parts)


def _decompress_lz4(data: memoryview, bytes_max: int) -> bytes:
    """One frame, as in Kafka. Its header's content size is never believed: blocks are unpacked until the end."""
    frame = _library("lz4.frame")
    context = frame.create_decompression_context()
    # The library allocates what it is allowed to return, so it is not allowed much more than the input.
    step_max = max(64 * 1024, 4 * len(data))
    parts: list[bytes] = []
    size = position = 0
    ended = False
    while not ended:
        room = min(step_max, bytes_max - size + 1)
        try:
            part, consumed, ended = frame.decompress_chunk(context, data[position:], max_length=room)
        except RuntimeError as e:
            raise InvalidBatch(f"not an lz4 frame: {e}") from e
        size += len(part)
        position += consumed
        if size > bytes_max:
            raise _too_large(bytes_max)
        if not (part or consumed or ended):
            raise InvalidBatch("the lz4 frame ends early")
        parts.append(part)
    if position < len(data):
        raise InvalidBatch("bytes follow the lz4 frame")
    return b"".join(parts)


def _compress_xerial(data: Buffer) -> bytes:
    """Snappy as Java's stream writes it: a header, then blocks of 32 KiB, each behind its length."""
    compress_block = _library("cramjam").snappy.compress_raw
    out = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(compress_block(view[start : start + _XERIAL_BLOCK_BYTES]))
            out += (_LENGTH.pack(len(block)), block)
    return b"".join(out)


def _decompress_snappy(data: memoryview, bytes_max: int) -> bytes:
    """Either framing: without Java's magic the whole is one raw block."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, bytes_max, bytes_max)
    if len(data) < _XERIAL_HEADER_SIZE:
        raise InvalidBatch("the snappy stream ends in its header")
    parts: list[bytes] = []
    size = 0
    position = _XERIAL_HEADER_SIZE
    while position < len(data):
        if len(data) - position < _LENGTH.size:
            raise InvalidBatch("the snappy stream ends in a block's length")
        length = _LENGTH.unpack_from(data, position)[0]
        position += _LENGTH.size
        if not 0 < length <= len(data) - position:
            raise InvalidBatch(f"a snappy block of {length} bytes, {len(data) - position} are left")
        part = _snappy_block(data[position : position + length], bytes_max - size, bytes_max)
        size += len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int, bytes_max: int) -> bytes:
    """One raw block, after its declared length was found possible: the library allocates that much at once."""
    declared = _snappy_declared_length(block)
    if declared > len(block) * _SNAPPY_RATIO_MAX:
        raise InvalidBatch(f"{len(block)} bytes of snappy cannot hold {declared}")
    if declared > room:
        raise _too_large(bytes_max)
    cramjam = _library("cramjam")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as e:
        raise InvalidBatch(f"not a snappy block: {e}") from e


def _snappy_declared_length(block: memoryview) -> int:
    length = 0
    for index, byte in enumerate(block[:_SNAPPY_LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length
    raise InvalidBatch("a snappy block without a length")


_DECOMPRESSORS: dict[int, Callable[[memoryview, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
