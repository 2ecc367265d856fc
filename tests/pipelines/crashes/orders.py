"""The records that go through the pipelines of the crash tests, by their numbers, and what must become of them.

A record is good, bad (not of the format) or refused (against a rule), and its number alone says which. Pure: knows
neither a broker nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from ottla.client.values import NewRecord

PARTITIONS = 3
CUSTOMERS = 40
SCHEMA = "number BIGINT, customer BIGINT, amount BIGINT, leaves BOOLEAN, event_time TIMESTAMP"
SECONDS = 900
"""Event times come round, so that every window is added to again and again."""
BEGINNING = datetime(2026, 1, 1, 23, 52, 30, tzinfo=UTC)
"""Shortly before midnight: a table by days gets two of them."""
BAD_VALUES = (b"", b"nonsense %d", b'{"number": %d', b'{"number": "%d"}', b'{"number": %d} twice', None)


class Kind(Enum):
    """What a record is."""

    GOOD = "good"
    BAD = "bad"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """Where a record of the source is."""

    partition: int
    offset: int


Acknowledged = Mapping[int, Spot]
"""By the numbers of the records, what the broker has said to the producer."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is counted in a minute."""

    orders: int
    amount: int


def kind_of(number: int) -> Kind:
    if number % 17 == 3:
        return Kind.BAD
    return Kind.REFUSED if number % 11 == 7 else Kind.GOOD


def customer_of(number: int) -> int:
    return number * 7 % CUSTOMERS


def amount_of(number: int) -> int:
    """Above zero, except where the rule refuses it."""
    return -number % 5 - 4 if kind_of(number) is Kind.REFUSED else 1 + number % 97


def leaves(number: int) -> bool:
    """Whether the record removes its customer from the table by customers, until the next one of that customer."""
    return number % 9 == 4


def time_of(number: int) -> datetime:
    return BEGINNING + timedelta(seconds=number * 13 % SECONDS)


def minute_of(number: int) -> str:
    """The start of its window, as a sink writes times."""
    return time_of(number).strftime("%Y-%m-%dT%H:%M:00.000000Z")


def value_of(number: int) -> bytes | None:
    if kind_of(number) is Kind.BAD:
        form = BAD_VALUES[number // 17 % len(BAD_VALUES)]
        return form % number if form and b"%d" in form else form
    order = {
        "number": number,
        "customer": customer_of(number),
        "amount": amount_of(number),
        "leaves": leaves(number),
        "event_time": time_of(number).isoformat(),
    }
    return json.dumps(order).encode()


def record(number: int) -> NewRecord:
    """A record of the source. Those of a customer are in one partition, so that they have an order."""
    customer = customer_of(number)
    return NewRecord(value_of(number), b"%d" % customer, partition=customer % PARTITIONS)


def of_kind(numbers: Iterable[int], kind: Kind) -> list[int]:
    return [number for number in numbers if kind_of(number) is kind]


def customers(acknowledged: Acknowledged) -> dict[int, int]:
    """The table by customers: the number of the last good order of each who has not left."""
    found: dict[int, int] = {}
    for number in sorted(of_kind(acknowledged, Kind.GOOD), key=lambda number: acknowledged[number]):
        if leaves(number):
            found.pop(customer_of(number), None)
        else:
            found[customer_of(number)] = number
    return found


def windows(acknowledged: Acknowledged) -> dict[str, Window]:
    """What is in each window in the end."""
    found: dict[str, Window] = {}
    for number in of_kind(acknowledged, Kind.GOOD):
        minute = minute_of(number)
        before = found.get(minute, Window(0, 0))
        found[minute] = Window(before.orders + 1, before.amount + amount_of(number))
    return found
