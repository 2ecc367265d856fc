"""Where reading begins, as people write it."""

from __future__ import annotations

import pytest

from ottla.cli.moments import AtOffset, AtTime, Beginning, End, Last, Moment, parse_duration_ms, parse_moment

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("999999999999", AtOffset(999_999_999_999)),
        ("1000000000000", AtTime(1_000_000_000_000)),
        ("offset:1000000000000", AtOffset(1_000_000_000_000)),
        ("time:42", AtTime(42)),
        ("-5", Last(5)),
        ("-250ms", AtTime(NOW_MS - 250)),
        ("-10s", AtTime(NOW_MS - 10_000)),
        ("-10m", AtTime(NOW_MS - 600_000)),
        ("-2h", AtTime(NOW_MS - 7_200_000)),
        ("-1d", AtTime(NOW_MS - 86_400_000)),
        ("-1w", AtTime(NOW_MS - 604_800_000)),
        ("2023-11-14T22:13:20Z", AtTime(NOW_MS)),
        ("2023-11-14T22:13:20", AtTime(NOW_MS)),
        ("2023-11-15T00:13:20+02:00", AtTime(NOW_MS)),
        ("2023-11-14T22:13:20.123Z", AtTime(NOW_MS + 123)),
        ("1970-01-01", AtTime(0)),
    ],
)
def test_a_text_means_one_place_to_begin(text: str, meant: Moment) -> None:
    assert parse_moment(text, now_ms=NOW_MS) == meant


def test_longer_ago_than_1970_is_the_earliest_time() -> None:
    assert parse_moment("-99999w", now_ms=NOW_MS) == AtTime(0)


@pytest.mark.parametrize("text", ["", "yesterday", "-", "-10x", "1.5", "+5", "offset:", "offset:-1", "2023-13-01"])
def test_a_text_that_means_nothing_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"write beginning, end, an offset"):
        parse_moment(text, now_ms=NOW_MS)


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="before 1970"):
        parse_moment("1969-12-31T23:59:59Z", now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("0ms", 0), ("250ms", 250), ("90s", 90_000), ("10m", 600_000), ("1w", 604_800_000)]
)
def test_a_length_of_time_is_a_number_and_a_unit(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "10", "m", "-10m", "1.5h", "10 m", "soon"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        parse_duration_ms(text)
