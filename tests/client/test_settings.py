"""Settings: addresses, defaults that depend on each other, and mistakes that are named."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.assembly import checked_settings
from ottla.client.errors import InvalidGroupName, InvalidSetting
from ottla.client.settings import Address, ClientSettings, ConsumerSettings, ProducerSettings, parse_addresses


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:9093", [Address("localhost", 9093)]),
        ("localhost", [Address("localhost", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        (["a:1", "[::1]:2", "[::1]"], [Address("a", 1), Address("::1", 2), Address("::1", 9092)]),
    ],
)
def test_addresses_are_read_in_every_form(given: str | list[str], expected: list[Address]) -> None:
    assert parse_addresses(given) == expected


@pytest.mark.parametrize("given", ["", ",", ":9092", "host:port", "host:0", "host:65536", "::1", "[::1", "a:1:2"])
def test_an_address_that_cannot_be_is_refused(given: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_addresses(given)


def test_an_ipv6_address_is_shown_with_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_a_producer_is_idempotent_exactly_when_everything_is_acknowledged() -> None:
    assert ProducerSettings().is_idempotent
    assert not ProducerSettings(acks=1).is_idempotent
    assert not ProducerSettings(idempotent=False).is_idempotent


@pytest.mark.parametrize(
    "given",
    [
        {"acks": 2},
        {"acks": 1, "idempotent": True},
        {"compression": "rar"},
        {"partitioner": "md5"},
        {"keyless": "random"},
        {"batch_bytes": 0},
        {"linger_ms": -1},
        {"retries": -1},
    ],
)
def test_a_producer_setting_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(reversed(given))):
        ProducerSettings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"start": "middle"},
        {"start_offset": -1},
        {"start_offset": 1, "start_time_ms": 1},
        {"start": "end", "start_offset": 1},
        {"out_of_range": "panic"},
        {"isolation": "serializable"},
        {"records_max": 0},
        {"fetch_wait_ms": -1},
    ],
)
def test_a_consumer_setting_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        ConsumerSettings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"protocol": "streams"},
        {"session_timeout_ms": 3_000},
        {"poll_interval_max_ms": 0},
        {"assignors": ()},
        {"assignors": "range"},
        {"assignors": ("range", "best")},
        {"group_instance_id": ""},
        {"auto_offset_reset": "none"},
        {"auto_offset_reset": "latest", "start": "end"},
        {"auto_offset_reset": "latest", "out_of_range": "latest"},
    ],
)
def test_a_group_setting_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        ConsumerSettings(group="g", **given)


@pytest.mark.parametrize("given", [{"auto_commit": True}, {"group_instance_id": "a"}])
def test_what_belongs_to_a_group_is_refused_without_one(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="needs a group"):
        ConsumerSettings(**given)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0b", "\ud800", "x" * 40_000, 7, b"g"])
def test_a_name_that_no_group_can_have_is_refused(name: Any) -> None:
    with pytest.raises(InvalidGroupName):
        ConsumerSettings(group=name)


@pytest.mark.parametrize("name", ["g", "...", "a.b", "orders of today", "größe", " ", "x" * 249])
def test_any_other_name_is_a_group_s_name(name: str) -> None:
    assert ConsumerSettings(group=name).group == name


def test_an_unknown_setting_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(InvalidSetting, match=r"lingerms.*linger_ms"):
        checked_settings(ProducerSettings, {"lingerms": 3})


def test_waits_between_attempts_double_up_to_their_limit() -> None:
    settings = ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=1_000)

    assert [settings.backoff_ms(attempt) for attempt in (1, 2, 3, 4, 5, 60)] == [100, 200, 400, 800, 1_000, 1_000]
