"""Records as lines, as JSON, and in a form of one's own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_text import InputRecord, from_json, from_line, line_form, to_json, unescaped
from ottla.client.values import Record

TIMESTAMP_MS = 1_700_000_000_123
contents = st.none() | st.binary(max_size=20)


def record(
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None)),
) -> Record:
    return Record("orders", 2, 17, TIMESTAMP_MS, key, value, headers)


def test_a_record_in_json_has_all_its_parts() -> None:
    assert json.loads(to_json(record())) == {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "timestamp": TIMESTAMP_MS,
        "key": "key",
        "value": "value",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


def test_bytes_that_are_not_utf_8_are_base64_in_json() -> None:
    assert json.loads(to_json(record(value=b"\xff\x00")))["value"] == {"base64": "/wA="}


def test_a_record_in_json_is_one_line() -> None:
    assert b"\n" not in to_json(record(value=b"two\nlines"))


@given(
    contents,
    contents,
    st.lists(st.tuples(st.text(max_size=5, alphabet=st.characters(exclude_categories=["Cs"])), contents), max_size=3),
)
def test_what_json_wrote_json_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    written = to_json(record(key=key, value=value, headers=tuple(headers)))

    assert from_json(written) == InputRecord(value, key, tuple(headers), TIMESTAMP_MS)


def test_the_partition_of_json_counts_only_where_it_is_asked_for() -> None:
    assert from_json(b'{"value":"x","partition":3}').partition is None
    assert from_json(b'{"value":"x","partition":3}', keep_partition=True).partition == 3


@pytest.mark.parametrize("line", [b"", b"plain", b"[]", b'{"value":1}', b'{"valeu":"x"}', b'{"value":{"base64":"?"}}'])
def test_json_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        from_json(line)


def test_a_line_without_a_separator_is_a_value() -> None:
    assert from_line(b"a:b", key_separator=None) == InputRecord(b"a:b")


def test_a_line_is_split_at_the_first_separator() -> None:
    assert from_line(b"k:v:w", key_separator=b":") == InputRecord(b"v:w", b"k")


def test_an_empty_key_is_not_the_same_as_none() -> None:
    assert from_line(b":v", key_separator=b":") == InputRecord(b"v", b"")


def test_a_line_that_lacks_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="no '::' in it"):
        from_line(b"k:v", key_separator=b"::")


def test_a_form_is_filled_with_the_parts_of_a_record() -> None:
    show = line_form(r"{topic}-{partition}@{offset} {timestamp}\t{key}={value} {headers}\n")

    assert show(record()) == b"orders-2@17 1700000000123\tkey=value a=1,b=\n"


def test_a_form_gives_out_bytes_as_they_are() -> None:
    assert line_form("{value}")(record(value=b"\xff\n\x00")) == b"\xff\n\x00"


def test_a_form_has_braces_where_they_are_doubled() -> None:
    assert line_form("{{{offset}}}")(record()) == b"{17}"


@pytest.mark.parametrize("template", ["{valeu}", "{value!r}", "{offset:>5}", "{", "{}", "{value.real}"])
def test_a_form_with_anything_else_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"no part of a record|encountered|expected"):
        line_form(template)


def test_escapes_stand_for_what_cannot_be_typed() -> None:
    assert unescaped(r"a\tb\nc\\d\q\0") == "a\tb\nc\\d\\q\0"


def test_a_backslash_at_the_end_stays_as_it_is() -> None:
    assert unescaped("a\\") == "a\\"
