"""Prices orders, exactly once: reads one topic and writes another in transactions, and does not mind being interrupted.

Runs a broker in this process, so that nothing has to be installed or started. The data goes to the directory named on
the command line, or to a temporary one that is gone afterwards.
"""

from __future__ import annotations

import sys
import tempfile

import ottla

ORDERS = 1_000
PRICE = 7


def main(directory: str) -> None:
    """Fill a topic, process it in two runs, the first of which fails, and count what came out."""
    with ottla.open(directory) as client:
        client.admin().get_or_create_topic("orders", partitions=3)
        client.admin().get_or_create_topic("invoices", partitions=1)
        with client.producer(transactional_id="shop") as producer, producer.transaction():
            for number in range(ORDERS):
                producer.submit("orders", b"%d" % number, key=b"customer %d" % (number % 10))
        print(f"Wrote {ORDERS} orders, all in one transaction.")

        try:
            price(client, fail_after=300)
        except RuntimeError as error:
            print(f"The first run failed in the middle of a transaction: {error}")
        price(client, fail_after=None)

        with client.consumer(isolation="read_committed") as consumer:
            consumer.subscribe(["invoices"])
            total = sum(int(record.value or b"0") for record in consumer.records(idle_ms=500))
    expected = sum(range(ORDERS)) * PRICE
    print(f"The invoices come to {total}; each order counted once makes {expected}.")


def price(client: ottla.Client, *, fail_after: int | None) -> None:
    """The five lines that matter, and a failure for the sake of the example."""
    done = 0
    with client.process("orders", group="pricing", transactional_id="pricing-1", idle_ms=2_000) as work:
        for records in work:
            for record in records:
                work.send("invoices", b"%d" % (int(record.value or b"0") * PRICE), key=record.key)
                done += 1
                if done == fail_after:
                    raise RuntimeError(f"after {done} orders")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory(prefix="ottla-") as temporary:
            main(temporary)
