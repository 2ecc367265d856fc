"""The generator of the main job: what it says was acknowledged is what the topic has."""

from __future__ import annotations

import threading

import ottla
from examples.orders.events import Orders
from examples.orders.generator import PRODUCTS_TOPIC, TOPIC, Generator, Pace, Report, publish_products
from examples.orders.totals import committed
from ottla.clock import ManualClock
from ottla.testing.server_thread import ServerThread

PARTITIONS = 3


def _run(client: ottla.Client, pace: Pace) -> list[Report]:
    client.admin().create_topic(TOPIC, partitions=PARTITIONS)
    reports: list[Report] = []
    with client.producer() as producer:
        Generator(
            producer, partitions=PARTITIONS, pace=pace, orders=Orders(3), clock=ManualClock(), report=reports.append
        ).run(threading.Event())
    return reports


def test_all_that_is_reported_is_in_the_topic_once(server: ServerThread) -> None:
    with ottla.connect(server.bootstrap) as client:
        reports = _run(client, Pace(rate=1_010, speed=60, seconds=0.5))
        sent = sorted(int(record.key or b"") for record in committed(client, TOPIC))

    assert reports[-1].done
    assert reports[-1].orders == 505
    assert sent == list(range(505))


def test_each_partition_gets_its_share(server: ServerThread) -> None:
    with ottla.connect(server.bootstrap) as client:
        _run(client, Pace(rate=6_000, speed=60, seconds=0.2))
        shares = [0] * PARTITIONS
        for record in committed(client, TOPIC):
            shares[record.partition] += 1

    assert shares == [400, 400, 400]


def test_time_in_the_shop_goes_by_the_orders_sent(server: ServerThread) -> None:
    with ottla.connect(server.bootstrap) as client:
        reports = _run(client, Pace(rate=100, speed=600, seconds=0.2))

    # It begins twenty minutes before midnight; a fifth of a second is two minutes.
    assert reports[-1].shop_time == "2023-11-13T23:42:00+00:00"


def test_a_generator_that_is_told_to_stop_has_counted_all_it_sent(server: ServerThread) -> None:
    stop = threading.Event()
    reports: list[Report] = []

    def hear(report: Report) -> None:
        reports.append(report)
        stop.set()

    with ottla.connect(server.bootstrap) as client:
        client.admin().create_topic(TOPIC, partitions=PARTITIONS)
        with client.producer() as producer:
            Generator(
                producer,
                partitions=PARTITIONS,
                pace=Pace(rate=1_000, speed=60),
                orders=Orders(3),
                clock=ManualClock(),
                report=hear,
            ).run(stop)
        sent = sum(1 for _ in committed(client, TOPIC))

    assert [report.done for report in reports] == [False, True]
    assert reports[-1].orders == sent


def test_the_products_are_published_under_their_names(server: ServerThread) -> None:
    orders = Orders(3)
    with ottla.connect(server.bootstrap) as client:
        client.admin().create_topic(PRODUCTS_TOPIC, partitions=1)
        publish_products(client, orders)
        published = [(record.key, record.value) for record in committed(client, PRODUCTS_TOPIC)]

    assert published == [product.record() for product in orders.products]
