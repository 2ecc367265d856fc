"""The codecs: both directions, both snappy framings, and bombs that do not go off."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecompressionTooLarge, InvalidBatch, UnsupportedCompression
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress

MIB = 1024 * 1024
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def xerial(*blocks: bytes) -> bytes:
    """A stream of blocks that are compressed already."""
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=2_000))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), bytes_max=MIB) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 64 * 1024 + 1, 3 * MIB + 17])
def test_sizes_around_the_block_sizes_come_back(codec: Codec, size: int) -> None:
    data = (b"%d," * 1000 % tuple(range(1000)) * (size // 3_000 + 1))[:size]
    assert decompress(codec, compress(codec, memoryview(data)), bytes_max=size) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_same_input_gives_the_same_bytes(codec: Codec) -> None:
    assert compress(codec, b"abc" * 999) == compress(codec, bytearray(b"abc" * 999))


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_is_inclusive_and_exact(codec: Codec) -> None:
    packed = compress(codec, b"x" * 100_000)
    assert len(decompress(codec, packed, bytes_max=100_000)) == 100_000
    with pytest.raises(DecompressionTooLarge):
        decompress(codec, packed, bytes_max=99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_costs_no_more_than_the_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(32 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, bomb, bytes_max=MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB + 8 * len(bomb)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_cut_at_any_byte_is_invalid(codec: Codec) -> None:
    whole = compress(codec, bytes(range(256)) * 20)
    for size in {*range(40), *range(40, len(whole), 37), len(whole) - 1}:
        # A snappy stream may end after any block, also after its header.
        if codec is Codec.SNAPPY and size == len(XERIAL_HEADER):
            continue
        with pytest.raises(InvalidBatch):
            decompress(codec, whole[:size], bytes_max=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_of_no_codec_are_invalid(codec: Codec) -> None:
    with pytest.raises(InvalidBatch):
        decompress(codec, b"\xfe\xdc\xba\x98" * 10, bytes_max=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_garbage_after_the_end_is_invalid(codec: Codec) -> None:
    with pytest.raises(InvalidBatch):
        decompress(codec, compress(codec, b"abc") + b"\x00garbage", bytes_max=MIB)


@pytest.mark.parametrize("number", [5, 6, 7, 99, -1])
def test_an_unknown_codec_is_unsupported_in_both_directions(number: int) -> None:
    with pytest.raises(UnsupportedCompression):
        compress(number, b"abc")
    with pytest.raises(UnsupportedCompression):
        decompress(number, b"abc", bytes_max=MIB)


def test_codecs_have_the_names_that_kafka_uses() -> None:
    assert [Codec.from_name(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    with pytest.raises(UnsupportedCompression, match="brotli"):
        Codec.from_name("brotli")


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19), (Codec.ZSTD, -5)])
def test_a_level_is_obeyed(codec: Codec, level: int) -> None:
    data = b"".join(b"%d:%d;" % (n, n * n) for n in range(5_000))
    packed = compress(codec, data, level)
    assert packed != compress(codec, data)
    assert decompress(codec, packed, bytes_max=MIB) == data


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 10), (Codec.LZ4, 17), (Codec.ZSTD, 23), (Codec.SNAPPY, 1)])
def test_a_level_that_does_not_exist_is_unsupported(codec: Codec, level: int) -> None:
    with pytest.raises(UnsupportedCompression, match="level"):
        compress(codec, b"abc", level)


def test_the_default_bound_holds_what_a_batch_of_default_size_can() -> None:
    assert DECOMPRESSED_BYTES_MAX == 256 * MIB


def test_gzip_carries_no_modification_time() -> None:
    assert compress(Codec.GZIP, b"abc")[4:8] == bytes(4)


def test_gzip_members_that_follow_each_other_are_read_as_one() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one,") + gzip.compress(b"") + gzip.compress(b"two"), bytes_max=7) == (
        b"one,two"
    )


def test_zlib_without_the_gzip_header_is_invalid() -> None:
    with pytest.raises(InvalidBatch):
        decompress(Codec.GZIP, zlib.compress(b"abc"), bytes_max=MIB)


def test_zstd_frames_that_follow_each_other_are_read_as_one() -> None:
    assert decompress(Codec.ZSTD, zstd.compress(b"one,") + zstd.compress(b"two"), bytes_max=7) == b"one,two"


def test_a_zstd_frame_without_a_content_size_is_read() -> None:
    stream = zstd.ZstdCompressor()
    packed = stream.compress(b"abc" * 100_000) + stream.flush()
    assert decompress(Codec.ZSTD, packed, bytes_max=MIB) == b"abc" * 100_000


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_many_tiny_members_do_not_pass_the_bound_together(pack: object) -> None:
    assert callable(pack)
    codec = Codec.GZIP if pack is gzip.compress else Codec.ZSTD
    many = pack(b"x" * 10) * 2_000
    assert decompress(codec, many, bytes_max=20_000) == b"x" * 20_000
    with pytest.raises(DecompressionTooLarge):
        decompress(codec, many, bytes_max=19_999)


def test_lz4_frames_have_independent_blocks_of_64_kib() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, b"abc" * 99_999))
    assert (info["block_linked"], info["block_size_id"], info["content_size"]) == (False, 4, 0)


def test_an_lz4_frame_with_any_content_size_and_checksums_is_read() -> None:
    packed = lz4.frame.compress(b"abc" * 99_999, store_size=True, content_checksum=True, block_checksum=True)
    assert decompress(Codec.LZ4, packed, bytes_max=MIB) == b"abc" * 99_999


def test_an_lz4_frame_that_lies_about_its_content_size_is_invalid_and_cheap() -> None:
    frame = bytearray(lz4.frame.compress(b"abc" * 100, store_size=True))
    frame[6:14] = struct.pack("<Q", 2**40)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            decompress(Codec.LZ4, frame, bytes_max=DECOMPRESSED_BYTES_MAX)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_a_second_lz4_frame_is_refused_because_java_would_not_see_it() -> None:
    with pytest.raises(InvalidBatch, match="follow"):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"one") + compress(Codec.LZ4, b"two"), bytes_max=MIB)


def test_snappy_is_written_in_the_framing_of_java() -> None:
    packed = compress(Codec.SNAPPY, b"a" * 40_000)
    assert packed == xerial(raw_snappy(b"a" * 32_768), raw_snappy(b"a" * 7_232))


def test_raw_snappy_is_read() -> None:
    assert decompress(Codec.SNAPPY, raw_snappy(b"abc" * 9_999), bytes_max=MIB) == b"abc" * 9_999


@pytest.mark.parametrize("length", [0, -1, 4, 2**31 - 1])
def test_a_xerial_block_of_impossible_length_is_invalid(length: int) -> None:
    with pytest.raises(InvalidBatch, match="block"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", length) + b"abc", bytes_max=MIB)


def test_blocks_that_pass_the_bound_only_together_are_too_large() -> None:
    block = raw_snappy(b"x" * 1_000)
    with pytest.raises(DecompressionTooLarge):
        decompress(Codec.SNAPPY, xerial(block, block, block), bytes_max=2_999)


@pytest.mark.parametrize("frame", [lambda block: block, xerial])
def test_a_declared_snappy_length_is_not_believed_beyond_the_possible(frame: object) -> None:
    assert callable(frame)
    lying = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            decompress(Codec.SNAPPY, frame(lying), bytes_max=2**40)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_a_snappy_length_of_more_than_five_bytes_is_invalid() -> None:
    with pytest.raises(InvalidBatch):
        decompress(Codec.SNAPPY, b"\x80" * 8, bytes_max=MIB)
