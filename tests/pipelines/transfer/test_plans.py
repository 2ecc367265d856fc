"""What a transfer decides before it does anything: steps, routes, and the documents that it keeps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.routing import murmur2_partition
from ottla.pipelines.transfer import journal, manifest
from ottla.pipelines.transfer.documents import LocalDirectory
from ottla.pipelines.transfer.errors import TransferRefused
from ottla.pipelines.transfer.journal import Journal
from ottla.pipelines.transfer.manifest import Export, Step
from ottla.pipelines.transfer.routing import partitions_of
from ottla.pipelines.transfer.steps import Span, between, clipped, cut, total

EXPORT = Export(
    id="e",
    asked={"from": "beginning", "partitions": None},
    topic="t",
    topic_id="00",
    configs={"retention.ms": "1"},
    partition_count=3,
    created_ms=5,
    steps=(Step((Span(0, 0, 5), Span(2, 7, 9))), Step((Span(0, 5, 9),))),
)
JOURNAL = Journal(
    topic="old",
    topic_id="00",
    new_topic="new",
    new_topic_id="01",
    partition_count=5,
    by="key",
    isolation="read_committed",
)

spans = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 500)), max_size=6).map(
    lambda found: between(
        {partition: start for partition, (start, _) in found.items()},
        {partition: start + size for partition, (start, size) in found.items()},
    )
)


@given(spans, st.integers(1, 300))
def test_steps_cover_every_offset_once_and_in_order(wanted: tuple[Span, ...], records_max: int) -> None:
    steps = cut(wanted, records_max=records_max)
    for span in wanted:
        own = [each for step in steps for each in step if each.partition == span.partition]
        offsets = [offset for each in own for offset in range(each.start, each.end)]
        assert offsets == list(range(span.start, span.end))


@given(spans, st.integers(1, 300))
def test_a_step_is_about_as_large_as_it_may_be(wanted: tuple[Span, ...], records_max: int) -> None:
    # A partition is not cut within an offset, so that each may have one more than its part.
    assert all(0 < total(step) <= records_max + len(wanted) for step in cut(wanted, records_max=records_max) if step)


def test_what_retention_has_deleted_is_not_waited_for() -> None:
    wanted = [Span(0, 0, 10), Span(1, 5, 8), Span(2, 3, 4), Span(3, 0, 1)]
    assert clipped(wanted, {0: 4, 1: 8, 2: 0}) == (Span(0, 4, 10), Span(2, 3, 4), Span(3, 0, 1))


@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=50), st.integers(1, 9))
def test_keys_go_where_kafkas_clients_send_them(keys: list[bytes | None], partition_count: int) -> None:
    numbers = pa.array(range(len(keys)), pa.int64())
    found = partitions_of(
        pa.array(keys, pa.binary()), numbers.cast(pa.int32()), numbers, partition_count=partition_count, by="key"
    ).to_pylist()
    assert found == [
        2 * number % partition_count if key is None else murmur2_partition(key, partition_count)
        for number, key in enumerate(keys)
    ]


def test_in_turn_each_record_goes_to_the_next_partition() -> None:
    keys, old = pa.array([b"k"] * 4, pa.binary()), pa.array([1] * 4, pa.int32())
    found = partitions_of(keys, old, pa.array([5, 6, 7, 9], pa.int64()), partition_count=3, by="round-robin")
    assert found.to_pylist() == [0, 1, 2, 1]


def test_a_manifest_is_read_as_it_was_written() -> None:
    further = EXPORT.with_step(0, rows=7, checksum=-3)
    assert manifest.decoded(manifest.encoded(further), place="here") == further
    assert (further.done, further.rows, further.offsets) == (1, 7, 11)
    assert further.spans == (Span(0, 0, 9), Span(2, 7, 9))


def test_a_manifest_of_a_later_version_is_refused() -> None:
    later = msgspec.json.encode({**msgspec.to_builtins(EXPORT), "version": 2})
    with pytest.raises(TransferRefused, match="version 2"):
        manifest.decoded(later, place="here")


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b'{"format": "ottla-export", "version": 1}'])
def test_what_is_no_manifest_is_refused(document: bytes) -> None:
    with pytest.raises(TransferRefused, match="here"):
        manifest.decoded(document, place="here")


def test_a_journal_knows_the_step_that_is_under_way() -> None:
    begun = JOURNAL.begun([Span(0, 0, 5), Span(1, 2, 4)], {0: 7, 1: 0})
    again = journal.decoded(journal.encoded(begun), place="here")
    assert again == begun
    assert (again.under_way, again.copied) == (0, {0: 5, 1: 4})
    done = again.finished(6)
    assert (done.under_way, done.rows) == (None, 6)
    more = done.begun([Span(1, 4, 8)], {0: 9, 1: 3})
    assert (more.under_way, more.rows, more.copied) == (1, 6, {0: 5, 1: 8})
    assert (more.finished(2).under_way, more.finished(2).rows, more.finished(2).next_number) == (None, 8, 2)


def test_a_journal_does_not_grow_with_its_steps() -> None:
    """A copy that follows its topic for a week takes some hundred thousand, and writes its journal at each of them."""
    taken = JOURNAL
    for number in range(200):
        taken = taken.begun([Span(0, number, number + 1)], {0: number}).finished(1)

    assert (taken.rows, taken.copied, taken.next_number) == (200, {0: 200}, 200)
    assert len(journal.encoded(taken)) < 1_000


def test_a_journal_of_something_else_is_refused() -> None:
    with pytest.raises(TransferRefused, match="no journal"):
        journal.decoded(manifest.encoded(EXPORT), place="here")


def test_a_document_that_is_half_written_does_not_replace_the_one_before(tmp_path: Path) -> None:
    directory = LocalDirectory(tmp_path / "a" / "b")
    assert directory.is_empty()
    directory.write("name", b"first")
    directory.write("name", b"second")
    assert directory.read("name") == b"second"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["name"]
    directory.remove("name")
    assert directory.read("name") is None
