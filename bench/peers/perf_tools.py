"""What Kafka's own perf tools print, and how they are called; pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_SENT = re.compile(
    r"^(?P<records>\d+) (?P<steady>steady state )?records sent, (?P<rate>[\d.]+) records/sec", re.MULTILINE
)


class Sent(NamedTuple):
    """The last summary of the producer's tool."""

    records: int
    rate: float
    """Records a second."""
    is_steady: bool
    """Whether the records of the warm-up are left out."""


class Read(NamedTuple):
    """What the consumer's tool found."""

    records: int
    fetch_s: float
    """Without the joining of the group."""

    @property
    def rate(self) -> float:
        return self.records / self.fetch_s


def producer_arguments(
    *, bootstrap: str, topic: str, acks: str, size: int, records: int, warm_up_records: int
) -> list[str]:
    """As fast as it goes, with the defaults of Kafka's client."""
    return [
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--record-size", str(size), "--throughput", "-1", "--warmup-records", str(warm_up_records)),
        *("--command-property", f"acks={acks}"),
    ]


def consumer_arguments(*, bootstrap: str, topic: str, records: int) -> list[str]:
    """From the beginning."""
    return ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]


def parse_sent(output: str) -> Sent:
    """The steady state where there is one."""
    found = list(_SENT.finditer(output))
    if not found:
        raise ValueError(f"no summary in {output[-300:]!r}")
    last = found[-1]
    return Sent(int(last["records"]), float(last["rate"]), last["steady"] is not None)


def parse_read(output: str) -> Read:
    """The line of figures below the line of headings."""
    lines = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    for headings, cells in pairwise(lines):
        if "fetch.time.ms" in headings and len(cells) == len(headings):
            told = dict(zip(headings, cells, strict=True))
            return Read(int(told["data.consumed.in.nMsg"]), int(told["fetch.time.ms"]) / 1000)
    raise ValueError(f"no figures in {output[-300:]!r}")
