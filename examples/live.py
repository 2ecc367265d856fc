"""Starts a broker, produces and consumes live, and says how to connect. Run it: `.venv/bin/python examples/live.py`.

It stops by itself after a few seconds; `--keep` lets it run until Ctrl-C. The data goes to the directory named
on the command line, or to a temporary one that is gone afterwards.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from itertools import count

import ottla
from ottla.testing.server_thread import ServerThread

TICKS = 10
TICK_S = 0.3


def main(directory: str, *, keep: bool) -> None:
    """A producer in the background, a consumer in front."""
    server = ServerThread(directory)
    server.start()
    print(f"A broker is ready on {server.bootstrap}, its data in {directory}.")
    done = threading.Event()
    with ottla.connect(server.bootstrap) as client:
        client.admin().create_topic("ticks", partitions=2)
        producer = threading.Thread(target=produce, args=(client, done, None if keep else TICKS))
        producer.start()
        try:
            consume(client, done)
        except KeyboardInterrupt:
            done.set()
        producer.join()
    print("\nAny Kafka client can do the same while a broker runs. Start one that stays:")
    print("  .venv/bin/ottla serve --data-dir ottla-data")
    print("and in another terminal:")
    print("  echo hello | .venv/bin/ottla produce greetings")
    print("  .venv/bin/ottla consume greetings --from beginning --max 1")
    print('In Python: ottla.connect("127.0.0.1:9092"), or ottla.open("data") for a broker in your own process.')
    server.stop()


def produce(client: ottla.Client, done: threading.Event, ticks: int | None) -> None:
    """A record every now and then, each safe on disk when its position is printed."""
    with client.producer() as producer:
        for number in count():
            if number == ticks or done.wait(TICK_S):
                break
            position = producer.send("ticks", f"tick {number}".encode(), key=b"%d" % number)
            print(f"  sent     {position.topic}-{position.partition} offset {position.offset}")
    done.set()


def consume(client: ottla.Client, done: threading.Event) -> None:
    """What comes, as it comes."""
    with client.consumer() as consumer:
        consumer.subscribe(["ticks"])
        while not done.is_set():
            for record in consumer.poll(200):
                value = (record.value or b"").decode()
                print(f"  received {record.topic}-{record.partition} offset {record.offset}: {value}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A broker, a producer and a consumer, live.")
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--keep", action="store_true", help="go on until Ctrl-C")
    options = parser.parse_args()
    if options.directory is not None:
        main(options.directory, keep=options.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="ottla-") as temporary:
            main(temporary, keep=options.keep)
