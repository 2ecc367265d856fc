"""What every metadata store promises; each test runs against the memory store and the local one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import MetadataConflict, StoreClosed
from ottla.metadata.local_store import LocalStore
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import ABSENT, Commit, Entry, Event, MetadataStore

WAIT_S = 60


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    made: MetadataStore = MemoryStore() if request.param == "memory" else LocalStore.open(str(tmp_path / "store"))
    yield made
    made.close()


def test_a_new_store_is_empty_at_revision_0(store: MetadataStore) -> None:
    assert store.load() == (0, {})


def test_what_is_committed_is_there_with_the_revision_of_its_commit(store: MetadataStore) -> None:
    first = store.commit(Commit({"a": b"1", "b": b""}))
    second = store.commit(Commit({"a": b"2", "\N{SNOWMAN}": b"\x00\xff"}))

    assert (first, second) == (1, 2)
    assert store.load() == (2, {"a": Entry(b"2", 2), "b": Entry(b"", 1), "\N{SNOWMAN}": Entry(b"\x00\xff", 2)})


def test_a_removed_entry_is_gone_and_its_removal_has_a_revision(store: MetadataStore) -> None:
    store.commit(Commit({"a": b"1"}))

    assert store.commit(Commit(deletes=frozenset({"a", "never"}))) == 2
    assert store.load() == (2, {})


def test_a_commit_that_relies_on_entries_as_they_are_succeeds(store: MetadataStore) -> None:
    store.commit(Commit({"a": b"1"}))

    assert store.commit(Commit({"b": b"2"}, expected={"a": 1, "b": ABSENT})) == 2


@pytest.mark.parametrize(
    "expected", [{"a": ABSENT}, {"a": 1}, {"gone": 1}, {"never": 5}, {"a": 2, "gone": 1}, {"a": 99}]
)
def test_a_commit_that_relies_on_something_else_changes_nothing(store: MetadataStore, expected: dict[str, int]) -> None:
    store.commit(Commit({"a": b"1", "gone": b""}))
    store.commit(Commit({"a": b"2"}, deletes=frozenset({"gone"})))

    with pytest.raises(MetadataConflict, match="decide anew"):
        store.commit(Commit({"b": b"3"}, deletes=frozenset({"a"}), expected=expected))

    assert store.load() == (2, {"a": Entry(b"2", 2)})


def test_an_entry_that_was_removed_and_written_again_counts_as_changed(store: MetadataStore) -> None:
    store.commit(Commit({"a": b"1"}))
    store.commit(Commit(deletes=frozenset({"a"})))
    store.commit(Commit({"a": b"1"}))

    with pytest.raises(MetadataConflict):
        store.commit(Commit({"a": b"2"}, expected={"a": 1}))


def test_a_conflict_hurts_nobody_else_who_was_submitted_with_it(store: MetadataStore) -> None:
    futures = [store.submit(Commit({"a": b"%d" % n}, expected={"a": ABSENT})) for n in range(3)]
    futures.append(store.submit(Commit({"b": b""})))

    outcomes = [future.exception(WAIT_S) for future in futures]

    assert [type(outcome) for outcome in outcomes] == [type(None), MetadataConflict, MetadataConflict, type(None)]
    assert store.load() == (2, {"a": Entry(b"0", 1), "b": Entry(b"", 2)})


def test_of_many_threads_that_create_one_entry_one_wins(store: MetadataStore) -> None:
    outcomes: list[BaseException | None] = []
    ready = threading.Barrier(8)

    def create() -> None:
        ready.wait(WAIT_S)
        outcomes.append(store.submit(Commit({"a": b""}, expected={"a": ABSENT})).exception(WAIT_S))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert sorted(outcome is None for outcome in outcomes) == [False] * 7 + [True]


def test_submitted_commits_take_effect_in_order(store: MetadataStore) -> None:
    futures = [store.submit(Commit({"a": b"%d" % n})) for n in range(300)]

    assert [future.result(WAIT_S) for future in futures] == list(range(1, 301))
    assert store.load().entries["a"] == Entry(b"299", 300)


def test_a_listener_hears_of_each_commit_in_order_before_its_future_is_done(store: MetadataStore) -> None:
    heard: list[Event] = []
    heard_at_the_end: list[int] = []
    store.watch(heard.append)

    futures = [store.submit(Commit({"a": b"%d" % n}, deletes=frozenset({"b"}))) for n in range(20)]
    for future in futures:
        future.add_done_callback(lambda done: heard_at_the_end.append(len(heard) - done.result()))
    futures[-1].result(WAIT_S)
    store.load()

    assert heard == [Event(n + 1, {"a": b"%d" % n, "b": None}) for n in range(20)]
    assert min(heard_at_the_end) >= 0


def test_a_listener_hears_nothing_of_a_conflict(store: MetadataStore) -> None:
    heard: list[Event] = []
    store.watch(heard.append)

    with pytest.raises(MetadataConflict):
        store.commit(Commit({"a": b""}, expected={"a": 1}))

    assert heard == []


def test_a_listener_that_has_ended_hears_nothing_more(store: MetadataStore) -> None:
    heard: list[Event] = []
    end = store.watch(heard.append)
    store.commit(Commit({"a": b""}))

    end()
    end()
    store.commit(Commit({"b": b""}))

    assert [event.revision for event in heard] == [1]


def test_closing_waits_for_what_was_submitted(store: MetadataStore) -> None:
    futures = [store.submit(Commit({"a": b"%d" % n})) for n in range(50)]

    store.close()

    assert [future.done() for future in futures] == [True] * 50


def test_a_closed_store_takes_nothing_more(store: MetadataStore) -> None:
    store.close()
    store.close()

    assert isinstance(store.submit(Commit({"a": b""})).exception(WAIT_S), StoreClosed)
    with pytest.raises(StoreClosed):
        store.commit(Commit({"a": b""}))
    with pytest.raises(StoreClosed):
        store.load()


def test_what_was_loaded_does_not_change_under_the_reader(store: MetadataStore) -> None:
    store.commit(Commit({"a": b"1"}))
    loaded = store.load()

    store.commit(Commit({"a": b"2"}))

    assert loaded.entries == {"a": Entry(b"1", 1)}


@pytest.mark.parametrize("nothing", [{}, {"expected": {"a": 1}}])
def test_a_commit_without_a_change_cannot_be_made(nothing: dict[str, dict[str, int]]) -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        Commit(**nothing)  # type: ignore[arg-type]


def test_an_entry_cannot_be_written_and_removed_at_once() -> None:
    with pytest.raises(ValueError, match="both"):
        Commit({"a": b""}, frozenset({"a"}))
