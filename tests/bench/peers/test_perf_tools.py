"""The output of Kafka's perf tools, as 4.3 prints it, and how they are called."""

from __future__ import annotations

import pytest

from bench.peers.perf_tools import consumer_arguments, parse_read, parse_sent, producer_arguments

SENT = """\
Warmup first 100000 records. Steady state results will print after the complete test summary.
200000 records sent, 46554.934823 records/sec (4.44 MB/sec), 479.49 ms avg latency, 1257.00 ms max latency, 494 ms 50th.
100000 steady state records sent, 58823.529412 records/sec (5.61 MB/sec), 626.26 ms avg latency, 1101.00 ms max latency.
"""
READ = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-01-01 00:00:00:446, 2026-01-01 00:00:06:379, 19.0735, 3.2148, 200000, 33709.7590, 3591, 2342, 8.1441, 85397.0965
"""


def test_the_rate_without_the_warm_up_is_taken() -> None:
    sent = parse_sent(SENT)

    assert (sent.records, sent.rate, sent.is_steady) == (100_000, 58823.529412, True)


def test_without_a_warm_up_the_rate_of_everything_is_taken() -> None:
    sent = parse_sent(SENT.splitlines()[1])

    assert (sent.records, sent.rate, sent.is_steady) == (200_000, 46554.934823, False)


def test_the_joining_of_the_group_is_not_in_the_rate_of_reading() -> None:
    assert parse_read(READ).rate == pytest.approx(200_000 / 2.342)


@pytest.mark.parametrize("parse", [parse_sent, parse_read])
def test_output_without_figures_is_an_error_and_no_figure(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"no (summary|figures)"):
        parse("org.apache.kafka.common.errors.TimeoutException")


def test_the_producer_is_called_without_a_throttle_and_with_the_acks_of_the_row() -> None:
    arguments = producer_arguments(bootstrap="h:1", topic="t", acks="all", size=100, records=30, warm_up_records=10)

    assert arguments[arguments.index("--throughput") + 1] == "-1"
    assert arguments[arguments.index("--command-property") + 1] == "acks=all"
    assert arguments[arguments.index("--warmup-records") + 1] == "10"


def test_the_consumer_reads_as_many_records_as_there_are() -> None:
    arguments = consumer_arguments(bootstrap="h:1", topic="t", records=30)

    assert arguments[arguments.index("--num-records") + 1] == "30"
