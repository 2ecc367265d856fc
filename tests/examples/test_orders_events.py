"""The orders that the main job sends: what they look like, and that they are counted as what they are."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from examples.orders.events import BAD_SHARE, LATE_SHARE, QUARTERS_PER_UNIT, Orders

SENT = 1_800_000_000
TWO_MINUTES = 120
FIELDS = {"order_id", "customer", "product", "quantity", "country", "event_time", "sent_at"}


def _made(count: int) -> tuple[list[tuple[bytes, bytes]], Orders]:
    orders = Orders(seed=7)
    records, _ = orders.make(count, first_id=0, sent_second=SENT, timestamp_ms=5)
    return [(key, value) for key, value, _, _ in records], orders


def _order(value: bytes) -> dict[str, object] | None:
    """The order in a value, if it is a good one."""
    try:
        order = json.loads(value)
    except ValueError:
        return None
    if not isinstance(order, dict) or set(order) != FIELDS:
        return None
    quantity = order["quantity"]
    return order if isinstance(quantity, int) and quantity > 0 else None


def _seconds_late(order: dict[str, object]) -> float:
    placed, sent = (datetime.fromisoformat(str(order[name])) for name in ("event_time", "sent_at"))
    assert sent == datetime.fromtimestamp(SENT, UTC)
    return (sent - placed).total_seconds()


def test_the_same_seed_makes_the_same_orders() -> None:
    assert _made(500)[0] == _made(500)[0]


def test_every_record_has_its_number_as_its_key() -> None:
    orders = Orders(seed=7)
    first, _ = orders.make(10, first_id=0, sent_second=SENT, timestamp_ms=5)
    second, _ = orders.make(10, first_id=10, sent_second=SENT, timestamp_ms=5)

    assert [int(record[0]) for record in first + second] == list(range(20))


def test_the_tally_counts_what_a_reader_of_the_records_finds() -> None:
    orders = Orders(seed=7)
    records, tally = orders.make(20_000, first_id=0, sent_second=SENT, timestamp_ms=5)
    prices = {product.product: product.price for product in orders.products}

    good = [order for record in records if (order := _order(record[1])) is not None]
    on_time = [order for order in good if _seconds_late(order) <= TWO_MINUTES]
    worth = sum(int(str(order["quantity"])) * prices[str(order["product"])] for order in on_time)

    assert (tally.orders, tally.clean, tally.late) == (20_000, len(good), len(good) - len(on_time))
    assert tally.quarters_on_time / QUARTERS_PER_UNIT == worth


def test_about_as_many_are_late_and_bad_as_is_declared() -> None:
    _, tally = Orders(seed=7).make(50_000, first_id=0, sent_second=SENT, timestamp_ms=5)

    assert 0.5 * BAD_SHARE < tally.bad / tally.orders < 2 * BAD_SHARE
    assert 0.5 * LATE_SHARE < tally.late / tally.orders < 2 * LATE_SHARE


def test_some_products_are_bought_far_more_often_than_others() -> None:
    records, orders = _made(20_000)
    bought = [str(order["product"]) for _, value in records if (order := _order(value)) is not None]

    assert bought.count(orders.products[0].product) > 20 * bought.count(orders.products[-1].product)
