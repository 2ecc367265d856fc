"""Commits of a member: made under its present identity, repeated while the group is changing, refused when it is out.

Several that were handed over are made together. Used by the reader for those that it waits for and by the keeper for
the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.client.background import Promise
from ottla.client.commits import NOBODY, Identity, Ids, store_offsets
from ottla.client.coordinator import Coordinator
from ottla.client.errors import CommitFailed
from ottla.client.errors_by_code import error_for
from ottla.client.group_member import GroupMember
from ottla.client.values import Committed, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal

CHANGING = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH})
"""The member is still one, but under another number: the next attempt may know it."""
OUT = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Elsewhere worth another attempt; a position in a topic that was deleted is not."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A commit that was handed over."""

    offsets: Mapping[TopicPartition, Committed]
    ids: Ids
    promise: Promise | None = None
    """Who wants to know; None: nobody, a failure is worth a line in the log."""
    deadline_ms: int = 0
    """Until when the keeper makes further attempts."""
    releases: int = 0
    """How often the member had let go of partitions by then."""


async def commit_together(
    coordinator: Coordinator, taken: Sequence[Waiting], member: GroupMember | None
) -> OttlaError | None:
    """Make commits, trying as long as one request may take. Returns why they failed, if they did."""
    current = _current(coordinator, taken, member)
    problem: OttlaError | None
    try:
        problem = await coordinator.insist(
            lambda: _attempt(coordinator, current, member), deadline_ms=coordinator.deadline_ms(), also=CHANGING
        )
    except OttlaError as e:
        problem = e
    except BaseException:
        tell(current, _broken_off())
        raise
    tell(current, problem)
    return problem


async def commit_once(
    coordinator: Coordinator, taken: Sequence[Waiting], member: GroupMember | None
) -> tuple[list[Waiting], OttlaError | None]:
    """Make one attempt. Returns those for which another one is worth it, and what went wrong."""
    current = _current(coordinator, taken, member)
    again: list[Waiting] = []
    problem: OttlaError | None
    try:
        problem = await _attempt(coordinator, current, member)
    except OttlaError as e:
        problem = e
        if coordinator.failed(e) or (isinstance(e, Refusal) and e.code in CHANGING):
            now_ms = coordinator.cluster.ticks.now_ms()
            again = [each for each in current if now_ms < each.deadline_ms]
    except BaseException:
        tell(current, _broken_off())
        raise
    tell([each for each in current if each not in again], problem)
    return again, problem


def tell(taken: Iterable[Waiting], problem: OttlaError | None) -> None:
    """Say what became of commits to whoever wants to know; no lock may be held, as users are called back."""
    for each in taken:
        if each.promise is not None and not each.promise.done():
            if problem is None:
                each.promise.set_result(None)
            else:
                each.promise.set_exception(problem)


def _broken_off() -> CommitFailed:
    """For whoever handed something over and must hear of it, even if we are cancelled."""
    return CommitFailed("the commit was broken off; it may or may not have been stored")


def _current(coordinator: Coordinator, taken: Sequence[Waiting], member: GroupMember | None) -> list[Waiting]:
    """Those that still may be made.

    Who reads next a partition that was let go of goes on from what is stored, and a belated commit would undo theirs.
    """
    if member is None:
        return list(taken)
    outdated = [each for each in taken if each.releases != member.releases]
    tell(outdated, CommitFailed(f"partitions of group {coordinator.group!r} were given up meanwhile; {_COME_AGAIN}"))
    return [each for each in taken if each.releases == member.releases]


async def _attempt(coordinator: Coordinator, taken: Sequence[Waiting], member: GroupMember | None) -> Refusal | None:
    """One attempt; of two commits for one partition the later one holds. Returns what is no reason for another."""
    offsets: dict[TopicPartition, Committed] = {}
    ids: dict[str, bytes] = {}
    for each in taken:
        offsets.update(each.offsets)
        ids.update(each.ids)
    if not offsets:
        return None
    identity = NOBODY if member is None else member.identity
    if member is not None and member.is_subscribed and identity == NOBODY:
        raise CommitFailed(f"not a member of group {coordinator.group!r} at present; {_COME_AGAIN}")
    try:
        await store_offsets(coordinator, offsets, identity, ids=ids)
    except Refusal as e:
        if e.code in GONE:
            return e
        if e.code not in OUT:
            raise
        raise put_out(e, coordinator, member, identity) from e
    return None


def put_out(error: Refusal, coordinator: Coordinator, member: GroupMember | None, identity: Identity) -> OttlaError:
    """The group does not know whoever commits (any more): what that means for the commit."""
    group = coordinator.group
    if member is not None:
        is_changing = member.is_joining or member.identity != identity
        has_left = member.is_leaving or (identity != NOBODY and not member.is_subscribed)
        if has_left or (is_changing and member.owned):
            # Either we leave, and once the group has heard of it anybody may commit. Or it has a new generation, whose
            # number we are about to hear: what we keep is ours in it.
            return error_for(ErrorCode.REBALANCE_IN_PROGRESS, about=f"group {group!r}")
        if not is_changing and identity != NOBODY:
            member.fenced(error.code, identity)
    if identity == NOBODY:
        return CommitFailed(
            f"group {group!r} has members, so nobody else can commit for it; subscribe, or choose another group: "
            f"{error}"
        )
    return CommitFailed(f"group {group!r} has gone on without this member: {error}; {_COME_AGAIN}")


_COME_AGAIN = "what was not committed is read again"
