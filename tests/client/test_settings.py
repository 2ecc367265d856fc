"""Settings: addresses, defaults that depend on each other, and mistakes that are named."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.assembly import checked_settings
from ottla.client.errors import GroupsNotSupported, InvalidSetting
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


def test_a_group_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(GroupsNotSupported, match="subscribe or assign"):
        ConsumerSettings(group="g")  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused_and_the_known_ones_are_listed() -> None:
    with pytest.raises(InvalidSetting, match=r"lingerms.*linger_ms"):
        checked_settings(ProducerSettings, {"lingerms": 3})


def test_waits_between_attempts_double_up_to_their_limit() -> None:
    settings = ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=1_000)

    assert [settings.backoff_ms(attempt) for attempt in (1, 2, 3, 4, 5, 60)] == [100, 200, 400, 800, 1_000, 1_000]
