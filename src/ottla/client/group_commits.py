"""Commits of a member: made under its present identity, repeated while the group is changing, refused when it is out.

Several that were handed over are made together. Used by the reader for those that it waits for and by the keeper for
the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.client.background import Promise
from ottla.client.commits import NOBODY, Ids, store_offsets
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


async def commit_together(
    coordinator: Coordinator, taken: Sequence[Waiting], member: GroupMember | None
) -> OttlaError | None:
    """Make commits; of two for one partition the later one holds. Returns why they failed, if they did."""
    offsets: dict[TopicPartition, Committed] = {}
    ids: dict[str, bytes] = {}
    for each in taken:
        offsets.update(each.offsets)
        ids.update(each.ids)
    problem: OttlaError | None = None
    try:
        if offsets:
            await _insist_on_commit(coordinator, offsets, ids, member)
    except OttlaError as e:
        problem = e
    except BaseException:
        # Whoever handed something over must hear of it, even if we are cancelled.
        _tell(taken, CommitFailed("the commit was broken off; it may or may not have been stored"))
        raise
    _tell(taken, problem)
    return problem


def _tell(taken: Sequence[Waiting], problem: OttlaError | None) -> None:
    for each in taken:
        if each.promise is not None and not each.promise.done():
            if problem is None:
                each.promise.set_result(None)
            else:
                each.promise.set_exception(problem)


async def _insist_on_commit(
    coordinator: Coordinator, offsets: Mapping[TopicPartition, Committed], ids: Ids, member: GroupMember | None
) -> None:
    async def attempt() -> Refusal | None:
        identity = NOBODY if member is None else member.identity
        if member is not None and identity == NOBODY:
            raise CommitFailed(f"not a member of group {coordinator.group!r} at present; {_COME_AGAIN}")
        try:
            await store_offsets(coordinator, offsets, identity, ids=ids)
        except Refusal as e:
            if e.code in GONE:
                return e
            if e.code not in OUT:
                raise
            if member is None:
                raise CommitFailed(
                    f"group {coordinator.group!r} has members, so nobody else can commit for it; subscribe, or "
                    f"choose another group: {e}"
                ) from e
            is_changing = member.is_joining or member.identity != identity
            if is_changing and member.owned:
                # The group has a new generation, whose number we are about to hear: what we keep is ours in it.
                raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, about=f"group {coordinator.group!r}") from e
            if not is_changing:
                member.fenced(e.code, identity)
            raise CommitFailed(
                f"group {coordinator.group!r} has gone on without this member: {e}; {_COME_AGAIN}"
            ) from e
        return None

    gone = await coordinator.insist(attempt, deadline_ms=coordinator.deadline_ms(), also=CHANGING)
    if gone is not None:
        raise gone


_COME_AGAIN = "what was not committed is read again"
