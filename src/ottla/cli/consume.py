"""`ottla consume`: the records of a topic on standard output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Isolation, connected
from ottla.cli.failures import MISUSED, CommandFailed
from ottla.cli.moments import AtOffset, AtTime, End, Last, Moment, parse_moment
from ottla.cli.output import write_bytes
from ottla.cli.progress import Advance, progress
from ottla.cli.record_text import line_form, to_json
from ottla.clock import Clock, SystemClock

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.client.blocking.client import Client
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.values import Record

EXAMPLES = """\b
Examples:
  ottla consume greetings
  ottla consume orders --from end --follow
  ottla consume orders --from -10m --json | jq .value
  ottla consume orders --from 2026-01-31T12:00:00Z --partition 0 --max 100
  ottla consume orders --from -5 --output '{partition}:{offset}\\t{key}={value}\\n'
  ottla consume replies --follow --max 1 --timeout 10
  ottla consume orders --group billing --follow
"""

POLL_MS = 500
"""How long one poll waits, so that limits are looked at in between."""
POLL_RECORDS_MAX = 5_000
STALLED_MS = 30_000
"""How long a read up to the end waits for records that must be there."""


Show = Callable[["Record"], bytes]
Place = tuple[str, int]
"""A topic and one of its partitions."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -N for the last N of each partition, a time (ISO 8601, UTC unless it "
            "says otherwise, or milliseconds since 1970), or how long ago (-10m; ms, s, m, h, d, w). A number from "
            "10^12 on is a time; offset:N and time:N say which one is meant.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition; repeatable.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="Stop after so many records.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Read as a member of this group: share the partitions with its other members, go on where it "
            "committed, and commit what was printed. --from counts where it has committed nothing.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further records instead of stopping at the end.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop when no record came for so long."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='A line of JSON per record; what is not UTF-8 is {"base64": "..."}, timestamps are milliseconds.',
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FORM",
            help="What to print of a record: {topic} {partition} {offset} {timestamp} {key} {value} {headers}, "
            r"with \n and \t.",
        ),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Whether to wait for the end of transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Read records: the value of each, a line each, unless --json or --output says otherwise.

    Reads what is there when it starts, then ends with 0; --follow goes on. Order holds within a partition. When
    --timeout ends it before --max records came, it ends with 1. A member of a group reads what there is in the
    partitions that it is given.
    """
    clock = SystemClock()
    show = _show(output, as_json=as_json)
    moment = _moment(start, clock)
    if isinstance(moment, End) and not follow:
        raise CommandFailed("--from end without --follow reads nothing: add --follow", MISUSED)
    if group is not None:
        _check_group_options(moment, partition)
    limits = Limits(records_max=most, idle_ms_max=None if timeout is None else round(timeout * 1000))
    with connected(bootstrap) as client, client.admin() as admin:
        partitions = _partitions(admin, topic, partition)
        ends = None if follow else _offsets(admin, partitions, isolation, latest=True)
        with _consumer(client, moment, isolation, group) as consumer:
            if group is not None:
                consumer.subscribe([topic])
                with progress(f"from {topic}", total=most) as advance:
                    GroupReading(consumer, clock, limits, show, advance).run(ends)
                return
            if follow and partition is None and not isinstance(moment, Last):
                # Also those that are added later.
                consumer.subscribe([topic])
            else:
                consumer.assign(partitions)
            if isinstance(moment, Last):
                _seek_to_last(consumer, admin, partitions, moment.count, isolation)
            total = most if ends is None else _total(consumer, ends, most)
            with progress(f"from {topic}", total=total) as advance:
                Reading(consumer, clock, limits, show, advance).run(ends)


@dataclass(frozen=True, slots=True)
class Limits:
    """When reading ends before its time."""

    records_max: int | None
    idle_ms_max: int | None


class Reading:
    """One pass over partitions that a consumer was given."""

    def __init__(self, consumer: Consumer, clock: Clock, limits: Limits, show: Show, advance: Advance) -> None:
        self._consumer = consumer
        self._clock = clock
        self._limits = limits
        self._show = show
        self._advance = advance
        self._count = 0

    def run(self, ends: Mapping[Place, int] | None) -> None:
        """Print records up to these ends, or for ever; CommandFailed when fewer came than were wanted."""
        last_ms = self._clock.now_ms()
        left = None if ends is None else self._unread(ends)
        while left is None or left:
            records = self._consumer.poll(self._patience_ms(last_ms), records_max=self._room())
            if ends is not None and left is not None:
                # What was written after the start is not asked for.
                records = [one for one in records if one.offset < ends.get((one.topic, one.partition), 0)]
                left = self._unread(ends)
            if records:
                last_ms = self._clock.now_ms()
                self._print(records)
                if self._count == self._limits.records_max:
                    return
            elif (left is None or left) and self._waited_enough(last_ms, must_come=left is not None):
                return

    def _unread(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        """Those that are not read up to their end; the others are not fetched any more."""
        unread = {where: end for where, end in ends.items() if self._consumer.position(*where) < end}
        finished = [where for where in ends if where not in unread]
        if finished:
            self._consumer.pause(*finished)
        return unread

    def _print(self, records: Sequence[Record]) -> None:
        self._count += len(records)
        write_bytes(b"".join(map(self._show, records)))
        self._advance(len(records))

    def _room(self) -> int:
        most = self._limits.records_max
        return POLL_RECORDS_MAX if most is None else min(POLL_RECORDS_MAX, most - self._count)

    def _patience_ms(self, last_ms: int) -> int:
        most = self._limits.idle_ms_max
        return POLL_MS if most is None else max(0, min(POLL_MS, last_ms + most - self._clock.now_ms()))

    def _waited_enough(self, last_ms: int, *, must_come: bool) -> bool:
        """Whether nothing came for so long that reading ends; CommandFailed where that is a failure."""
        idle_ms = self._clock.now_ms() - last_ms
        most, wanted = self._limits.idle_ms_max, self._limits.records_max
        if most is None and must_come and idle_ms >= STALLED_MS:
            raise CommandFailed(
                f"no record came for {STALLED_MS // 1000} s, although there are more; look at the server"
            )
        if most is None or idle_ms < most:
            return False
        if wanted is not None:
            raise CommandFailed(f"only {self._count} of {wanted} records came before nothing did for {most / 1000:g} s")
        return True


class GroupReading(Reading):
    """As a member of a group: of what it is given, and what is printed is committed."""

    def _unread(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        given = set(self._consumer.assignment())
        if not given:
            # Not a member yet, or there is nothing for it so far.
            return dict(ends)
        return super()._unread({where: end for where, end in ends.items() if where in given})

    def _print(self, records: Sequence[Record]) -> None:
        super()._print(records)
        self._consumer.commit()


def _check_group_options(moment: Moment, partition: Sequence[int] | None) -> None:
    if partition:
        raise CommandFailed("--group and --partition: a group's members are given their partitions", MISUSED)
    if isinstance(moment, Last):
        raise CommandFailed("--group goes on where it committed: --from -N cannot be had with it", MISUSED)


def _show(output: str | None, *, as_json: bool) -> Show:
    if output is None:
        return _json_line if as_json else _value_line
    if as_json:
        raise CommandFailed("--json and --output both say what is printed: leave one of them out", MISUSED)
    try:
        return line_form(output)
    except ValueError as error:
        raise CommandFailed(f"--output: {error}", MISUSED) from error


def _json_line(record: Record) -> bytes:
    return to_json(record) + b"\n"


def _value_line(record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _moment(text: str, clock: Clock) -> Moment:
    try:
        return parse_moment(text, now_ms=clock.now_ms())
    except ValueError as error:
        raise CommandFailed(f"--from: {error}", MISUSED) from error


def _partitions(admin: Admin, topic: str, wanted: Sequence[int] | None) -> list[Place]:
    from ottla.client.errors import PartitionNotFound, TopicNotFound

    count = admin.partition_count(topic)
    if count is None:
        raise TopicNotFound(topic)
    for number in wanted or ():
        if number >= count:
            raise PartitionNotFound(topic, number)
    return [(topic, number) for number in (sorted(set(wanted)) if wanted else range(count))]


def _consumer(client: Client, moment: Moment, isolation: Isolation, group: str | None) -> Consumer:
    return client.consumer(
        group=group,
        start="end" if isinstance(moment, End) else "beginning",
        start_offset=moment.offset if isinstance(moment, AtOffset) else None,
        start_time_ms=moment.timestamp_ms if isinstance(moment, AtTime) else None,
        isolation=isolation.value,
        records_max=POLL_RECORDS_MAX,
    )


def _offsets(admin: Admin, partitions: Sequence[Place], isolation: Isolation, *, latest: bool) -> dict[Place, int]:
    from ottla.client.values import OffsetSpec

    spec = OffsetSpec.LATEST if latest else OffsetSpec.EARLIEST
    wanted: dict[Place, int] = dict.fromkeys(partitions, spec)
    found = admin.list_offsets(wanted, isolation=isolation.value)
    return {where: one.offset for where, one in found.items() if one is not None}


def _seek_to_last(
    consumer: Consumer, admin: Admin, partitions: Sequence[Place], count: int, isolation: Isolation
) -> None:
    starts = _offsets(admin, partitions, isolation, latest=False)
    for where, end in _offsets(admin, partitions, isolation, latest=True).items():
        consumer.seek(*where, offset=max(starts.get(where, 0), end - count))


def _total(consumer: Consumer, ends: Mapping[Place, int], most: int | None) -> int:
    there = sum(max(0, end - consumer.position(*where)) for where, end in ends.items())
    return there if most is None else min(there, most)
