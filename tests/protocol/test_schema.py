"""What a declaration means on the wire, shown on a small message of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, encode, encode_bytes
from ottla.protocol.readers import reader_source
from ottla.protocol.schema import (
    NO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    Records,
    Since,
    String,
    Uuid,
    fields_of,
    struct_bytes_min,
)
from ottla.protocol.versions import Versions
from ottla.protocol.wire import COPIED_BYTES_MAX
from ottla.protocol.writers import RECORDS_COPIED_MAX, writer_source


class Leader(Message, frozen=True):
    """A struct in a tagged field."""

    node_id: Int32 = -1


class Part(Message, frozen=True):
    """A struct in an array."""

    index: Int32 = 0
    note: Annotated[String | None, Since(nullable_first=1)] = ""


class Parcel(Message, frozen=True):
    """Versions 0 and 1 are classic, 2 and 3 flexible."""

    VERSIONS: ClassVar[Versions] = Versions(0, 3, flexible_since=2)

    name: String = ""
    size: Annotated[Int64, Since(1)] = -1
    hint: Annotated[Int8, Since(1, last=2, ignorable=True)] = 0
    id: Annotated[Uuid, Since(3, ignorable=True)] = NO_UUID
    parts: Sequence[Part] = ()
    numbers: Annotated[Sequence[Int32] | None, Since(nullable_first=1)] = ()
    content: Bytes = b""
    records: Records | None = None
    best: Annotated[Part | None, Since(3)] = None
    leader: Annotated[Leader, Since(2, tag=0)] = Leader()
    rank: Annotated[Int32, Since(3, tag=5, ignorable=True)] = 7


def test_a_classic_version_has_fixed_lengths_and_no_tags() -> None:
    parcel = Parcel("ab", parts=(Part(5, "x"),), numbers=(1,), content=b"!", records=b"rr")
    expected = "0002 6162 00000001 00000005 0001 78 00000001 00000001 00000001 21 00000002 7272"
    assert encode_bytes(parcel, 0).hex() == expected.replace(" ", "")
    assert decode(Parcel, 0, bytes.fromhex(expected)) == parcel


def test_a_flexible_version_has_compact_lengths_and_tags_at_the_end_of_each_struct() -> None:
    parcel = Parcel("ab", size=1, parts=(Part(5, None),), numbers=None, leader=Leader(9))
    expected = "03 6162 0000000000000001 00 02 00000005 00 00 00 01 00 01 00 05 00000009 00"
    assert encode_bytes(parcel, 2).hex() == expected.replace(" ", "")
    assert decode(Parcel, 2, bytes.fromhex(expected)) == parcel


def test_a_nullable_struct_is_marked_by_a_byte() -> None:
    without, with_best = encode_bytes(Parcel(), 3), encode_bytes(Parcel(best=Part(1, "")), 3)
    assert without[-2:].hex() == "ff00"
    assert with_best[-8:].hex() == "01" + "00000001" + "01" + "00" + "00"


def test_a_field_that_the_version_lacks_must_keep_its_default() -> None:
    with pytest.raises(ProtocolError, match="size is not in this version"):
        encode(Parcel(size=4), 0)


def test_a_tagged_field_that_the_version_lacks_must_keep_its_default() -> None:
    with pytest.raises(ProtocolError, match="leader"):
        encode(Parcel(leader=Leader(4)), 1)


def test_an_ignorable_field_is_left_out_where_the_version_lacks_it() -> None:
    assert encode(Parcel(hint=3, rank=1), 0) == encode(Parcel(), 0)


def test_an_empty_list_counts_as_the_default_of_an_array() -> None:
    assert encode_bytes(Parcel(parts=[], numbers=[]), 2) == encode_bytes(Parcel(), 2)


def test_a_field_that_the_version_lacks_reads_as_its_default() -> None:
    assert decode(Parcel, 0, encode_bytes(Parcel("a"), 0)).size == -1


def test_null_is_refused_in_both_directions_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(ProtocolError, match="note may not be null"):
        encode(Parcel(parts=(Part(0, None),)), 0)
    with pytest.raises(ProtocolError):
        decode(Parcel, 0, encode_bytes(Parcel(), 0).replace(b"\0\0", b"\xff\xff", 1))


def test_unknown_tagged_fields_are_kept_and_written_back() -> None:
    parcel = Parcel(unknown_tags=((3, b"three"), (200, b"")), leader=Leader(1), rank=2)
    encoded = encode_bytes(parcel, 3)
    assert decode(Parcel, 3, encoded) == parcel
    assert encoded[-24:].hex(" ", 1) == "04 00 05 00 00 00 01 00 03 05 74 68 72 65 65 05 04 00 00 00 02 c8 01 00"


def test_a_tagged_field_that_is_not_as_long_as_it_says_is_refused() -> None:
    encoded = bytearray(encode_bytes(Parcel(rank=2), 3))
    encoded[-5] = 3
    with pytest.raises(ProtocolError):
        decode(Parcel, 3, encoded[:-1])


@pytest.mark.parametrize("version", list(Parcel.VERSIONS))
def test_lengths_and_counts_above_127_are_written_and_read(version: int) -> None:
    parcel = Parcel(
        "n" * 300, parts=tuple(Part(i, "x" * i) for i in range(200)), numbers=tuple(range(500)), content=b"c" * 20000
    )
    assert decode(Parcel, version, encode_bytes(parcel, version)) == parcel


@pytest.mark.parametrize("version", list(Parcel.VERSIONS))
@pytest.mark.parametrize("size", [0, 126, 127, 128, 16382, 16383, 2**21 - 2, 2**21 - 1])
def test_records_of_any_length_come_back_as_they_were(version: int, size: int) -> None:
    parcel = Parcel(records=bytes(size))
    encoded = encode_bytes(parcel, version)
    assert decode(Parcel, version, encoded) == parcel
    assert decode(Parcel, version, memoryview(bytearray(encoded))) == parcel


@pytest.mark.parametrize("version", [0, 3])
def test_the_longest_string_is_taken_and_a_longer_one_is_not(version: int) -> None:
    longest = Parcel("s" * 32767)
    assert decode(Parcel, version, encode_bytes(longest, version)) == longest
    with pytest.raises(ProtocolError):
        encode(Parcel("s" * 32768), version)


def test_a_compact_string_beyond_the_limit_is_refused_when_read() -> None:
    longest = encode_bytes(Parcel("s" * 32767), 2)
    assert longest[:3] == b"\x80\x80\x02"
    with pytest.raises(ProtocolError, match="32768"):
        decode(Parcel, 2, b"\x81\x80\x02s" + longest[3:])


@pytest.mark.parametrize(
    "wrong",
    [
        Parcel(numbers=(2**31,)),
        Parcel(size=2**63),
        Parcel("\ud800"),
        Parcel(id=b"short"),
        Parcel(unknown_tags=((0, b""),), leader=Leader(1)),
    ],
    ids=["array", "integer", "text", "uuid", "tag"],
)
def test_a_value_that_does_not_fit_is_a_protocol_error(wrong: Parcel) -> None:
    with pytest.raises(ProtocolError):
        encode(wrong, 3)


@pytest.mark.parametrize("version", list(Parcel.VERSIONS))
def test_every_cut_and_every_extra_byte_is_a_protocol_error(version: int) -> None:
    parcel = Parcel("größe", parts=(Part(1, "x"), Part(2, "y")), numbers=(1, 2, 3), content=b"abc", records=b"r" * 200)
    encoded = encode_bytes(parcel, version)
    for cut in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode(Parcel, version, encoded[:cut])
    with pytest.raises(ProtocolError, match="left over"):
        decode(Parcel, version, encoded + b"\0")


@pytest.mark.parametrize(("version", "count"), [(0, "00000005"), (0, "7fffffff"), (2, "06"), (2, "ffffffff07")])
def test_a_count_is_held_against_the_bytes_that_are_left_before_any_element_is_read(version: int, count: str) -> None:
    # An empty name and what else comes before the parts, then a count too high for the 20 bytes behind it.
    start = {0: "0000", 2: "01 ffffffffffffffff 00"}[version]
    with pytest.raises(ProtocolError, match="parts has more elements than the bytes can hold"):
        decode(Parcel, version, bytes.fromhex(start + count) + bytes(20))


def test_a_count_of_tagged_fields_is_held_against_the_bytes_that_are_left() -> None:
    with pytest.raises(ProtocolError, match="11 tagged fields do not fit into 20 bytes"):
        decode(Parcel, 2, encode_bytes(Parcel(), 2)[:-1] + b"\x0b" + bytes(20))


def test_text_that_is_not_utf_8_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode(Parcel, 2, b"\x02\xff" + encode_bytes(Parcel("a"), 2)[2:])


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_does_not_exist_is_a_protocol_error(version: int) -> None:
    with pytest.raises(ProtocolError, match="has versions 0-3"):
        encode(Parcel(), version)
    with pytest.raises(ProtocolError, match="has versions 0-3"):
        decode(Parcel, version, b"")


def test_larger_records_are_copied_neither_when_written_nor_when_read() -> None:
    records = bytes(max(RECORDS_COPIED_MAX, COPIED_BYTES_MAX) + 1)
    buffers = encode(Parcel(records=records), 2)
    assert any(buffer is records for buffer in buffers)
    encoded = b"".join(buffers)
    read: Any = decode(Parcel, 2, encoded).records
    assert read.obj is encoded


def test_arrays_are_tuples_when_read() -> None:
    read = decode(Parcel, 2, encode_bytes(Parcel(parts=[Part(), Part()], numbers=[1]), 2))
    assert read.parts == (Part(), Part())
    assert read.numbers == (1,)


def test_a_message_starts_where_it_is_said_to() -> None:
    assert decode(Parcel, 2, b"head" + encode_bytes(Parcel("a"), 2), start=4) == Parcel("a")


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Parcel().name = "other"  # type: ignore[misc]


def test_the_fewest_bytes_of_a_struct_are_those_of_its_empty_self() -> None:
    for version in Parcel.VERSIONS:
        flexible = Parcel.VERSIONS.flexible(version)
        assert struct_bytes_min(Parcel, version, flexible=flexible) == len(encode_bytes(Parcel(), version))


def test_the_generated_sources_can_be_looked_at() -> None:
    assert "def read(b, p):" in reader_source(Parcel, 3)
    assert "def write(m_0):" in writer_source(Parcel, 3)


def test_the_fields_are_listed_in_the_order_of_the_wire() -> None:
    assert [field.name for field in fields_of(Part)] == ["index", "note"]
