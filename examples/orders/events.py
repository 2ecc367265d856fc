"""The orders of an imaginary shop, as a running shop would send them: most are fine, some are late, some are rubbish.

Pure: the same seed gives the same orders. What is drawn by chance is drawn once, into a cycle of templates, so that
making an order costs about a microsecond. Knows no topic and no pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from random import Random
from typing import NamedTuple

import msgspec

PRODUCTS = 200
CUSTOMERS = 5_000
COUNTRIES = ("DE", "FR", "IT", "ES", "NL", "PL", "SE", "US", "BR", "JP")
TEMPLATES = 8_191
"""A prime, so that no partition gets the same templates all the time."""
LATE_SHARE = 0.02
BAD_SHARE = 0.02
ON_TIME_SECONDS_MAX = 100
"""An order that is on time was placed at most so long before it was sent. The pipeline allows for two minutes."""
LATE_SECONDS = range(150, 600)
QUARTERS_PER_UNIT = 4
"""Prices are multiples of a quarter, which binary fractions hold exactly: sums can be compared to the last digit."""

NAMES = ("Lamp", "Chair", "Kettle", "Teapot", "Blanket", "Shelf", "Basket", "Mirror", "Clock", "Vase")
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "grey", "brown", "amber", "teal")


class Product(NamedTuple):
    """What the shop sells."""

    product: str
    name: str
    price: float

    def record(self) -> tuple[bytes, bytes]:
        """Key and value, as the topic of products holds them."""
        return self.product.encode(), msgspec.json.encode(self._asdict())


@dataclass(slots=True)
class Tally:
    """How many orders of each kind there were."""

    orders: int = 0
    bad: int = 0
    late: int = 0
    quarters_on_time: int = 0
    """What was paid for the orders that are neither bad nor late, in quarters."""

    def add(self, other: Tally) -> None:
        """Count another tally in."""
        self.orders += other.orders
        self.bad += other.bad
        self.late += other.late
        self.quarters_on_time += other.quarters_on_time

    @property
    def clean(self) -> int:
        """All that are not bad; the late ones are among them."""
        return self.orders - self.bad


class _Template(NamedTuple):
    """An order without its number and its times."""

    line: bytes
    """Takes the number, the time at which it was placed, and the time at which it was sent."""
    seconds_before: int
    late: bool
    bad: str | None
    quarters: int


def products(chance: Random) -> list[Product]:
    """The range of goods; the first ones are bought most."""
    return [
        Product(
            f"p{number:03d}",
            f"{COLOURS[number // len(NAMES) % len(COLOURS)]} {NAMES[number % len(NAMES)]}".capitalize(),
            chance.randrange(8, 800) / QUARTERS_PER_UNIT,
        )
        for number in range(PRODUCTS)
    ]


class Orders:
    """Makes orders, as many as are asked for."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.products = products(chance)
        self._nonsense = [chance.randbytes(chance.randrange(1, 120)) for _ in range(64)]
        self._cycle = _templates(chance, self.products)
        self._at = 0

    def make(
        self, count: int, *, first_id: int, sent_second: int, timestamp_ms: int
    ) -> tuple[list[tuple[bytes, bytes, int, tuple[()]]], Tally]:
        """That many records, numbered on from `first_id`, sent in one second of the shop's time; and what they are."""
        times = _texts(sent_second)
        sent = times[0]
        tally = Tally(orders=count)
        records = []
        cycle, at = self._cycle, self._at
        quarters = 0
        for order_id in range(first_id, first_id + count):
            template = cycle[at]
            at = at + 1 if at + 1 < TEMPLATES else 0
            line, seconds_before, late, bad, worth = template
            if bad is not None:
                value = self._spoilt(bad, line, order_id, times[seconds_before], sent)
                tally.bad += 1
            else:
                value = line % (order_id, times[seconds_before], sent)
                if late:
                    tally.late += 1
                else:
                    quarters += worth
            records.append((b"%d" % order_id, value, timestamp_ms, ()))
        self._at = at
        tally.quarters_on_time = quarters
        return records, tally

    def _spoilt(self, how: str, line: bytes, order_id: int, placed: bytes, sent: bytes) -> bytes:
        """An order that nobody can use."""
        whole = line % (order_id, placed, sent)
        if how == "cut off":
            return whole[: len(whole) * 2 // 3]
        if how == "nonsense":
            return self._nonsense[order_id % len(self._nonsense)]
        if how == "empty":
            return b""
        if how == "without a product":
            before, _, after = whole.partition(b'"product":')
            return before + after.partition(b",")[2]
        if how == "without a time":
            before, _, after = whole.partition(b'"event_time":')
            return before + after.partition(b",")[2]
        if how == "negative":
            return whole.replace(b'"quantity":', b'"quantity":-', 1)
        assert how == "a word for a number", how
        before, _, after = whole.partition(b'"quantity":')
        return before + b'"quantity":"two",' + after.partition(b",")[2]


WAYS_TO_BE_BAD = (
    "cut off",
    "nonsense",
    "empty",
    "without a product",
    "without a time",
    "negative",
    "a word for a number",
)


def _templates(chance: Random, goods: Sequence[Product]) -> list[_Template]:
    # The second product is bought half as often as the first, the third a third as often, and so on.
    popularity = list(accumulate(1 / rank for rank in range(1, len(goods) + 1)))
    made = []
    for number in range(TEMPLATES):
        product = chance.choices(goods, cum_weights=popularity)[0]
        quantity = chance.choice((1, 1, 1, 1, 2, 2, 3, 5))
        draw = chance.random()
        late = draw < LATE_SHARE
        bad = WAYS_TO_BE_BAD[number % len(WAYS_TO_BE_BAD)] if LATE_SHARE <= draw < LATE_SHARE + BAD_SHARE else None
        line = b'{"order_id":%%d,"customer":"c%05d","product":"%b","quantity":%d,"country":"%b",' % (
            chance.randrange(CUSTOMERS),
            product.product.encode(),
            quantity,
            chance.choice(COUNTRIES).encode(),
        )
        made.append(
            _Template(
                line + b'"event_time":"%b","sent_at":"%b"}',
                # Most orders arrive at once, a few after a while.
                chance.choice(LATE_SECONDS) if late else int(chance.random() ** 4 * ON_TIME_SECONDS_MAX),
                late,
                bad,
                round(quantity * product.price * QUARTERS_PER_UNIT),
            )
        )
    return made


_TEXTS: dict[int, bytes] = {}
_TEXTS_MAX = 100_000


def _text(second: int) -> bytes:
    found = _TEXTS.get(second)
    if found is None:
        if len(_TEXTS) >= _TEXTS_MAX:
            _TEXTS.clear()
        found = _TEXTS[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    return found


def _texts(second: int) -> list[bytes]:
    """The texts of this second and of those before it, by how long before."""
    return [_text(second - before) for before in range(LATE_SECONDS.stop)]
