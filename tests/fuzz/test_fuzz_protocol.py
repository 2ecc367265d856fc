"""Random and damaged bytes through every reader of the protocol: a message or a ProtocolError, and little memory.

FUZZ_CASES in the environment sets how many; each case is replayed by its number.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections import Counter
from random import Random
from typing import Any

import pytest

from ottla.errors import ProtocolError
from ottla.protocol.codec import decode, encode_bytes
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.readers import ELEMENTS_MAX, counting_reader, reader
from ottla.protocol.schema import Kind, Message, fields_of
from ottla.protocol.wire import TAGS_MAX, varint
from tests.fuzz.protocol_cases import EVERY_VERSION, Case, ask, ask_connection, case
from tests.protocol.plain_codec import plain_encode
from tests.report import Report

CASES = int(os.environ.get("FUZZ_CASES", "100000"))
PORTIONS = 20
MEASURED_CASES = 5_000
CONNECTION_CASES = 5_000
PEAK_FACTOR = 64
PEAK_EXTRA_BYTES = 64 * 1024


def _peak_bytes(measured: Case) -> int:
    """What reading takes at its highest. The reader itself is made before, since it stays."""
    reader(measured.message, measured.version)
    tracemalloc.start()
    try:
        decode(measured.message, measured.version, measured.data)
    except ProtocolError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def _dense(struct: type[Message], version: int, counts: tuple[int, ...], text: str) -> Any:
    """The message with the most objects for its bytes: arrays of the shortest elements, nested as deep as counts go."""
    shortest = {Kind.STRING: text, Kind.BYTES: b"", Kind.RECORDS: b""}
    values: dict[str, Any] = {}
    for field in fields_of(struct):
        if not field.is_in(version):
            continue
        if field.is_array and counts:
            element: Any = shortest.get(field.kind, 0)
            if field.struct is not None:
                element = _dense(field.struct, version, counts[1:], text)
            values[field.name] = (element,) * counts[0]
        elif not field.is_array and field.kind in shortest:
            values[field.name] = shortest[field.kind]
        elif field.may_be_null(version):
            values[field.name] = None
    return struct(**values)


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_every_reader_gives_a_message_or_a_protocol_error(portion: int, report_lines: Report) -> None:
    counts: Counter[str] = Counter()
    for number in range(portion, CASES, PORTIONS):
        try:
            counts[ask(case(number))] += 1
        except Exception as e:
            e.add_note(f"case {number}")
            raise
    report_lines.count("fuzzed messages, by outcome", counts)
    assert counts["read"]
    assert counts["refused"]


def test_a_short_run_is_partly_read_and_partly_refused() -> None:
    counts = Counter(ask(case(number)) for number in range(3_000))
    assert counts["read"] > 300
    assert counts["refused"] > 1_000


def test_a_connection_gives_requests_or_a_protocol_error() -> None:
    for number in range(CONNECTION_CASES):
        random = Random(number)
        body = struct.pack(">hhih", random.randrange(100), random.randrange(15), number, -1) + case(number).data
        size = len(body) if random.random() < 0.8 else random.randrange(-5, 500)
        ask_connection(struct.pack(">i", size) + body + random.randbytes(random.randrange(20)))


@pytest.mark.slow
def test_no_case_takes_more_memory_than_its_bytes_allow(report_lines: Report) -> None:
    worst = 0.0
    for number in range(MEASURED_CASES):
        measured = case(number)
        peak = _peak_bytes(measured)
        assert peak <= PEAK_FACTOR * len(measured.data) + PEAK_EXTRA_BYTES, number
        if len(measured.data) > 1_000:
            worst = max(worst, peak / len(measured.data))
    report_lines.say("fuzzed messages, memory", f"{MEASURED_CASES} cases measured, at most {worst:.1f} times the input")


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(500,), (25, 25)], ids=str)
@pytest.mark.parametrize("text", ["", "\u0100"], ids=["empty", "wide"])
def test_the_densest_message_of_each_kind_stays_within_the_bound(
    counts: tuple[int, ...], text: str, report_lines: Report
) -> None:
    worst, worst_name = 0.0, ""
    for message in dict.fromkeys(message for message, _ in EVERY_VERSION):
        for version in {message.VERSIONS.first, message.VERSIONS.last}:
            data = encode_bytes(_dense(message, version, counts, text), version)
            peak = _peak_bytes(Case(message, version, data))
            assert peak <= PEAK_FACTOR * len(data) + PEAK_EXTRA_BYTES, f"{message.__name__} v{version}"
            if len(data) > 1_000:
                worst, worst_name = max((worst, worst_name), (peak / len(data), f"{message.__name__} v{version}"))
    report_lines.say(
        "fuzzed messages, memory", f"densest {counts}, {text!r}: {worst:.1f} times the input ({worst_name})"
    )


@pytest.mark.parametrize("message_version", EVERY_VERSION, ids=lambda each: f"{each[0].__name__}-{each[1]}")
def test_a_huge_count_or_length_costs_nothing(message_version: tuple[type[Message], int]) -> None:
    message, version = message_version
    for filler in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
        measured = Case(message, version, filler * 20)
        assert _peak_bytes(measured) <= PEAK_FACTOR * len(measured.data) + PEAK_EXTRA_BYTES


def test_the_counting_reader_gives_the_same_as_the_other() -> None:
    for number in range(2_000):
        message, version, data = case(number)
        try:
            expected = reader(message, version)(data, 0)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                counting_reader(message, version)(data, 0)
        else:
            # Compared as bytes, since a float that is not a number does not equal itself.
            counted = counting_reader(message, version)(data, 0)
            assert plain_encode(counted, version) == plain_encode(expected, version)


def test_more_elements_than_the_bound_are_refused_before_they_are_made() -> None:
    count = ELEMENTS_MAX + 1
    data = varint(count + 1) + b"\x01" * count + b"\0"
    # Made before, since it stays.
    counting_reader(DeleteGroupsRequest, 2)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=str(ELEMENTS_MAX)):
            decode(DeleteGroupsRequest, 2, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK_EXTRA_BYTES


@pytest.mark.parametrize(
    "message", dict.fromkeys(message for message, _ in EVERY_VERSION), ids=lambda each: each.__name__
)
def test_a_crowd_of_unknown_tagged_fields_stays_within_the_bound(message: type[Message]) -> None:
    version = message.VERSIONS.last
    if not message.VERSIONS.flexible(version):
        pytest.skip("no version of this message has tagged fields")
    count = TAGS_MAX
    data = encode_bytes(message(), version)[:-1] + varint(count) + b"\x64\x00" * count
    assert _peak_bytes(Case(message, version, data)) <= PEAK_FACTOR * len(data) + PEAK_EXTRA_BYTES
    assert len(decode(message, version, data).unknown_tags) == count
    with pytest.raises(ProtocolError, match="tagged fields in one struct"):
        decode(
            message, version, data[: -2 * count - len(varint(count))] + varint(count + 1) + b"\x64\x00" * (count + 1)
        )
