"""A coordinator's runtime: when replies are released, what a failing disk does, and how state comes back."""

from __future__ import annotations

import errno

import pytest

from ottla.coordinators.groups.records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.outcome import Outcome, Ticket
from ottla.coordinators.runtime import java_hash, shard_index
from ottla.coordinators.runtime_shard import RETRY_MS_MIN
from ottla.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, InvalidRequest
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from tests.coordinators.ledger_stage import Ledger, Replies, Stage


def filled(amounts: dict[str, int], *, shards: int = 1) -> Stage:
    """A stage whose disk holds these amounts, in a new life that has not read them back yet."""
    stage = Stage(shards=shards)
    for name, amount in amounts.items():
        stage.put(name, amount)
    stage.scheduler.run()
    for partition in stage.partitions.values():
        partition.close()
    stage.start(settled=False)
    return stage


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("hello", 99162322), ("Aa", 2112), ("BB", 2112), ("grüße", 98768023), ("😀", 1772899)],
)
def test_keys_are_hashed_as_java_hashes_strings(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_a_hash_that_java_makes_negative_still_gives_a_partition() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert shard_index("polygenelubricants", 50) == 0


def test_a_reply_waits_until_its_record_is_durable() -> None:
    stage = Stage(held=True)
    replies = stage.put("a", 5)
    stage.scheduler.run()
    assert replies.all == []
    stage.jobs.finish()
    assert replies.amount == 5


def test_a_reply_that_tells_of_what_is_not_durable_waits_for_it() -> None:
    stage = Stage(held=True)
    stage.put("a", 5)
    told = stage.look("a")
    stage.scheduler.run()
    assert told.all == []
    stage.jobs.finish()
    assert told.amount == 5


def test_a_refusal_waits_for_what_it_may_rest_on() -> None:
    stage = Stage(held=True)
    stage.put("a", 5)
    refused = stage.look("b")
    stage.scheduler.run()
    assert refused.all == []
    stage.jobs.finish()
    assert refused.refusal is InvalidRequest


def test_without_anything_to_wait_for_a_reply_comes_at_once() -> None:
    stage = Stage()
    stage.put("a", 5)
    stage.scheduler.run()
    assert stage.look("a").amount == 5


def test_many_decisions_of_one_pass_share_a_sync() -> None:
    stage = Stage(held=True)
    replies = [stage.put(f"name {number}", number) for number in range(20)]
    stage.scheduler.run()
    assert len(stage.jobs.waiting) == 1
    stage.jobs.finish()
    assert [reply.amount for reply in replies] == list(range(20))


def test_replies_come_in_the_order_of_the_decisions() -> None:
    stage = Stage(held=True)
    order: list[str] = []
    for name in ("a", "b", "c"):
        stage.runtime.submit(
            name,
            lambda ledger, ticket, outcome, now_ms: ledger.put("x", 1, ticket, outcome),
            lambda reply, name=name: order.append(name),  # type: ignore[misc]
        )
    stage.scheduler.run()
    while stage.jobs.waiting:
        stage.jobs.finish()
    assert order == ["a", "b", "c"]


def test_a_parked_request_is_answered_by_a_later_decision() -> None:
    stage = Stage()
    parked = stage.park("a")
    stage.scheduler.run()
    assert parked.all == []

    def release(ledger: Ledger, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        outcome.reply(ledger.parked.pop(), HeartbeatResponse(throttle_time_ms=8))
        outcome.reply(ticket, HeartbeatResponse())

    replies = Replies()
    stage.runtime.submit("a", release, replies)
    stage.scheduler.run()
    assert (parked.amount, replies.amount) == (8, 0)


def test_who_has_gone_away_is_not_answered() -> None:
    stage = Stage()
    parked = stage.park("a")
    stage.runtime.abandon("a", parked.ticket)

    def release(ledger: Ledger, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        outcome.reply(ledger.parked.pop(), HeartbeatResponse())

    stage.runtime.submit("a", release, Replies())
    stage.scheduler.run()
    assert parked.all == []


def test_who_is_parked_is_refused_when_the_broker_hurries() -> None:
    stage = Stage()
    parked = stage.park("a")
    stage.runtime.hurry("a", parked.ticket)
    assert parked.refusal is CoordinatorNotAvailable


def test_who_only_waits_for_the_disk_is_not_refused_when_the_broker_hurries() -> None:
    stage = Stage(held=True)
    replies = stage.put("a", 5)
    stage.runtime.hurry("a", replies.ticket)
    stage.scheduler.run()
    stage.jobs.finish()
    assert replies.amount == 5


def test_state_is_read_back_after_a_power_loss() -> None:
    stage = Stage(shards=3)
    for number in range(30):
        stage.put(f"name {number}", number)
    stage.put("name 7", 700)
    stage.scheduler.run()
    stage.crash()
    assert {name: stage.look(name).amount for name in ("name 7", "name 8", "name 29")} == {
        "name 7": 700,
        "name 8": 8,
        "name 29": 29,
    }


def test_a_tombstone_takes_its_record_back() -> None:
    stage = Stage()
    stage.put("a", 5)
    stage.runtime.submit("a", lambda ledger, ticket, outcome, now_ms: ledger.take_away("a", ticket, outcome), Replies())
    stage.scheduler.run()
    stage.crash()
    assert stage.look("a").refusal is InvalidRequest


def test_what_was_not_durable_was_not_promised() -> None:
    stage = Stage(held=True)
    replies = stage.put("a", 5)
    stage.scheduler.run()
    stage.crash()
    assert replies.all == []


def test_a_small_state_is_there_for_the_first_request() -> None:
    stage = filled({"a": 5})
    assert stage.look("a").amount == 5


def test_while_a_large_state_is_read_back_requests_are_to_come_again() -> None:
    stage = filled({f"a name that takes some room {number:05}": number for number in range(1_500)})
    assert stage.look("a").refusal is CoordinatorLoadInProgress
    stage.scheduler.run()
    assert stage.look("a name that takes some room 01499").amount == 1_499


def test_the_machine_is_told_when_everything_has_been_replayed() -> None:
    stage = filled({"a": 5})
    stage.loaded.clear()
    stage.scheduler.run()
    assert stage.loaded == [0]
    assert stage.ledger.loaded_at_ms == stage.clock.now_ms()


def test_a_batch_that_cannot_be_appended_ends_the_life_of_the_shard() -> None:
    stage = Stage()
    stage.put("a", 5)
    stage.scheduler.run()
    parked = stage.park("a")
    stage.disk.fail_next("append", ".log", errno.EIO)
    failed = stage.put("a", 6)
    assert (failed.refusal, parked.refusal) == (CoordinatorNotAvailable, CoordinatorNotAvailable)
    assert stage.look("a").refusal is CoordinatorNotAvailable


def test_a_shard_that_failed_comes_back_with_what_the_log_holds() -> None:
    stage = Stage()
    stage.put("a", 5)
    stage.scheduler.run()
    stage.disk.fail_next("append", ".log", errno.EIO)
    stage.put("a", 6)
    stage.scheduler.advance(RETRY_MS_MIN)
    assert stage.look("a").amount == 5


def test_a_sync_that_fails_refuses_who_waited_for_it() -> None:
    stage = Stage()
    stage.disk.fail_next("sync", ".log", errno.EIO)
    failed = stage.put("a", 6)
    stage.scheduler.run()
    assert failed.refusal is CoordinatorNotAvailable


def test_on_a_full_disk_the_shard_waits_longer_after_each_try() -> None:
    stage = Stage()
    stage.put("a", 5)
    stage.scheduler.run()
    stage.disk.fail_next("append", ".log", errno.ENOSPC, times=2)
    stage.put("a", 6)
    stage.scheduler.advance(RETRY_MS_MIN)
    stage.put("a", 7)
    stage.scheduler.advance(RETRY_MS_MIN)
    assert stage.look("a").refusal is CoordinatorNotAvailable
    stage.scheduler.advance(RETRY_MS_MIN)
    assert stage.look("a").amount == 5
    assert stage.put("a", 8).all == []
    stage.scheduler.run()
    assert stage.look("a").amount == 8


def test_a_bug_in_a_decision_is_loud_and_its_state_is_not_kept() -> None:
    stage = Stage()

    def stumble(ledger: Ledger, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        outcome.write(OffsetCommitKey(group="a"), OffsetCommitValue(offset=1))
        raise ZeroDivisionError

    replies = Replies()
    with pytest.raises(ZeroDivisionError):
        stage.runtime.submit("a", stumble, replies)
    assert replies.refusal is CoordinatorNotAvailable
    stage.scheduler.advance(RETRY_MS_MIN)
    assert stage.ledger.amounts == {}


def test_a_refusal_after_a_record_is_a_bug() -> None:
    stage = Stage()

    def change_its_mind(ledger: Ledger, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
        outcome.write(OffsetCommitKey(group="a"), OffsetCommitValue(offset=1))
        raise InvalidRequest("too late")

    with pytest.raises(AssertionError, match="check first"):
        stage.runtime.submit("a", change_its_mind, Replies())


def test_timers_come_through_the_machine_and_not_after_the_stop() -> None:
    stage = Stage()

    def ask(ledger: Ledger, outcome: Outcome, now_ms: int) -> None:
        outcome.set_timer(("first",), at_ms=now_ms + 10)
        outcome.set_timer(("second",), at_ms=now_ms + 1_000)

    stage.runtime.tell(ask)
    stage.scheduler.advance(10)
    assert stage.ledger.timers_seen == [("first",)]
    stage.runtime.stop()
    stage.scheduler.advance(10_000)
    assert stage.ledger.timers_seen == [("first",)]


def test_after_the_stop_requests_are_still_decided() -> None:
    stage = Stage()
    stage.runtime.stop()
    replies = stage.put("a", 5)
    stage.scheduler.run()
    assert replies.amount == 5


def test_when_the_topic_is_gone_all_who_wait_are_refused() -> None:
    stage = Stage()
    parked = stage.park("a")
    stage.runtime.drop("gone")
    assert parked.refusal is CoordinatorNotAvailable
    assert stage.look("a").refusal is CoordinatorNotAvailable
    assert not stage.runtime.is_started


def test_every_shard_can_be_asked_at_once() -> None:
    stage = Stage(shards=3)
    replies = Replies()
    count = stage.runtime.submit_to_all(
        lambda ledger, ticket, outcome, now_ms: outcome.reply(ticket, HeartbeatResponse()), replies
    )
    assert (count, len(replies.all)) == (3, 3)


# --- looking, and telling one ------------------------------------------------------------------------------


def answer(ledger: Ledger, ticket: Ticket, outcome: Outcome, now_ms: int) -> None:
    outcome.reply(ticket, HeartbeatResponse(throttle_time_ms=len(ledger.amounts)))


def test_a_shard_can_be_asked_by_its_number() -> None:
    stage = Stage(shards=3)
    stage.put("a", 5)
    stage.scheduler.run()
    own, other, none = Replies(), Replies(), Replies()
    index = stage.runtime.index_of("a")
    stage.runtime.submit_to(index, answer, own)
    stage.runtime.submit_to((index + 1) % 3, answer, other)
    stage.runtime.submit_to(3, answer, none)
    assert (own.amount, other.amount) == (1, 0)
    assert none.refusal is CoordinatorNotAvailable


def test_one_shard_can_be_told_something() -> None:
    stage = Stage(shards=3)
    stage.runtime.tell_shard_of("a", lambda ledger, outcome, now_ms: ledger.parked.append(7))
    assert [ledger.parked for ledger in stage.runtime.machines()].count([7]) == 1
    assert stage.runtime.machine_of("a").parked == [7]


def test_a_shard_that_is_not_there_is_told_nothing() -> None:
    stage = Stage()
    stage.runtime.drop("gone")
    stage.runtime.tell_shard_of("a", lambda ledger, outcome, now_ms: ledger.parked.append(7))
    assert not stage.runtime.is_started


def test_whoever_looks_at_a_state_that_has_not_been_read_yet_has_it_read() -> None:
    stage = Stage()
    stage.put("a", 5)
    stage.scheduler.run()
    stage.start(settled=False)
    assert stage.runtime.machine_of("a").amounts == {"a": 5}


def test_a_state_that_is_being_read_back_cannot_be_looked_at() -> None:
    stage = Stage(shards=2)
    for number in range(5_000):
        stage.put(f"name {number}", 1)
    stage.scheduler.run()
    stage.start(settled=False)
    with pytest.raises(CoordinatorLoadInProgress):
        stage.runtime.machine_of("a")
    with pytest.raises(CoordinatorLoadInProgress):
        stage.runtime.all_machines()
    stage.scheduler.run()
    assert sum(len(ledger.amounts) for ledger in stage.runtime.all_machines()) == 5_000


def test_where_there_is_no_coordinator_there_is_nothing_to_look_at() -> None:
    stage = Stage()
    stage.runtime.drop("gone")
    with pytest.raises(CoordinatorNotAvailable):
        stage.runtime.machine_of("a")
    assert stage.runtime.all_machines() == []
    replies = Replies()
    stage.runtime.submit_to(0, answer, replies)
    assert replies.refusal is CoordinatorNotAvailable
