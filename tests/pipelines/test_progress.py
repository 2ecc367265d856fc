"""What is told of a pipeline while it runs: as records, and from Spark's accounts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.progress import (
    Command,
    QueryProgress,
    RunProgress,
    decoded,
    decoded_command,
    encoded,
    figures,
    moment,
    moment_ms,
)

AT = "2026-01-31T12:00:00.000Z"
QUERY = QueryProgress(
    pipeline="orders",
    query="revenue",
    run="r1",
    state="running",
    at=AT,
    batch_id=7,
    rows_in=100,
    rows_out=None,
    rows_in_per_s=50.5,
    lag=3,
    watermark=AT,
    error="ValueError: ü",
)
RUN = RunProgress(pipeline="orders", run="r1", state="running", at=AT, place="host/1", process=12, queries=("a", "b"))

# --- records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [QUERY, RUN])
def test_what_is_told_is_read_as_it_was(told: QueryProgress | RunProgress) -> None:
    assert decoded(told.key.encode(), encoded(told)) == told


def test_a_query_has_a_key_below_its_pipeline() -> None:
    assert (QUERY.key, RUN.key) == ("orders/revenue", "orders")


def test_a_record_is_a_json_object_with_plain_names() -> None:
    written = json.loads(encoded(QUERY))

    assert written["rows_in_per_s"] == 50.5
    assert written["error"] == "ValueError: ü"


def test_a_member_that_is_not_known_is_passed_over() -> None:
    later = json.dumps({**json.loads(encoded(QUERY)), "new": 1}).encode()

    assert decoded(b"orders/revenue", later) == QUERY


def test_a_record_whose_key_is_anothers_is_passed_over() -> None:
    assert decoded(b"orders/other", encoded(QUERY)) is None


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_what_is_no_such_record_is_passed_over(value: bytes | str) -> None:
    given_bytes = value.encode() if isinstance(value, str) else value

    assert decoded(b"orders", given_bytes) is None
    assert decoded_command(given_bytes) is None


@pytest.mark.parametrize(
    "member",
    [
        {"state": []},
        {"state": "dancing"},
        {"rows_in_per_s": "many"},
        {"run": None},
        {"query": 5},
        {"pipeline": "\ud800"},
        {"error": [["deep"]]},
    ],
)
def test_a_record_with_a_member_of_another_type_is_passed_over(member: dict[str, object]) -> None:
    told = json.dumps({**json.loads(encoded(QUERY)), **member}).encode()

    assert decoded(b"orders/revenue", told) is None


def test_a_record_that_goes_too_deep_is_passed_over() -> None:
    assert decoded(b"orders/revenue", b'{"state": ' + b"[" * 100_000) is None


def test_a_record_that_lacks_what_it_must_have_is_passed_over() -> None:
    assert decoded(b"orders", b'{"state": "running"}') is None


def test_a_command_is_read_as_it_was() -> None:
    command = Command(pipeline="orders", do="stop", at=AT, run="r1")

    assert decoded_command(encoded(command)) == command


def test_a_command_that_is_not_known_is_passed_over() -> None:
    assert decoded_command(b'{"pipeline": "orders", "do": "dance", "at": ""}') is None


@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_times_come_back_to_the_millisecond(now_ms: int) -> None:
    assert moment_ms(moment(now_ms)) == now_ms


# --- Spark's accounts ---------------------------------------------------------------------------------

ACCOUNT = {
    "timestamp": AT,
    "batchId": 4,
    "numInputRows": 200,
    "inputRowsPerSecond": 400.0,
    "durationMs": {"addBatch": 100, "triggerExecution": 150},
    "eventTime": {"watermark": AT},
    "sources": [
        {
            "endOffset": '{"orders":{"0":90,"1":100}}',
            "latestOffset": '{"orders":{"0":100,"1":105}}',
        }
    ],
    "sink": {"numOutputRows": 50},
}


def test_the_figures_of_a_batch() -> None:
    found = figures(ACCOUNT)

    assert (found.batch_id, found.rows_in, found.rows_out, found.batch_ms) == (4, 200, 50, 150)
    assert (found.rows_in_per_s, found.rows_out_per_s) == (400.0, 100.0)
    assert (found.watermark, found.is_batch) == (AT, True)


def test_lag_is_what_lies_between_the_end_that_was_read_and_the_end_that_there_is() -> None:
    assert figures(ACCOUNT).lag == 15


def test_a_partition_that_is_new_counts_from_its_beginning() -> None:
    source = {"endOffset": '{"orders":{"0":90}}', "latestOffset": '{"orders":{"0":90,"1":7}}'}

    assert figures({**ACCOUNT, "sources": [source]}).lag == 7


@pytest.mark.parametrize("offset", ["null", "None", "12", '{"logOffset": 3}', "{}", '{"orders": {"0": "x"}}', "{"])
def test_a_source_that_counts_in_another_way_has_no_lag(offset: str) -> None:
    found = figures({**ACCOUNT, "sources": [{"endOffset": offset, "latestOffset": offset}]})

    assert (found.lag, found.ends) == (None, {})


def test_a_start_that_was_written_down_is_no_topic() -> None:
    source = {"endOffset": '{"orders":{"0":9},"(start)":{}}', "latestOffset": '{"orders":{"0":9}}'}

    assert figures({**ACCOUNT, "sources": [source]}).ends == {"orders": {"0": 9}}


def test_a_sink_that_does_not_count_has_no_rows_out() -> None:
    found = figures({**ACCOUNT, "sink": {"numOutputRows": -1}})

    assert (found.rows_out, found.rows_out_per_s) == (None, None)


def test_who_counts_the_rows_of_a_batch_is_asked_where_spark_does_not_count() -> None:
    counts = {ACCOUNT["batchId"]: 20}

    assert figures({**ACCOUNT, "sink": {"numOutputRows": -1}}, counts.get).rows_out == 20
    assert figures({**ACCOUNT, "sink": {"numOutputRows": 7}}, counts.get).rows_out == 7
    assert figures({**ACCOUNT, "sink": {"numOutputRows": -1}}, lambda _: None).rows_out is None


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), None])
def test_a_rate_that_is_none_gives_way_to_the_rate_of_the_batch(rate: float | None) -> None:
    found = figures({**ACCOUNT, "inputRowsPerSecond": rate, "processedRowsPerSecond": 300.0})

    assert found.rows_in_per_s == 300.0


def test_an_account_without_a_batch_is_none() -> None:
    assert not figures({**ACCOUNT, "durationMs": {"latestOffset": 5, "triggerExecution": 6}}).is_batch


def test_of_two_sources_that_read_a_topic_the_one_that_is_behind_counts() -> None:
    sources = [{"endOffset": f'{{"orders":{{"0":{end}}}}}', "latestOffset": '{"orders":{"0":9}}'} for end in (3, 8)]

    assert figures({**ACCOUNT, "sources": sources}).lag == 6
