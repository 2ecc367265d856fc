"""The memory store's own promises: what a crash takes and what it leaves."""

from __future__ import annotations

import pytest

from ottla.errors import DiskFull, MetadataConflict
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import ABSENT, Commit, Event


def test_a_crash_takes_the_commits_that_wait_and_leaves_the_durable_ones() -> None:
    store = MemoryStore(held=True)
    answered = store.submit(Commit({"a": b"1"}))
    store.sync()
    waiting = store.submit(Commit({"b": b"2"}))

    after = store.crash()

    assert (answered.result(0), waiting.done()) == (1, False)
    assert list(after.load().entries) == ["a"]


def test_a_commit_may_have_reached_the_disk_although_nobody_was_told() -> None:
    store = MemoryStore(held=True)
    futures = [store.submit(Commit({name: b""})) for name in "abc"]

    after = store.crash(unanswered=2)

    assert sorted(after.load().entries) == ["a", "b"]
    assert not any(future.done() for future in futures)


def test_a_held_store_makes_as_many_commits_durable_as_it_is_told_to() -> None:
    store = MemoryStore(held=True)
    heard: list[Event] = []
    store.watch(heard.append)
    futures = [store.submit(Commit({name: b""})) for name in "abc"]

    store.sync(2)

    assert [future.done() for future in futures] == [True, True, False]
    assert [event.revision for event in heard] == [1, 2]


def test_a_failure_that_was_ordered_hits_one_commit_and_writes_nothing() -> None:
    store = MemoryStore()
    store.fail_next(DiskFull("store", "writing"))

    with pytest.raises(DiskFull):
        store.commit(Commit({"a": b""}))

    assert store.load() == (0, {})
    assert store.commit(Commit({"a": b""})) == 1


def test_a_conflict_is_found_when_the_commit_becomes_durable_not_when_it_is_submitted() -> None:
    store = MemoryStore(held=True)
    store.submit(Commit({"a": b""}))
    second = store.submit(Commit({"a": b""}, expected={"a": ABSENT}))

    store.sync()

    assert isinstance(second.exception(0), MetadataConflict)
