"""The check at the end of the main job: it is silent when all is well, and names whatever is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import ottla
from examples.orders.events import Tally
from examples.orders.totals import BAD_TOPIC, LATE_TOPIC, REVENUE_TOPIC, Found, Window, differences, find
from ottla.testing.server_thread import ServerThread

GENERATED = Tally(orders=10, bad=2, late=1, quarters_on_time=30)
FOUND = Found(
    table_ids=np.array([0, 1, 2, 3, 4, 5, 6, 7]),
    bad_ids=[8, 9],
    late_ids=[7],
    windows=[Window("12:00", 4, 5.0), Window("12:01", 3, 2.5)],
)


def test_what_adds_up_is_left_in_peace() -> None:
    assert differences(GENERATED, FOUND) == []


def test_a_doctored_total_is_found_out() -> None:
    wrong = differences(replace(GENERATED, orders=11), FOUND)

    assert "generated = rows in the table + bad records: 11 is not 10 (difference 1)" in wrong
    assert "1 orders are lost: 10" in wrong


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (replace(FOUND, table_ids=np.array([0, 1, 2, 3, 4, 5, 6])), "lost: 7"),
        (
            replace(FOUND, table_ids=np.append(FOUND.table_ids, 3)),
            "more than once in the table or among the bad ones: 3",
        ),
        (
            replace(FOUND, table_ids=np.append(FOUND.table_ids, 9)),
            "more than once in the table or among the bad ones: 9",
        ),
        (replace(FOUND, table_ids=np.append(FOUND.table_ids, 10)), "never sent: 10"),
        (replace(FOUND, bad_ids=[8]), "bad records = those that were sent as such: 1 is not 2"),
        (replace(FOUND, bad_ids=[8, 9, 9]), "more than once in the table or among the bad ones: 9"),
        (replace(FOUND, late_ids=[7, 7]), "more than once among the late ones: 7"),
        (replace(FOUND, late_ids=[8]), "late and not in the table: 8"),
        (replace(FOUND, late_ids=[]), "orders in windows + late records = clean records: 7 is not 8"),
        (replace(FOUND, windows=FOUND.windows[:1]), "orders in windows + late records = clean records: 5 is not 8"),
        (
            replace(FOUND, windows=[Window("12:00", 4, 5.0), Window("12:01", 3, 2.75)]),
            "revenue of all windows = worth of the orders on time: 7.75 is not 7.50",
        ),
        (replace(FOUND, unpriced=3), "rows of the table without a price = 0: 3 is not 0"),
    ],
)
def test_every_kind_of_error_is_named(found: Found, complaint: str) -> None:
    assert any(complaint in sentence for sentence in differences(GENERATED, found))


def test_one_order_swapped_for_another_is_noticed_although_the_totals_agree() -> None:
    swapped = replace(FOUND, table_ids=np.array([0, 1, 2, 3, 4, 5, 7, 7]))

    assert differences(GENERATED, swapped) == [
        "1 orders are lost: 6",
        "1 orders are more than once in the table or among the bad ones: 7",
    ]


def test_only_the_last_word_on_a_minute_counts(server: ServerThread) -> None:
    with ottla.connect(server.bootstrap) as client:
        for topic in (BAD_TOPIC, LATE_TOPIC, REVENUE_TOPIC):
            client.admin().create_topic(topic, partitions=2)
        with client.producer() as producer:
            producer.send(BAD_TOPIC, b"rubbish", key=b"8")
            producer.send(REVENUE_TOPIC, b'{"minute":"12:00","orders":1,"revenue":1.5}', key=b"12:00")
            producer.send(REVENUE_TOPIC, b'{"minute":"12:01","orders":3,"revenue":2.5}', key=b"12:01")
            producer.send(REVENUE_TOPIC, b'{"minute":"12:00","orders":4,"revenue":5.0}', key=b"12:00")
        found = find(client, table=pa.table({"order_id": [1, 2], "amount": pa.array([1.0, None])}))

    assert sorted(window.orders for window in found.windows) == [3, 4]
    assert (found.bad_ids, found.late_ids, found.in_windows, found.unpriced) == ([8], [], 7, 1)


def test_what_an_aborted_transaction_wrote_does_not_count(server: ServerThread) -> None:
    with ottla.connect(server.bootstrap) as client:
        for topic in (BAD_TOPIC, LATE_TOPIC, REVENUE_TOPIC):
            client.admin().create_topic(topic, partitions=1)
        with client.producer(transactional_id="t") as producer:
            for key, good in ((b"1", True), (b"2", False)):
                producer.begin()
                producer.send(BAD_TOPIC, b"", key=key)
                if good:
                    producer.commit()
                else:
                    producer.abort()
        found = find(
            client, table=pa.table({"order_id": pa.array([], pa.int64()), "amount": pa.array([], pa.float64())})
        )

    assert found.bad_ids == [1]
